"""Combinations as the ring's plan wants them: packed, and cut into windows if it aggregates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import Ints
from penstock.kernels.join_bucket import Combinations
from penstock.language.render import quote_name
from penstock.plan.catalog import Stream
from penstock.plan.specs import Composition, SlotSpec, joined_name
from penstock.runtime.config import SHIFT_US
from penstock.runtime.joining.shape import chunk_columns

_END = pa.timestamp("us", tz="UTC")


def copied_columns(composition: Composition) -> tuple[str, ...] | None:
    """The joined columns that results consist of; None if Spark has to compute anything."""
    join = composition.join
    assert join is not None
    if composition.kind != "select" or join.residual is not None:
        return None
    plain = {quote_name(name): name for name in composition.shipped}
    names = [plain.get(output.sql) for output in composition.outputs]
    return None if None in names else tuple(name for name in names if name is not None)


@dataclass(frozen=True, slots=True)
class Results:
    composition: Composition
    streams: list[Stream]
    slots: dict[int, SlotSpec]

    def rows(self, combinations: Combinations) -> pa.RecordBatch:
        joined = self._joined(combinations)
        if self.composition.kind == "window":
            return self._in_windows(joined, combinations)
        names = copied_columns(self.composition)
        if names is not None:
            joined = {f"__o{i}": joined[name] for i, name in enumerate(names)}
        return _batch({"__slots": combinations.slots, **joined})

    def _joined(self, combinations: Combinations) -> dict[str, pa.Array]:
        join = self.composition.join
        assert join is not None
        found: dict[str, pa.Array] = {}
        for number, member in enumerate(combinations.members):
            places = chunk_columns(join.inputs[number], self.streams[number])
            for name, place in places.items():
                found[joined_name(number, name)] = _whole(member.column(place))
        return found

    def _in_windows(self, rows: dict[str, pa.Array], combinations: Combinations) -> pa.RecordBatch:
        """Each combination once for each slot and window of the slot that holds it."""
        offsets = combinations.slots.offsets.to_numpy()
        row = np.repeat(np.arange(len(combinations)), np.diff(offsets))
        slot = combinations.slots.values.to_numpy().astype(np.int64)
        times_us = combinations.times_us()
        first, count, range_us, slide_us = self._ends(slot, times_us[row])
        pair = np.repeat(np.arange(row.size), count)
        step = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count)
        end_us = first[pair] + step * slide_us[pair]
        taken = pa.array(row[pair])
        return _batch(
            {
                "__slot": pa.array(slot[pair]),
                "__range_us": pa.array(range_us[pair]),
                "__end": pa.array(end_us + SHIFT_US).cast(_END),
                **{name: column.take(taken) for name, column in rows.items()},
            }
        )

    def _ends(self, slot: Ints, times_us: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The first window end after all times, how many there are, range and slide."""
        known, inverse = np.unique(slot, return_inverse=True)
        specs = [self.slots[int(s)] for s in known]
        windows = [s.window for s in specs if s.window is not None]
        range_us = np.array([w.range_us for w in windows], np.int64)[inverse]
        slide_us = np.array([w.slide_us for w in windows], np.int64)[inverse]
        ranges = [[i.window.range_us if i.window else INT64_MAX for i in s.inputs] for s in specs]
        each = np.array(ranges, np.int64)[inverse]
        lasts = np.where(
            each == INT64_MAX, INT64_MAX, times_us + np.where(each == INT64_MAX, 0, each)
        )
        first = (times_us.max(axis=1) // slide_us + 1) * slide_us
        from_us = np.array([-(2**62) if s.from_us is None else s.from_us for s in specs])[inverse]
        begin = from_us + range_us  # windows that start before `from_us` are not reported
        first = np.maximum(first, -(-begin // slide_us) * slide_us)
        count = np.maximum(0, (lasts.min(axis=1) - first) // slide_us + 1)
        return first, count, range_us, slide_us


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
