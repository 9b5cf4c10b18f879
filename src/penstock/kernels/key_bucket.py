"""A bucket of a join whose results consist of keys: it counts combinations and keeps no tuples.

It takes and gives what `JoinBucket` does. Each slot has a table of its own, since its combinations
are counted over its own tuples and ranges.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.kernels.jit import Ints, SmallInts
from penstock.kernels.join_bucket import (
    MOST_OF_ONE,
    SLOTS,
    TIME,
    Combinations,
    Found,
    Windows,
    key_name,
    too_many,
)
from penstock.kernels.join_keys import join_keys
from penstock.kernels.join_table import MOST_RESULTS, KeyTable
from penstock.kernels.partials import LONG_DIGITS

_KEY = key_name(0)


def counts_suffice(schemas: list[pa.Schema]) -> bool:
    """Whether tuples are nothing but a key whose hash tells all, a time and slots."""
    return all(
        set(schema.names) == {_KEY, TIME, SLOTS} and _is_plain(schema.field(_KEY).type)
        for schema in schemas
    )


def _is_plain(type_: pa.DataType) -> bool:
    """Equal values are the same value (0.0 and -0.0 are not) and hash alike only then."""
    kinds = pa.types
    return bool(
        kinds.is_integer(type_)
        or kinds.is_date(type_)
        or kinds.is_timestamp(type_)
        or kinds.is_boolean(type_)
        or (kinds.is_decimal128(type_) and type_.precision <= LONG_DIGITS)
    )


class KeyBucket:
    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._tables: dict[int, KeyTable] = {}

    @property
    def tables(self) -> list[KeyTable]:
        return list(self._tables.values())

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self.tables)

    @property
    def wasteful(self) -> bool:
        return False

    def expect(self, tuples: int) -> None:
        """Tuples are about to come; of which slots, and how many times, nobody knows."""

    def load(self, input_: int, batch: pa.RecordBatch, windows: Windows) -> None:
        """Take in tuples whose combinations with those before them are known already."""
        self._count(input_, batch, windows)

    def add(self, input_: int, batch: pa.RecordBatch, windows: Windows) -> Iterator[Found]:
        """Take in tuples; the combinations that they complete, in pieces to be asked for.

        Whoever stops asking must not use the bucket again.
        """
        rows, slots, counts = self._count(input_, batch, windows)
        if (large := counts > MOST_OF_ONE).any():
            raise too_many(int(counts[large][0]), slots[large])
        through = np.cumsum(counts)
        begin = 0
        while begin < rows.size:
            done = through[begin - 1] if begin else 0
            end = max(begin + 1, int(np.searchsorted(through, done + MOST_RESULTS, side="right")))
            end = int(np.searchsorted(rows, rows[end - 1], side="right"))  # whole rows
            taken = np.repeat(np.arange(begin, end), counts[begin:end])
            reached = batch.num_rows if end == rows.size else int(rows[end])
            yield Found(self._combinations(batch, rows[taken], slots[taken]), reached)
            begin = end

    def expire(self, limits_us: Ints) -> None:
        """Forget tuples with times below their input's limit."""
        for table in self.tables:
            table.expire(limits_us)

    def _count(
        self, input_: int, batch: pa.RecordBatch, windows: Windows
    ) -> tuple[Ints, SmallInts, Ints]:
        """Which rows complete combinations, for which slot, and how many; rows ascend."""
        self._forget_all_but(windows.slots)
        keys = join_keys([batch.column(_KEY)])
        times_us = batch.column(TIME).to_numpy()
        lists = batch.column(SLOTS)
        row = np.repeat(np.arange(batch.num_rows), lists.value_lengths().to_numpy())
        slot = lists.flatten().to_numpy()
        found = [(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))]
        for number in np.unique(slot).tolist():
            if (table := self._table(number, windows)) is not None:
                rows = row[slot == number]
                streams = np.full(rows.size, input_, np.uint8)
                known = keys.known[rows]
                at, counts = table.add(streams, keys.hashes[rows], known, times_us[rows])
                found.append((rows[at], np.full(at.size, number, np.int32), counts))
        rows, slots, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        return rows[order], slots[order], counts[order]

    def _table(self, slot: int, windows: Windows) -> KeyTable | None:
        """The table of a slot, if it lives."""
        place = int(np.searchsorted(windows.slots, slot))
        if place == windows.slots.size or windows.slots[place] != slot:
            return None
        if slot not in self._tables:
            self._tables[slot] = KeyTable(windows.ranges_us[place])
        return self._tables[slot]

    def _forget_all_but(self, slots: Ints) -> None:
        for gone in self._tables.keys() - set(slots.tolist()):
            del self._tables[gone]

    def _combinations(self, batch: pa.RecordBatch, rows: Ints, slots: SmallInts) -> Combinations:
        keys = pa.record_batch({_KEY: batch.column(_KEY).take(pa.array(rows))})
        offsets = pa.array(np.arange(rows.size + 1, dtype=np.int32))
        lists = pa.ListArray.from_arrays(offsets, pa.array(slots))
        return Combinations([keys] * self._streams, lists)
