"""The tuples of all inputs of a join whose keys lie in one bucket, and what they combine to.

Tuples come as Arrow batches: the key (`key_name(0)`, …), the event time in microseconds (TIME), the
slots that want the tuple (SLOTS), and the columns that results need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kernels.bit_table import Arrivals, Bounds
from penstock.kernels.jit import Flags, Ints, SmallInts
from penstock.kernels.join_keys import join_keys, same_keys
from penstock.kernels.join_slots import ascending_slots, combination_slots, slot_bounds
from penstock.kernels.join_table import JoinTable
from penstock.kernels.tuple_store import TupleStore

TIME, SLOTS = "__ts", "__slots"
MOST_OF_ONE = 1 << 23  # combinations that one tuple may complete
_MOST_BYTES = 2**30  # of these combinations
_PIECE_BYTES = 2**26  # of combinations that are put together at once
_MUCH = 1 << 16  # tuples
_AT_ONCE = 1 << 18  # combinations that are looked at
_SAMPLE = 1 << 10  # of combinations that are too many


def key_name(number: int) -> str:
    return f"__k{number}"


@dataclass(frozen=True, slots=True)
class Windows:
    """The slots of a join and how far back each reaches, by slot and input; INT64_MAX: for ever."""

    slots: Ints  # ascending
    ranges_us: Ints

    @property
    def longest_us(self) -> Ints:
        """By input the longest range."""
        longest: Ints = self.ranges_us.max(axis=0, initial=0)
        return longest


@dataclass(frozen=True, slots=True)
class Combinations:
    """Results: the tuples of each input, row by row, and the slots that they are for."""

    members: list[pa.RecordBatch]
    slots: pa.ListArray

    def __len__(self) -> int:
        return len(self.slots)

    def times_us(self) -> Ints:
        return _times(self.members)


class Found(NamedTuple):
    """Combinations, and up to which row of the batch all of them have been found; None if the next
    ones are of the same row."""

    combinations: Combinations
    through: int | None


class JoinBucket:
    def __init__(self, schemas: Sequence[pa.Schema]) -> None:
        self._stores = [TupleStore(schema) for schema in schemas]
        self._table = JoinTable(len(schemas))
        names = schemas[0].names
        self._keys = [name for n in range(len(names)) if (name := key_name(n)) in names]

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + sum(store.nbytes for store in self._stores)

    @property
    def tables(self) -> list[JoinTable]:
        return [self._table]

    def expect(self, tuples: int) -> None:
        """Make room for tuples that are about to come."""
        self._table.expect(tuples)

    def load(self, input_: int, batch: pa.RecordBatch, windows: Windows) -> None:
        """Take in tuples whose combinations with those before them are known already."""
        self._stores[input_].append(_in_order(batch))
        arrivals, bounds, _ = self._arrivals(input_, batch, windows)
        self._table.load(arrivals, windows.longest_us, bounds)

    def add(self, input_: int, batch: pa.RecordBatch, windows: Windows) -> Iterator[Found]:
        """Take in tuples; the combinations that they complete, in pieces to be asked for.

        Whoever stops asking must not use the bucket again.
        """
        first = self._stores[input_].count
        self._stores[input_].append(_in_order(batch))
        arrivals, bounds, exact = self._arrivals(input_, batch, windows)
        found = self._table.add(arrivals, windows.longest_us, bounds)

        def wanted(numbers: Ints) -> Ints:
            return self._wanted(numbers, exact, windows)

        for whole, last in self._whole_rows(found, input_, wanted):
            if self._too_large(whole, input_) is not None:
                whole = wanted(whole)
            if (one := self._too_large(whole, input_)) is not None:
                some = whole[one][:: 1 + len(whole[one]) // _SAMPLE]
                slots = self._combinations(some, exact, windows).slots
                raise too_many(len(whole[one]), slots.flatten().to_numpy())
            for numbers, following in self._pieces(whole, input_):
                combinations = self._combinations(numbers, exact, windows)
                if len(combinations):
                    reached = last if following is None else following
                    through = batch.num_rows if reached is None else reached - first
                    splits = following is not None and following == numbers[-1, input_]
                    yield Found(combinations, None if splits else through)

    def _combinations(self, numbers: Ints, exact: bool, windows: Windows) -> Combinations:
        """Those of the combinations, given by numbers, that somebody wants."""
        members = self._members(numbers)
        slots, some = self._slots(members, exact, windows)
        if some.all():
            return Combinations(members, slots)
        kept = pa.array(some)
        return Combinations([member.filter(kept) for member in members], slots.filter(kept))

    def _wanted(self, numbers: Ints, exact: bool, windows: Windows) -> Ints:
        """The same by numbers alone: columns of results are not looked at."""
        found, names = [numbers[:0]], [TIME, SLOTS, *([] if exact else self._keys)]
        for begin in range(0, len(numbers), _AT_ONCE):
            piece = numbers[begin : begin + _AT_ONCE]
            _, some = self._slots(self._members(piece, names), exact, windows)
            found.append(piece[some])
        return np.concatenate(found)

    def _members(self, numbers: Ints, names: Sequence[str] | None = None) -> list[pa.RecordBatch]:
        """The tuples of combinations, by input."""
        return [
            store.take(np.ascontiguousarray(numbers[:, i]), names)
            for i, store in enumerate(self._stores)
        ]

    def _slots(
        self, members: list[pa.RecordBatch], exact: bool, windows: Windows
    ) -> tuple[pa.ListArray, Flags]:
        """Of each combination the slots that want it, and whether there are any."""
        lists = [member.column(SLOTS) for member in members]
        slots = combination_slots(lists, _times(members), windows.slots, windows.ranges_us)
        some = np.diff(slots.offsets.to_numpy()) > 0
        return slots, some if exact else some & self._equal(members)

    def _whole_rows(
        self, pieces: Iterator[Ints], input_: int, wanted: Callable[[Ints], Ints]
    ) -> Iterator[tuple[Ints, int | None]]:
        """Combinations cut so that all those of an arriving tuple come together.

        With each the number of the tuple whose combinations are not all there yet; None at the end.
        Where they get too many, those that nobody wants are left out: bounds do not rule out all.
        """
        kept, waiting = list[Ints](), list[Ints]()  # kept: it is known that they are wanted
        row = None  # that these are of
        for piece in pieces:
            first, last = int(piece[0, input_]), int(piece[-1, input_])
            if row is not None and row != first:
                yield np.concatenate([*kept, *waiting]), first
                kept, waiting = [], []
            cut = int(np.searchsorted(piece[:, input_], last))
            if cut:
                yield np.concatenate([*kept, *waiting, piece[:cut]]), last
                kept, waiting = [], []
            row = last
            waiting.append(piece[cut:])
            if self._are_many([*kept, *waiting]):
                kept.append(wanted(np.concatenate(waiting)))
                waiting = []
                if self._are_many(kept):
                    break  # more than anybody gets to see
        if row is not None:
            yield np.concatenate([*kept, *waiting]), None

    def _are_many(self, numbers: Sequence[Ints]) -> bool:
        """Whether these are more than one tuple may complete."""
        count = sum(map(len, numbers))
        if count <= MOST_OF_ONE and count * self._widest > _MOST_BYTES:
            return sum(int(self._sizes(each).sum()) for each in numbers) > _MOST_BYTES
        return count > MOST_OF_ONE

    def _too_large(self, numbers: Ints, input_: int) -> slice | None:
        """The combinations of an arriving tuple that has more of them than there may be."""
        if not len(numbers):
            return None
        arriving = numbers[:, input_]
        first = np.flatnonzero(np.diff(arriving, prepend=arriving[0] - 1))
        counts = np.diff(first, append=len(numbers))
        large = counts > MOST_OF_ONE
        if len(numbers) * self._widest > _MOST_BYTES:
            large |= np.add.reduceat(self._sizes(numbers), first) > _MOST_BYTES
        if not large.any():
            return None
        at = int(large.argmax())
        return slice(int(first[at]), int(first[at] + counts[at]))

    @property
    def _widest(self) -> int:
        return sum(store.widest for store in self._stores)

    def _sizes(self, numbers: Ints) -> Ints:
        """Bytes of each combination."""
        sizes = [store.sizes(numbers[:, i]) for i, store in enumerate(self._stores)]
        total: Ints = np.sum(sizes, axis=0)
        return total

    def _pieces(self, numbers: Ints, input_: int) -> Iterator[tuple[Ints, int | None]]:
        """Combinations in pieces of bounded size, those of a tuple together where they fit.

        With each the number of the arriving tuple that comes next; None at the end.
        """
        if len(numbers) * self._widest <= _PIECE_BYTES:
            yield numbers, None
            return
        through = np.cumsum(self._sizes(numbers))
        arriving = np.ascontiguousarray(numbers[:, input_])
        begin = 0
        while begin < len(numbers):
            done = through[begin - 1] if begin else 0
            end = int(np.searchsorted(through, done + _PIECE_BYTES, side="right"))
            if end < len(numbers):
                whole = int(np.searchsorted(arriving, arriving[end]))
                end = whole if whole > begin else max(end, begin + 1)
            yield numbers[begin:end], int(arriving[end]) if end < len(numbers) else None
            begin = end

    @property
    def wasteful(self) -> bool:
        """Whether most of the tuples are dead; one with a time far ahead keeps those after it."""
        held = sum(store.held for store in self._stores)
        return held > 4 * int(self._table.live.sum()) + _MUCH

    def expire(self, limits_us: Ints) -> None:
        """Forget tuples with times below their input's limit."""
        self._table.expire(limits_us)
        for store, first in zip(self._stores, self._table.first_kept.tolist(), strict=True):
            store.drop_before(first)

    def _arrivals(
        self, input_: int, batch: pa.RecordBatch, windows: Windows
    ) -> tuple[Arrivals, Bounds | None, bool]:
        """Tuples as the table takes them, and whether equal hashes are equal keys."""
        keys = join_keys([batch.column(name) for name in self._keys])
        streams = np.full(batch.num_rows, input_, np.uint8)
        known, times_us, bounds = keys.known, batch.column(TIME).to_numpy(), None
        if not _all_want(batch.column(SLOTS), windows.slots):
            ranges_us = np.ascontiguousarray(windows.ranges_us[:, input_])
            bounds = slot_bounds(batch.column(SLOTS), times_us, windows.slots, ranges_us)
            known = known & (bounds.wanted != 0)  # what nobody wants is not looked at
        return Arrivals(streams, keys.hashes, known, times_us), bounds, keys.exact

    def _equal(self, members: list[pa.RecordBatch]) -> Flags:
        """The combinations whose keys are really equal, not only their hashes."""
        keys = [[member.column(name) for name in self._keys] for member in members]
        same: Flags = np.logical_and.reduce([same_keys(keys[0], other) for other in keys[1:]])
        return same


class TooManyCombinations(PenstockError):
    """More than a micro-batch can carry, and nothing that could be put off; for whom, if known.

    fewer: what makes them fewer, beside conditions.
    """

    def __init__(
        self, message: str, slots: Sequence[int] = (), fewer: str = "a shorter RANGE"
    ) -> None:
        super().__init__(message)
        self.slots, self.fewer = list(slots), fewer


def too_many(count: int, slots: SmallInts) -> TooManyCombinations:
    """slots: of some of the combinations; who wants few of them is not to blame."""
    message = f"one tuple of a join completes {count:,} combinations or more"
    return TooManyCombinations(message, most_frequent(slots))


def most_frequent(slots: SmallInts) -> list[int]:
    """Those that are there at least half as often as the one that is most often.

    >>> most_frequent(np.array([1, 2, 1, 3, 3, 1]))
    [1, 3]
    """
    known, counts = np.unique(slots, return_counts=True)
    found: list[int] = known[2 * counts > counts.max(initial=0)].tolist()
    return found


def _all_want(lists: pa.ListArray, slots: Ints) -> bool:
    """Whether every tuple is one slot's, and nobody else's."""
    values = lists.flatten().to_numpy()
    return slots.size == 1 and values.size == len(lists) and bool((values == slots[0]).all())


def _in_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The tuples with their slots ascending; in older states they are in any order."""
    slots = batch.column(SLOTS)
    if (ordered := ascending_slots(slots)) is slots:
        return batch
    return batch.set_column(batch.schema.get_field_index(SLOTS), batch.schema.field(SLOTS), ordered)


def _times(members: list[pa.RecordBatch]) -> Ints:
    """By combination and input."""
    return np.stack([member.column(TIME).to_numpy() for member in members], axis=1)
