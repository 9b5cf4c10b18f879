"""The first stage of a JOIN ring's input: tuples that some query wants, packed by hash bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import Ints, SmallInts
from penstock.kernels.join_bucket import SLOTS, TIME, key_name
from penstock.kernels.join_keys import bucket_of, join_keys, split_by_bucket
from penstock.kernels.join_slots import ascending_slots
from penstock.kernels.join_table import reach_us
from penstock.kernels.windows import LatePairs
from penstock.runtime.joining.chunk_codec import same_slots, to_blob
from penstock.runtime.joining.shape import chunk_columns
from penstock.runtime.late import late_columns
from penstock.runtime.packing import PACKED
from penstock.runtime.report import TaskReport
from penstock.runtime.stage import Reread, Stage, micros, valid
from penstock.schema import arrow_type

# for the life of a ring: lanes are the keys of its state, each with some buckets
LANES, BUCKETS = 8, 16
LANE, BUCKET, INPUT, VERSION = "__lane", "__bucket", "__input", "__version"
PUNCTUATION = "__punctuation"
INPUT_ROWS = (
    f"{LANE} int, {BUCKET} int, {INPUT} int, {VERSION} bigint, {PUNCTUATION} bigint,"
    f" {PACKED} binary"
)
ROUND = -1  # in place of an input: no tuples, but those that wait have their turn
_MOST_ROWS, _MOST_BYTES = 1_000_000, 2**28  # that wait to be packed


@dataclass(slots=True)
class InputStage(Stage, ABC):
    """Tests and selects tuples; those that are left are shipped in one of two ways.

    A tuple behind the punctuation is late: partners that came before may be forgotten. It is lost
    if all that it could meet from now on are out of its range.
    """

    number: int = 0  # of the input

    def _rows(
        self, batch: pa.RecordBatch, epoch: dict[str, Any], report: TaskReport
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Tuples that may find partners, and what is kept of late pairs beside the tuples."""
        event_time = self.composition.event_time
        assert event_time is not None
        ts_us, timed = micros(batch, event_time), valid(batch, event_time)
        closed_us = epoch["punctuation_us"]
        self._watch(batch, ts_us, timed, closed_us, None, epoch, report)
        matches = self._select(batch, epoch, report)
        rows = np.repeat(np.arange(batch.num_rows), np.diff(matches.offsets))
        # pairs of tuples and slots: most have nothing to do with being late
        is_late = np.flatnonzero((timed & (ts_us < closed_us))[rows])
        time_us, slots = ts_us[rows[is_late]], matches.slots[is_late]
        range_us = self._ranges_us()[slots]
        reached_us = reach_us(time_us, range_us)
        late = LatePairs(
            rows[is_late],
            slots.astype(np.int64),
            time_us,
            np.minimum(reached_us, closed_us),
            np.ones(is_late.size, np.int64),
            reached_us < closed_us,
        )
        self._count(report.late, late.positions)
        self._count(report.lost, late.positions[late.lost])
        kept = timed[rows]
        kept[is_late[late.lost]] = False
        wanted = matches.slots
        if not kept.all():
            rows, wanted = rows[kept], wanted[kept]
        tuples = self._chunk(batch, ts_us, rows, wanted, closed_us)
        return tuples, late_columns(
            late, self.selection.slot_numbers[late.positions], ts_us, closed_us
        )

    def _ranges_us(self) -> Ints:
        ranges = [INT64_MAX if s.window is None else s.window.range_us for s in self.slots]
        return np.array(ranges, np.int64)

    def _with_slots(self, rows: Ints, positions: SmallInts) -> tuple[Ints, pa.ListArray]:
        """The rows, which ascend, without repetition, and the slots of each, which do too."""
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        kept = rows[starts]
        offsets = pa.array(np.append(starts, rows.size).astype(np.int32))
        slots = self.selection.slot_numbers.astype(np.int32)[positions]
        return kept, ascending_slots(pa.ListArray.from_arrays(offsets, pa.array(slots)))

    @abstractmethod
    def _chunk(
        self, batch: pa.RecordBatch, ts_us: Ints, rows: Ints, positions: SmallInts, closed_us: int
    ) -> pa.RecordBatch:
        """The tuples of these rows as they are shipped, with their slots."""


@dataclass(slots=True)
class PackedStage(InputStage):
    """Ships (bucket, input, registry version, punctuation, tuples)."""

    def run(
        self,
        batches: Iterator[pa.RecordBatch],
        epoch: dict[str, Any],
        report: TaskReport,
        reread: Reread | None = None,
    ) -> Iterator[pa.RecordBatch]:
        waiting = list[pa.RecordBatch]()
        # a dataclass with slots is another class than the one that a bare super() knows
        for tuples in super(PackedStage, self).run(batches, epoch, report, reread):
            waiting.append(tuples)
            rows, nbytes = (sum(sizes) for sizes in zip(*map(_size, waiting), strict=True))
            if rows >= _MOST_ROWS or nbytes >= _MOST_BYTES:
                yield from self._packed(waiting, epoch)
                waiting = []
        yield from self._packed(waiting, epoch)

    def _chunk(
        self, batch: pa.RecordBatch, ts_us: Ints, rows: Ints, positions: SmallInts, closed_us: int
    ) -> pa.RecordBatch:
        """The tuples of these rows as the operator keeps them, with their slots."""
        kept, slots = self._with_slots(rows, positions)
        if kept.size < batch.num_rows:
            batch, ts_us = batch.take(pa.array(kept)), ts_us[kept]
        composition = self.composition
        keys = [
            batch.column(name).cast(arrow_type(type_))
            for name, type_ in zip(composition.keys, composition.key_types, strict=True)
        ]
        columns: dict[str, pa.Array] = {key_name(n): key for n, key in enumerate(keys)}
        columns[TIME] = pa.array(ts_us)
        columns[SLOTS] = slots
        for name, place in chunk_columns(composition, self.stream).items():
            if name == place:
                columns[name] = batch.column(name).cast(arrow_type(self.types[name]))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _packed(
        self, waiting: list[pa.RecordBatch], epoch: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """A row for each bucket that has tuples; NULL keys join nothing."""
        if not any(batch.num_rows for batch in waiting):
            return
        [tuples] = pa.Table.from_batches(waiting).combine_chunks().to_batches()
        names = [key_name(n) for n in range(len(self.composition.keys))]
        keys = join_keys([tuples.column(name) for name in names])
        hashes = keys.hashes
        if not keys.known.all():
            tuples, hashes = tuples.filter(pa.array(keys.known)), hashes[keys.known]
        buckets = bucket_of(hashes, BUCKETS)
        order, offsets = split_by_bucket(buckets, BUCKETS)
        if (slots := same_slots(tuples.column(SLOTS))) is not None:
            tuples = tuples.drop_columns([SLOTS])
        tuples = tuples.take(pa.array(order))
        used = np.flatnonzero(np.diff(offsets))
        chunks = (tuples.slice(offsets[b], offsets[b + 1] - offsets[b]) for b in used)
        blobs = [to_blob(chunk, slots) for chunk in chunks]
        yield _input_rows(
            used,
            self.number,
            epoch["version"],
            epoch["punctuation_us"],
            pa.array(blobs, pa.binary()),
        )


def _size(batch: pa.RecordBatch) -> tuple[int, int]:
    return batch.num_rows, batch.nbytes


def round_rows() -> pa.RecordBatch:
    """A row without tuples for each bucket."""
    return _input_rows(np.arange(BUCKETS), ROUND, 0, INT64_MAX, pa.nulls(BUCKETS, pa.binary()))


def _input_rows(
    buckets: Ints, input_: int, version: int, punctuation_us: int, blobs: pa.Array
) -> pa.RecordBatch:
    same = np.ones(buckets.size, np.int64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array((buckets % LANES).astype(np.int32)),
            pa.array(buckets.astype(np.int32)),
            pa.array(same.astype(np.int32) * input_),
            pa.array(same * version),
            pa.array(same * punctuation_us),
            blobs,
        ],
        names=[LANE, BUCKET, INPUT, VERSION, PUNCTUATION, PACKED],
    )
