"""The tuples of all inputs of a join whose keys lie in one bucket, and what they combine to.

Tuples come as Arrow batches: the key (`key_name(0)`, …), the event time in microseconds (TIME), the
slots that want the tuple (SLOTS), and the columns that results need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kernels.jit import Bytes, Flags, Ints
from penstock.kernels.join_keys import join_keys, same_keys
from penstock.kernels.join_slots import combination_slots
from penstock.kernels.join_table import JoinTable
from penstock.kernels.tuple_store import TupleStore

TIME, SLOTS = "__ts", "__slots"
MOST_OF_ONE = 1 << 23  # combinations that one tuple may complete, if they are small
_MOST_BYTES = 2**30  # of these combinations
_MUCH = 1 << 16  # tuples


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

    members: list[pa.Table]
    slots: pa.ListArray

    def __len__(self) -> int:
        return len(self.slots)

    def times_us(self) -> Ints:
        return _times(self.members)


class Found(NamedTuple):
    """Combinations, and up to which row of the batch all of them have been found."""

    combinations: Combinations
    through: int


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
        self._stores[input_].append(batch)
        streams, hashes, known, times_us, _ = self._arrivals(input_, batch)
        self._table.load(streams, hashes, known, times_us)

    def add(self, input_: int, batch: pa.RecordBatch, windows: Windows) -> Iterator[Found]:
        """Take in tuples; the combinations that they complete, in pieces to be asked for.

        Whoever stops asking must not use the bucket again.
        """
        first = self._stores[input_].count
        self._stores[input_].append(batch)
        streams, hashes, known, times_us, exact = self._arrivals(input_, batch)
        found = self._table.add(streams, hashes, known, times_us, windows.longest_us)
        for numbers, last in _whole_rows(found, input_, self._most_of_one()):
            members = [
                store.take(np.ascontiguousarray(numbers[:, i]))
                for i, store in enumerate(self._stores)
            ]
            combinations = _wanted(members if exact else self._equal(members), windows)
            if len(combinations):
                yield Found(combinations, batch.num_rows if last is None else last - first)

    def _most_of_one(self) -> int:
        size = sum(store.nbytes // max(1, store.held) for store in self._stores)
        return max(1, min(MOST_OF_ONE, _MOST_BYTES // max(1, size)))

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
        self, input_: int, batch: pa.RecordBatch
    ) -> tuple[Bytes, Ints, Flags, Ints, bool]:
        keys = join_keys([batch.column(name) for name in self._keys])
        streams = np.full(batch.num_rows, input_, np.uint8)
        return streams, keys.hashes, keys.known, batch.column(TIME).to_numpy(), keys.exact

    def _equal(self, members: list[pa.Table]) -> list[pa.Table]:
        """The combinations whose keys are really equal, not only their hashes."""
        keys = [[_array(m, name) for name in self._keys] for m in members]
        same = np.logical_and.reduce([same_keys(keys[0], other) for other in keys[1:]])
        return members if same.all() else [m.filter(pa.array(same)) for m in members]


def too_many(most: int) -> PenstockError:
    return PenstockError(
        f"one tuple of a join completes more than {most:,} combinations",
        "DROP the query, then register it with a shorter RANGE or conditions on its partners",
    )


def _whole_rows(
    pieces: Iterator[Ints], input_: int, most: int
) -> Iterator[tuple[Ints, int | None]]:
    """Combinations cut so that all those of an arriving tuple come together.

    With each the number of the tuple whose combinations are not all there yet; None at the end.
    """
    waiting = list[Ints]()
    for piece in pieces:
        first, last = int(piece[0, input_]), int(piece[-1, input_])
        if waiting and waiting[-1][-1, input_] != first:
            yield np.concatenate(waiting), first
            waiting = []
        cut = int(np.searchsorted(piece[:, input_], last))
        if cut:
            yield np.concatenate([*waiting, piece[:cut]]), last
            waiting = []
        waiting.append(piece[cut:])
        if sum(len(w) for w in waiting) > most:
            raise too_many(most)
    if waiting:
        yield np.concatenate(waiting), None


def _wanted(members: list[pa.Table], windows: Windows) -> Combinations:
    lists = [_array(member, SLOTS) for member in members]
    slots = combination_slots(lists, _times(members), windows.slots, windows.ranges_us)
    some = np.diff(slots.offsets.to_numpy()) > 0
    if some.all():
        return Combinations(members, slots)
    kept = pa.array(some)
    return Combinations([member.filter(kept) for member in members], slots.filter(kept))


def _times(members: list[pa.Table]) -> Ints:
    """By combination and input."""
    return np.stack([_array(member, TIME).to_numpy() for member in members], axis=1)


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        return pa.array([], column.type) if not column.num_chunks else column.chunk(0)
    return column
