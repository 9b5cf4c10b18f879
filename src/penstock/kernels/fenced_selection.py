"""Selections with geofences: a point may only satisfy the terms of the fences that it is in.

A term that asks for a point in a fence has this fence as its *door*; a point comes through the few
doors that a grid finds, so thousands of fences cost little more than one. Each pair of a row and a
door is a row of its own, with the door's number as two more attributes, of a second `Selection`
that holds these terms; there a term's door is an equality like any other. A term that says no more
than its door is *open*: whoever comes through has its slot. What else a term says of fences (that a
point is in a second one, in none, or no place) is a boolean attribute. Terms without a door are in
a first `Selection`, over the rows themselves. A slot that is found for a row in several ways is
written once.

A number in two digits, as many to each as there are buckets for: so buckets tell thousands of doors
apart, where those of a single attribute would leave a hundred to be compared one by one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.kernels.fence_book import FenceBook
from penstock.kernels.jit import INT, INTS, SMALL_INTS, Ints, SmallInts, kernel
from penstock.kernels.open_doors import OpenDoors
from penstock.kernels.selection import Selection, Survivors
from penstock.plan.specs import FenceTest, Interval, SlotSpec, Term, ValueSet

Sets = tuple[tuple[str, ValueSet], ...]

_DOOR = "__door_high", "__door_low"
_DIGITS = 90  # with the pieces below and above them, fewer than the buckets of an attribute
_MOST_PAIRS = 1 << 20  # of rows and doors that are matched at a time


class FencedSelection:
    """The slots' predicates with those on geofences, in the way of `Selection`.

    Figures about the order of attributes are those of terms without a door.
    """

    def __init__(self, types: Mapping[str, str], order: Sequence[str] = ()) -> None:
        self._computed = dict.fromkeys(_DOOR, "bigint")
        known = ChainMap(self._computed, types)  # type: ignore[arg-type]  # it is never written to
        self._plain = Selection(known, order)
        self._behind = Selection(known, (*_DOOR, *order))
        self._doors, self._truths = FenceBook(), FenceBook()
        self._open = OpenDoors()
        self.unplaced = 0  # rows of the last batch with a point that is no place

    @property
    def slot_numbers(self) -> Ints:
        return self._plain.slot_numbers

    @property
    def usage(self) -> Mapping[frozenset[str], int]:
        return self._plain.usage

    @property
    def order(self) -> tuple[str, ...]:
        return self._plain.order

    @property
    def term_count(self) -> int:
        return self._plain.term_count

    @property
    def columns(self) -> set[str]:
        """All that is read of a batch."""
        used = {*self._plain.order, *self._behind.order} - self._computed.keys()
        return used | self._doors.columns | self._truths.columns

    def reorder(self, order: Sequence[str]) -> None:
        """Evaluate attributes in another order; results stay the same."""
        self._plain.reorder(order)
        self._behind.reorder((*_DOOR, *order))

    def change(self, added: Sequence[SlotSpec], dropped: Collection[int] = ()) -> None:
        """Add and drop slots; the work is that of the change."""
        fenced = [slot for slot in added if any(term.fences for term in slot.terms)]
        split = {slot.slot: [_split(term) for term in slot.terms] for slot in fenced}
        doors = {n: [p.door for p in parts if p.door is not None] for n, parts in split.items()}
        truths = {n: [test for p in parts for test in p.truths] for n, parts in split.items()}
        self._doors.change(doors, dropped)
        self._truths.change(truths, dropped)
        self._computed.clear()  # not replaced: the selections refer to it
        self._computed.update(dict.fromkeys(_DOOR, "bigint"))
        self._computed.update(dict.fromkeys(self._truths.names, "boolean"))
        plain, behind = [slot for slot in added if slot.slot not in split], []
        opened: dict[int, list[int]] = {}
        for slot in fenced:
            parts = split[slot.slot]
            terms = tuple(Term(part.sets) for part in parts if part.door is None)
            plain.append(replace(slot, terms=terms))
            through = [(p.door, p.sets) for p in parts if p.door is not None]
            if terms := tuple(self._through(door, sets) for door, sets in through if sets):
                behind.append(replace(slot, terms=terms))
            if numbers := [self._doors.number(door) for door, sets in through if not sets]:
                opened[slot.slot] = numbers
        self._plain.change(plain, dropped)
        self._behind.change(behind, dropped)
        self._open.change(opened, dropped)

    def _through(self, door: FenceTest, sets: Sets) -> Term:
        digits = divmod(self._doors.number(door), _DIGITS)
        values = (ValueSet((Interval(digit, True, digit, True),), False) for digit in digits)
        return Term((*zip(_DOOR, values, strict=True), *sets))

    def match(self, batch: pa.RecordBatch, together: int) -> tuple[Ints, SmallInts, int]:
        """Offsets by row, positions of slots, and attribute look-ups."""
        truths = self._truths.truths(batch) if len(self._truths) else {}
        batch = _with_columns(batch, truths)
        offsets, slots, visits = self._plain.match(batch, together)
        unplaced = np.zeros(batch.num_rows, np.bool_)
        for truth in truths.values():
            unplaced |= truth.is_null().to_numpy(zero_copy_only=False)
        if not len(self._doors):
            self.unplaced = int(unplaced.sum())
            return offsets, slots, visits
        rows, doors, lost = self._doors.pairs(batch)
        self.unplaced = int((unplaced | lost).sum())
        if len(self._open):
            found_rows, found = self._open.pairs(rows, doors, self.slot_numbers)
            offsets, slots = _merge(offsets, slots, found_rows, found, self.slot_numbers.size)
        if self._behind.slot_numbers.size:
            found_rows, found, more = self._match_behind(batch, rows, doors, together)
            offsets, slots = _merge(offsets, slots, found_rows, found, self.slot_numbers.size)
            visits += more
        return offsets, slots, visits

    def _match_behind(
        self, batch: pa.RecordBatch, rows: Ints, doors: Ints, together: int
    ) -> tuple[Ints, SmallInts, int]:
        """Rows and positions of the slots behind the doors that they come through, and look-ups."""
        found_rows, found_slots, visits = [], [], 0
        positions = np.searchsorted(self.slot_numbers, self._behind.slot_numbers).astype(np.int32)
        for start in range(0, max(1, rows.size), _MOST_PAIRS):
            part = slice(start, start + _MOST_PAIRS)
            pairs = self._behind_doors(batch, rows[part], doors[part])
            ends, found, more = self._behind.match(pairs, together)
            found_rows.append(np.repeat(rows[part], np.diff(ends)))
            found_slots.append(positions[found])
            visits += more
        return np.concatenate(found_rows), np.concatenate(found_slots), visits

    def survivors(self, sample: pa.RecordBatch, prefix: int) -> Survivors:
        """What is left of sampled rows after each attribute, as far as buckets can tell."""
        truths = self._truths.truths(sample) if len(self._truths) else {}
        return self._plain.survivors(_with_columns(sample, truths), prefix)

    def _behind_doors(self, batch: pa.RecordBatch, rows: Ints, doors: Ints) -> pa.RecordBatch:
        """A row for each pair, with the columns that the terms behind doors read."""
        names = [name for name in self._behind.order if name not in _DOOR]
        indexes = pa.array(rows)
        taken = [batch.column(name).take(indexes) for name in names]
        digits = [pa.array(each) for each in np.divmod(doors, _DIGITS)]
        return pa.RecordBatch.from_arrays([*digits, *taken], names=[*_DOOR, *names])


def _with_columns(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    arrays, names = [*batch.columns, *columns.values()], [*batch.schema.names, *columns]
    return pa.RecordBatch.from_arrays(arrays, names=names) if columns else batch


@dataclass(frozen=True, slots=True)
class _Split:
    """A term: its door, other tests as attributes, and all sets but the door's."""

    door: FenceTest | None
    truths: tuple[FenceTest, ...]
    sets: Sets


def _split(term: Term) -> _Split:
    door = next((test for test, values in term.fences if _only_inside(values)), None)
    others = [(test, values) for test, values in term.fences if test is not door]
    sets = (*term.sets, *((test.name, values) for test, values in others))
    return _Split(door, tuple(test for test, _ in others), sets)


def _only_inside(values: ValueSet) -> bool:
    """Whether a set of truth values (1, 0, NULL) has no other member than 1."""
    above = all(
        i.low is not None and (i.low, not i.low_closed) > (0, False) for i in values.intervals
    )
    return above and not values.null


@kernel(INTS, SMALL_INTS, INTS, SMALL_INTS, INT)
def _merge(
    offsets: Ints, slots: SmallInts, rows: Ints, more: SmallInts, slot_count: int
) -> tuple[Ints, SmallInts]:
    """Matches with more of them, whose rows ascend; each slot once for a row."""
    last_row = np.full(slot_count, -1, np.int64)
    merged = np.empty(slots.size + more.size, np.int32)
    ends = np.zeros(offsets.size, np.int64)
    used = at = 0
    for row in range(offsets.size - 1):
        for place in range(offsets[row], offsets[row + 1]):
            last_row[slots[place]] = row
            merged[used] = slots[place]
            used += 1
        while at < rows.size and rows[at] == row:
            if last_row[more[at]] != row:
                last_row[more[at]] = row
                merged[used] = more[at]
                used += 1
            at += 1
        ends[row + 1] = used
    return ends, merged[:used].copy()
