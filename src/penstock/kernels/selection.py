"""Thousands of selections in one pass: attribute selection constructs (ASC, Lee and Lee).

Every term (conjunction) of every slot is one bit. Each attribute that some term uses has, per
bucket of its values (`binning`), a bitmap of the terms that a value there may satisfy or that do
not use the attribute. A row's result bitmap is the AND of one bitmap per attribute; as soon as it
is zero the row costs no further look-up. Equality and ranges cost the same.

What goes beyond the paper, whose bitmaps grow with the square of the number of queries:
- Terms lie in tiles of 2,048: the bitmaps of a tile stay in the cache while a block of rows passes.
- There are at most 96 buckets, so bitmaps grow with the number of terms only. Where a predicate
  begins or ends inside a bucket, the bitmap of borders says so, and the few terms that are left and
  have a border there are compared with the row itself.
- A tile has bitmaps only for attributes that its terms use. A summary over the tiles, one bit each,
  tells by the same AND which tiles a row has to look at; terms that begin alike are put together.
- A term is added or dropped by setting or clearing its bits.

A slot with several terms is written once for a row that more than one of them matches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kernels.binning import Bins, bins_for, find_buckets
from penstock.kernels.domains import Domain, Key, domain_of, ordered_constant
from penstock.kernels.jit import (
    INT,
    INTS,
    SMALL_INTS,
    Bytes,
    Flags,
    Ints,
    SmallInts,
    kernel,
)
from penstock.kernels.terms import TermRows
from penstock.kernels.tiles import Layout, Tiles
from penstock.plan.specs import SlotSpec, Term

_SPARE = 16  # attributes that may be of no use
TOGETHER = 5  # attributes that are combined before the next look whether any bit is left


@dataclass(frozen=True, slots=True)
class Matches:
    """Row i belongs to the slots at positions `slots[offsets[i]:offsets[i + 1]]`, in any order."""

    slot_count: int
    offsets: Ints
    slots: SmallInts
    visits: int  # attribute look-ups that the batch cost


@dataclass(frozen=True, slots=True)
class Survivors:
    """Bits left of sampled rows, in all: along the order, and with other attributes after it."""

    rows: int
    order: tuple[str, ...]
    after: tuple[int, ...]  # each attribute of the order
    candidates: dict[str, int]  # if that attribute came next after the prefix


class Selects(Protocol):
    """What matches rows with slots."""

    @property
    def slot_numbers(self) -> Ints: ...

    def match(self, batch: pa.RecordBatch, together: int) -> tuple[Ints, SmallInts, int]: ...


_NO_KEYS: Ints = np.empty(0, np.int64)


@dataclass(slots=True)
class _Attribute:
    """How an attribute's values are told apart."""

    number: int
    domain: Domain
    bins: Bins = field(default_factory=lambda: bins_for(_NO_KEYS, _NO_KEYS))
    users: int = 0  # terms that use it
    binned_for: int = 0  # users when the bins were made
    added: int = 0  # terms since then


class Selection:
    """The slots' predicates, ready for matching; `change` adds and drops slots."""

    def __init__(self, types: Mapping[str, str], order: Sequence[str] = ()) -> None:
        self._types = types
        self._wanted = tuple(order)
        self._attributes: dict[str, _Attribute] = {}
        self._places: dict[int, list[int]] = {}  # of each slot's terms
        self._signatures: Counter[frozenset[str]] = Counter()
        self._tiles = Tiles()
        self._several: set[int] = set()  # slots with more than one term
        self._layout: Layout | None = None
        self.slot_numbers = np.empty(0, np.int64)  # ascending; `Matches` speaks of positions here

    @property
    def usage(self) -> Mapping[frozenset[str], int]:
        """How many terms use exactly these attributes."""
        return self._signatures

    @property
    def order(self) -> tuple[str, ...]:
        """Attributes in use, in the order of evaluation: as wanted, then by how many use them."""
        rank = {name: place for place, name in enumerate(self._wanted)}
        used = [name for name, a in self._attributes.items() if a.users]
        last = len(rank)
        return tuple(sorted(used, key=lambda n: (rank.get(n, last), -self._attributes[n].users, n)))

    @property
    def term_count(self) -> int:
        return self._signatures.total()

    @property
    def nbytes(self) -> int:
        """Memory of the bitmaps and predicates."""
        return self._tiles.nbytes

    def reorder(self, order: Sequence[str]) -> None:
        """Evaluate attributes in another order; results stay the same."""
        if tuple(order) != self._wanted:
            self._wanted = tuple(order)
            self._layout = None

    def change(self, added: Sequence[SlotSpec], dropped: Collection[int] = ()) -> None:
        """Add and drop slots; the work is that of the change, unless most of the slots are new."""
        self._layout = None
        gone = [slot for slot in dropped if slot in self._places]
        self._drop(gone)
        self._forget_attributes()
        terms = [(slot.slot, term) for slot in added for term in slot.terms]
        self._learn(term for _, term in terms)
        rows = TermRows.of([slot for slot, _ in terms], [self._rows(term) for _, term in terms])
        for slot in added:
            self._places[slot.slot] = []
        self._several |= {slot.slot for slot in added if len(slot.terms) > 1}
        if len(terms) > self._tiles.term_count:
            self._rebuild(rows)
        else:
            self._add(rows, self._tiles.add(rows, self._bins))
            self._rebin(rows)
        self._forget_constants()
        left = np.setdiff1d(self.slot_numbers, gone, assume_unique=True)
        self.slot_numbers = np.union1d(left, [slot.slot for slot in added]).astype(np.int64)

    @property
    def _bins(self) -> list[Bins]:
        return [a.bins for a in self._attributes.values()]

    def _add(self, terms: TermRows, places: Ints) -> None:
        for slot, place in zip(terms.slots.tolist(), places.tolist(), strict=True):
            self._places[slot].append(place)

    def _drop(self, slots: list[int]) -> None:
        names = list(self._attributes)
        for slot in slots:
            for place in self._places.pop(slot):
                used = frozenset(names[n] for n in self._tiles.attributes_of(place))
                self._signatures[used] -= 1
                for name in used:
                    self._attributes[name].users -= 1
                self._tiles.drop(place)
        self._several.difference_update(slots)
        self._signatures += Counter()  # without zeros

    def _forget_attributes(self) -> None:
        """Lay out all terms anew without the attributes that none uses any more, if those are many:
        each costs memory for every row of a batch."""
        used = {name: a for name, a in self._attributes.items() if a.users}
        if len(self._attributes) - len(used) <= max(_SPARE, len(used)):
            return
        terms, numbers = self._tiles.terms(), np.zeros(len(self._attributes), np.int64)
        for number, attribute in enumerate(used.values()):
            numbers[attribute.number] = number
            attribute.number = number
        terms.rows[:, 0] = numbers[terms.rows[:, 0]]
        self._attributes = used
        self._tiles = Tiles()
        self._places = {slot: [] for slot in self._places}
        self._add(terms, self._tiles.add_together(terms, self._bins))

    def _forget_constants(self) -> None:
        for attribute in self._attributes.values():
            if attribute.domain.crowded:
                attribute.domain.keep_only(*self._tiles.terms().bounds_of(attribute.number))

    def _learn(self, terms: Iterable[Term]) -> None:
        """Know the attributes and constants of terms before keys are made of them."""
        constants: dict[str, set[Key]] = {}
        for term in terms:
            names = [name for name, _ in term.sets]
            if len(set(names)) < len(names):
                raise PenstockError("a term names an attribute twice", "intersect the two sets")
            self._signatures[frozenset(names)] += 1
            for name, values in term.sets:
                attribute = self._attribute(name)
                attribute.users += 1
                attribute.added += 1
                type_ = attribute.domain.type
                bounds = [b for i in values.intervals for b in (i.low, i.high) if b is not None]
                constants.setdefault(name, set()).update(ordered_constant(b, type_) for b in bounds)
        for name, found in constants.items():
            attribute = self._attributes[name]
            if (moved := attribute.domain.learn(found)) is not None:
                self._tiles.relabel(attribute.number, moved)
                attribute.binned_for, attribute.added = 0, 1

    def _attribute(self, name: str) -> _Attribute:
        if name not in self._attributes:
            if name not in self._types:
                known = f"known: {', '.join(sorted(self._types))}"
                raise PenstockError(f"predicates use {name}, which has no type", known)
            domain = domain_of(self._types[name])
            self._attributes[name] = _Attribute(len(self._attributes), domain)
        return self._attributes[name]

    def _rows(self, term: Term) -> list[tuple[int, int, int, int]]:
        """A term's predicates as rows of keys; a set that holds nowhere keeps an empty one."""
        rows: list[tuple[int, int, int, int]] = []
        for name, values in term.sets:
            attribute = self._attributes[name]
            null, last = int(values.null), None
            for interval in values.intervals:
                low, high = attribute.domain.bounds(interval)
                if low > high:
                    continue
                if last is not None and low <= last:
                    raise PenstockError("intervals overlap or are not sorted", "unite them first")
                rows.append((attribute.number, low, high, null))
                last = high
            if last is None:
                rows.append((attribute.number, 0, -1, null))
        return rows

    def _rebuild(self, new: TermRows) -> None:
        """Lay out all terms anew, those that begin alike together."""
        terms = self._tiles.terms().followed_by(new)
        for attribute in self._attributes.values():
            bounds = terms.bounds_of(attribute.number)
            self._bin(attribute, bins_for(*bounds))
        self._tiles = Tiles()
        self._places = {slot: [] for slot in self._places}
        self._add(terms, self._tiles.add_together(terms, self._bins))

    def _rebin(self, new: TermRows) -> None:
        """New buckets where the old ones no longer tell the predicates well apart."""
        for attribute in self._attributes.values():
            renewed = 4 * attribute.added > attribute.binned_for
            bounds = new.bounds_of(attribute.number)
            if renewed or (attribute.bins.exact and not attribute.bins.has_cuts(*bounds)):
                self._bin(attribute, bins_for(*self._tiles.terms().bounds_of(attribute.number)))
                self._tiles.put_again(attribute.number, attribute.bins)

    def _bin(self, attribute: _Attribute, bins: Bins) -> None:
        attribute.bins, attribute.binned_for, attribute.added = bins, attribute.users, 0

    def match(self, batch: pa.RecordBatch, together: int) -> tuple[Ints, SmallInts, int]:
        """Offsets by row, positions of slots, and attribute look-ups."""
        if not self.order and batch.num_rows > 1:  # all rows are alike
            _, slots, _ = self.match(batch.slice(0, 1), together)
            return np.arange(batch.num_rows + 1) * slots.size, np.tile(slots, batch.num_rows), 0
        return self._tiles.match(self._now(), *self._read(batch), together)

    def survivors(self, sample: pa.RecordBatch, prefix: int) -> Survivors:
        """What is left of sampled rows after each attribute, as far as buckets can tell."""
        layout, order = self._now(), self.order
        after, candidates = self._tiles.survivors(layout, self._read(sample)[2], prefix)
        found = zip(order[prefix:], candidates[prefix:].tolist(), strict=True)
        return Survivors(sample.num_rows, order, tuple(after.tolist()), dict(found))

    def _now(self) -> Layout:
        """The arrays that matching reads, for the slots and the order of now."""
        if self._layout is None:
            numbers = {name: a.number for name, a in self._attributes.items()}
            self._layout = self._tiles.layout(
                [numbers[name] for name in self.order],
                [a.bins.exact for a in self._attributes.values()],
                self.slot_numbers,
                np.array(sorted(self._several), np.int64),
            )
        return self._layout

    def _read(self, batch: pa.RecordBatch) -> tuple[Ints, Flags, Bytes]:
        """Keys and validity by attribute, buckets by row; attributes of no use stay empty."""
        shape = max(1, len(self._attributes)), batch.num_rows
        keys, valid = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        buckets = np.zeros(shape[::-1], np.uint8)
        for name, attribute in self._attributes.items():
            if attribute.users:
                found, present = attribute.domain.keys(batch.column(name))
                keys[attribute.number], valid[attribute.number] = found, present
                buckets[:, attribute.number] = find_buckets(attribute.bins, found, present)
        return keys, valid, buckets


def build_selection(
    slots: Sequence[SlotSpec], types: Mapping[str, str], order: Sequence[str] = ()
) -> Selection:
    """The slots' predicates; attributes of `order` are looked at first, then those of most use."""
    selection = Selection(types, order)
    selection.change(slots)
    return selection


def select(selection: Selects, batch: pa.RecordBatch, together: int = TOGETHER) -> Matches:
    """Match every row of a batch with all slots.

    `together`: how many attributes (up to 5) are combined between two looks whether any term is
    left; the paper looks after each.
    """
    offsets, slots, visits = selection.match(batch, together)
    return Matches(selection.slot_numbers.size, offsets, slots, visits)


def matches_of(matches: Matches, positions: Ints) -> Matches:
    """The matches of some slots, which are then at positions 0 … of their own."""
    places = np.full(matches.slot_count, -1, np.int32)
    places[positions] = np.arange(positions.size)
    own = places[matches.slots]
    kept = own >= 0
    offsets = np.concatenate([[0], np.cumsum(kept)])[matches.offsets]
    return Matches(positions.size, offsets, own[kept], matches.visits)


def rows_by_slot(matches: Matches) -> tuple[Ints, Ints]:
    """The matches by slot: offsets per slot position, and row indexes, ascending."""
    return _transpose(matches.offsets, matches.slots, matches.slot_count)


@kernel(INTS, SMALL_INTS, INT)
def _transpose(offsets: Ints, slots: SmallInts, slot_count: int) -> tuple[Ints, Ints]:
    slot_offsets = np.zeros(slot_count + 1, np.int64)
    for slot in slots:
        slot_offsets[slot + 1] += 1
    for slot in range(slot_count):
        slot_offsets[slot + 1] += slot_offsets[slot]
    place = slot_offsets.copy()
    rows = np.empty(slots.size, np.int64)
    for row in range(offsets.size - 1):
        for at in range(offsets[row], offsets[row + 1]):
            rows[place[slots[at]]] = row
            place[slots[at]] += 1
    return slot_offsets, rows
