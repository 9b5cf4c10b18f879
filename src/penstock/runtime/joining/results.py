"""Combinations as the ring's plan wants them: packed, and cut into windows if it aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import Ints
from penstock.kernels.join_bucket import Combinations
from penstock.kernels.join_table import reach_us
from penstock.language.render import quote_name
from penstock.plan.catalog import Stream
from penstock.plan.specs import Composition, SlotSpec, joined_name
from penstock.runtime.joining.shape import chunk_columns
from penstock.runtime.joining.turn import MOST_AT_ONCE
from penstock.runtime.joining.windows import ROW_BYTES, rows_at_a_time, window_rows


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

    def rows(self, combinations: Combinations) -> Iterator[pa.RecordBatch]:
        joined = self._joined(combinations)
        if self.composition.kind == "window":
            yield from self._in_windows(joined, combinations)
            return
        names = copied_columns(self.composition)
        if names is not None:
            joined = {f"__o{i}": joined[name] for i, name in enumerate(names)}
        yield _batch({"__slots": combinations.slots, **joined})

    def _joined(self, combinations: Combinations) -> dict[str, pa.Array]:
        join = self.composition.join
        assert join is not None
        found: dict[str, pa.Array] = {}
        for number, member in enumerate(combinations.members):
            places = chunk_columns(join.inputs[number], self.streams[number])
            for name, place in places.items():
                found[joined_name(number, name)] = member.column(place)
        return found

    def _in_windows(
        self, rows: dict[str, pa.Array], combinations: Combinations
    ) -> Iterator[pa.RecordBatch]:
        """Each combination once for each slot and window of the slot that holds it."""
        offsets = combinations.slots.offsets.to_numpy()
        row = np.repeat(np.arange(len(combinations)), np.diff(offsets))
        slot = combinations.slots.values.to_numpy().astype(np.int64)
        times_us = combinations.times_us()[row]
        until_us = self._until(slot, times_us)
        most = rows_at_a_time(_batch(rows))
        found = window_rows(
            slot, times_us.max(axis=1), until_us, self.slots, most, MOST_AT_ONCE // ROW_BYTES
        )
        for pair, own in found:
            taken = pa.array(row[pair])
            yield _batch(own | {name: column.take(taken) for name, column in rows.items()})

    def _until(self, slot: Ints, times_us: Ints) -> Ints:
        """The least time + RANGE."""
        known, inverse = np.unique(slot, return_inverse=True)
        inputs = [self.slots[int(s)].inputs for s in known]
        ranges = [[i.window.range_us if i.window else INT64_MAX for i in each] for each in inputs]
        range_us = np.array(ranges, np.int64).reshape(known.size, -1)[inverse]
        until: Ints = reach_us(times_us, range_us).min(axis=1)
        return until


def _batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
