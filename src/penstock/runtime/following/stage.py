"""The first stage of an EVENTS ring: where objects were and when, packed by hash of the object.

The stage locates tuples in the regions and tests whether they are late; what happened to an object
is found out behind the shuffle, in the ring's state. A late tuple is one below the punctuation of
its epoch: the object has been followed further already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.fence_events import tuples_schema
from penstock.kernels.join_keys import bucket_of, join_keys, split_by_bucket
from penstock.kernels.windows import LatePairs
from penstock.runtime.late import late_columns, moved
from penstock.runtime.packing import PACKED, to_ipc
from penstock.runtime.report import TaskReport
from penstock.runtime.stage import Reread, Stage
from penstock.schema import arrow_type

LANES = 8  # for the life of a ring: the keys of its state
LANE, VERSION, PUNCTUATION = "__lane", "__version", "__punctuation"
FOLLOWED_ROWS = f"{LANE} int, {VERSION} bigint, {PUNCTUATION} bigint, {PACKED} binary"


@dataclass(slots=True)
class FollowingStage(Stage):
    """Ships (lane, registry version, punctuation, tuples), and every lane the punctuation."""

    def columns(self) -> list[str]:
        """The stream columns that must be read, in the stream's order."""
        following = self.composition.following
        assert following is not None
        join = following.regions
        times = (self.composition.event_time, self.stream.arrival_time)
        needed = {following.by, join.x, join.y, *times}
        return [name for name in self.stream.schema.names if name in needed]

    def run(
        self,
        batches: Iterator[pa.RecordBatch],
        epoch: dict[str, Any],
        report: TaskReport,
        reread: Reread | None = None,
    ) -> Iterator[pa.RecordBatch]:
        yield followed_rows(np.arange(LANES), epoch, pa.nulls(LANES, pa.binary()))
        first_row, late = 0, []
        for batch in batches:
            self.watch(batch, epoch, report)
            told = self._late(batch, epoch, report)
            if told.num_rows:
                late.append(moved(told, first_row))
            first_row += batch.num_rows
            yield from self._packed(self._tuples(batch, epoch, report), epoch)
        if late and reread is not None:
            self._keep_late(pa.Table.from_batches(late), report, reread)

    def _late(
        self, batch: pa.RecordBatch, epoch: dict[str, Any], report: TaskReport
    ) -> pa.RecordBatch:
        """What is told of late tuples: every query has missed them."""
        times = self._times(batch, epoch)
        (rows,) = np.nonzero(times.timed & (times.ts_us < times.closed_us))
        slots = self.selection.slot_numbers
        rows, positions = np.repeat(rows, slots.size), np.tile(np.arange(slots.size), rows.size)
        each = np.ones(rows.size, np.int64)
        at_us = times.ts_us[rows]
        late = LatePairs(rows, positions, at_us, at_us, each, each.astype(np.bool_))
        self._count(report.late, positions)
        self._count(report.lost, positions)
        return late_columns(late, slots[positions], times.ts_us, times.closed_us)

    def _tuples(
        self, batch: pa.RecordBatch, epoch: dict[str, Any], report: TaskReport
    ) -> pa.RecordBatch:
        """Objects, times and regions of the tuples that count."""
        following, placing = self.composition.following, self.placing
        assert following is not None
        assert placing is not None
        assert placing.regions is not None
        times, located = self._times(batch, epoch), placing.regions.locate(batch)
        report.unplaced += int(np.count_nonzero(located.unknown))
        objects = batch.column(following.by).cast(arrow_type(self.types[following.by]))
        named = objects.is_valid().to_numpy(zero_copy_only=False)
        in_time = times.timed & (times.ts_us >= times.closed_us)
        lists = pa.ListArray.from_arrays(
            pa.array(located.offsets.astype(np.int32)), pa.array(located.fences)
        )
        columns = [objects, pa.array(times.ts_us), lists]
        tuples = pa.RecordBatch.from_arrays(columns, schema=tuples_schema(objects.type))
        return tuples.filter(pa.array(named & in_time & ~located.unknown))

    def _packed(self, tuples: pa.RecordBatch, epoch: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """A row for each lane that has tuples."""
        if not tuples.num_rows:
            return
        lanes = bucket_of(join_keys([tuples.column("object")]).hashes, LANES)
        order, offsets = split_by_bucket(lanes, LANES)
        tuples = tuples.take(pa.array(order))
        used = np.flatnonzero(np.diff(offsets))
        parts = (tuples.slice(offsets[lane], offsets[lane + 1] - offsets[lane]) for lane in used)
        blobs = [to_ipc(part, "zstd") for part in parts]
        yield followed_rows(used, epoch, pa.array(blobs, pa.binary()))


def followed_rows(lanes: np.ndarray, epoch: dict[str, Any], blobs: pa.Array) -> pa.RecordBatch:
    """Rows for the ring's state; without tuples they tell the punctuation."""
    same = np.ones(lanes.size, np.int64)
    columns = {
        LANE: pa.array(lanes.astype(np.int32)),
        VERSION: pa.array(same * epoch["version"]),
        PUNCTUATION: pa.array(same * epoch["punctuation_us"]),
        PACKED: blobs,
    }
    return pa.RecordBatch.from_pydict(columns)
