"""The first stage of every ring: Arrow batches in, what the ring needs of them out.

One function for both ways in: inside the reader of penstock's own sources, and in `mapInArrow` for
any other DataFrame. Given an epoch it does the late test, the selection, and then either ships
matching tuples with the slots they belong to, or turns them into window rows, pre-aggregated where
it can. What it saw (delays, late tuples) goes to the engine in one report per task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.control.disorder import SOURCES
from penstock.control.ordering import OrderFacts, merge_order_facts
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import (
    UNKNOWN_US,
    DelayFacts,
    disorder_facts,
    facts_by_source,
    merge_facts,
)
from penstock.kernels.fenced_selection import FencedSelection
from penstock.kernels.placing import Placing
from penstock.kernels.selection import Matches, select
from penstock.kernels.windows import expand
from penstock.plan.catalog import Stream
from penstock.plan.columns import column_types
from penstock.plan.having import constant_name
from penstock.plan.specs import Composition, SlotSpec
from penstock.runtime.config import ORIGIN, SHIFT_US, TRUE_END
from penstock.runtime.late import ROW, each_once, late_columns, moved
from penstock.runtime.packing import pack, packed_columns, packed_name
from penstock.runtime.per_source import Sources
from penstock.runtime.pre_aggregation import PreAggregation
from penstock.runtime.report import TaskReport
from penstock.runtime.shown import ShownColumns
from penstock.runtime.window_rows import END
from penstock.schema import arrow_type

# rows that are looked at closely to find a better order of attributes, by the terms they cost
_SAMPLE_TERMS = 2_000_000
_MOST_SAMPLED, _LEAST_SAMPLED = 256, 8
# pairs of tuple and query that a piece of a batch may have: they are held in memory, as int32
_MOST_PAIRS = 2**28
_LEAST_ROWS = 1024
_JOINED_PAIRS = 64  # that a joined tuple counts for at least: it has columns
_FEW_SIGNATURES = 256  # are told with every report, more only when they change
Reread = Callable[[list[str]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _Times:
    """Of each tuple: its event time if it has one, and up to where its windows are closed."""

    ts_us: np.ndarray
    timed: np.ndarray
    closed_us: int | np.ndarray
    sources: Sources | None


@dataclass(slots=True)
class Stage:
    """A ring's first stage, at one registry version; `change` brings it to a later one."""

    composition: Composition
    stream: Stream
    types: dict[str, str]
    selection: FencedSelection
    packed: tuple[str, ...] | None  # the columns that leave it, packed; None: all shipped, as rows
    placing: Placing | None = None  # what gives tuples columns of places
    version: int = 0
    slots: list[SlotSpec] = field(default_factory=list)  # with windows, without terms
    usage_told: int = -1  # version whose use of attributes the engine knows
    watches: bool = False  # of a selection: whether its disorder matters to others
    shown: ShownColumns | None = None  # None: all that there are
    folding: PreAggregation | None = None  # of windows

    @classmethod
    def of(cls, composition: Composition, stream: Stream, placing: Placing | None = None) -> Self:
        """A stage without slots."""
        types = column_types(composition, stream)
        types |= {a.name: a.type for a in composition.derived}
        packed = packed_columns(composition, stream)
        any_columns = composition.any_columns and composition.kind == "select"
        stage = cls(composition, stream, types, FencedSelection(types), packed, placing)
        stage.shown = ShownColumns() if any_columns else None
        if composition.preaggregated:
            stage.folding = PreAggregation(composition, types)
        return stage

    def change(self, version: int, added: Sequence[SlotSpec], dropped: Sequence[int] = ()) -> None:
        """Go on to another version; the work is that of what changed."""
        for slot in added:
            self.types.update({a.name: a.type for a in slot.derived})
        if added or dropped:
            self.selection.change(added, dropped)
            if self.shown is not None:
                self.shown.change(added, dropped)
        if self.composition.kind != "select":
            kept = {s.slot: s for s in self.slots} | {s.slot: replace(s, terms=()) for s in added}
            self.slots = [kept[slot] for slot in self.selection.slot_numbers.tolist()]
        if self.folding is not None:
            self.folding.change(self.slots)
        self.version = version

    def columns(self) -> list[str]:
        """The stream columns that must be read for these slots, in the stream's order."""
        needed = self._needed() | self.composition.placed_by
        found = [n for n in self.stream.schema.names if n in needed]
        return found or list(self.composition.shipped[:1])  # records count also when nobody asks

    def _needed(self) -> set[str]:
        composition = self.composition
        needed = self.selection.columns | {name for _, name in self._leaving()}
        if self.folding is not None:
            needed |= self.folding.columns
        if composition.kind == "input":
            needed |= set(composition.keys)
        if composition.kind != "select":
            roles = (composition.event_time, self.stream.arrival_time, composition.per)
            needed |= {c for c in roles if c}
        elif self.stream.event_time is not None:
            needed.add(self.stream.event_time)
            if self.watches and self.stream.arrival_time is not None:
                needed.add(self.stream.arrival_time)
        return needed

    def run(
        self,
        batches: Iterator[pa.RecordBatch],
        epoch: dict[str, Any],
        report: TaskReport,
        reread: Reread | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The stage's output; fills `report`. `reread` yields the same rows with other columns."""
        batches = self.pieces(batches)
        if self.composition.kind == "select":
            for batch in batches:
                if not self.composition.placed_first:
                    self.watch(batch, epoch, report)
                batch, _ = self._placed(batch, report)
                matches = self._select(batch, epoch, report)
                if len(matches.slots):
                    yield from self._ship(batch, matches)
            return
        first_row, late = 0, []
        for batch in batches:
            result, pairs = self._rows(batch, epoch, report)
            if pairs.num_rows:
                late.append(moved(pairs, first_row))
            first_row += batch.num_rows
            if result.num_rows:
                yield result
        if late and reread is not None:
            self._keep_late(pa.Table.from_batches(late), report, reread)

    def watch(self, batch: pa.RecordBatch, epoch: dict[str, Any], report: TaskReport) -> None:
        """Note how far tuples have come, and how far out of order they are.

        Of a selection only if others go by that.
        """
        event_time = self.stream.event_time
        if self.composition.kind == "select" and self.watches and event_time is not None:
            ts_us, mask = micros(batch, event_time), valid(batch, event_time)
            self._watch(batch, ts_us, mask, epoch["punctuation_us"], None, epoch, report)
        elif self.composition.kind == "select":
            seen = progress_of(batch, self.stream, epoch, report)
            report.facts = merge_facts(report.facts, seen)
        else:
            self._watch_times(batch, self._times(batch, epoch), epoch, report)

    def _placed(
        self, batch: pa.RecordBatch, report: TaskReport
    ) -> tuple[pa.RecordBatch, np.ndarray | None]:
        """Tuples with their columns of places, and where each comes from if it may come twice."""
        if self.composition.placed_first:
            return batch, batch.column(ORIGIN).to_numpy()
        if self.placing is None:
            return batch, None
        placed = self.placing.place(batch, self._needed())
        report.unplaced += placed.unplaced
        return placed.batch, placed.origins

    def pieces(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches cut so that even if every tuple matched every query, the matches would fit."""
        pairs = max(1, self.selection.slot_numbers.size)
        if self.placing is not None:  # a tuple may come out more than once, with all its columns
            pairs = max(pairs, _JOINED_PAIRS) * self.placing.most
        rows = max(_LEAST_ROWS, _MOST_PAIRS // pairs)
        for batch in batches:
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)

    def _select(self, batch: pa.RecordBatch, epoch: dict[str, Any], report: TaskReport) -> Matches:
        """Match a batch, in the epoch's order of attributes, and note what a better one needs."""
        selection = self.selection
        selection.reorder(epoch["order"])
        matches = select(selection, batch)
        report.unplaced += selection.unplaced
        terms = selection.term_count
        rows = min(_MOST_SAMPLED, max(_LEAST_SAMPLED, _SAMPLE_TERMS // max(1, terms)))
        every = -(-batch.num_rows // rows)
        if terms and every:
            sample = batch.take(pa.array(np.arange(0, batch.num_rows, every)))
            prefix = epoch["prefix"]
            left = selection.survivors(sample, len(selection.order) if prefix is None else prefix)
            seen = OrderFacts(
                left.rows,
                terms,
                left.order,
                left.after,
                prefix,
                left.candidates,
                batch.num_rows,
                matches.visits,
                self._usage_to_tell(),
            )
            report.order = merge_order_facts(report.order, seen)
        return matches

    def _usage_to_tell(self) -> Mapping[frozenset[str], int]:
        usage = self.selection.usage
        if len(usage) > _FEW_SIGNATURES and self.usage_told == self.version:
            return {}
        self.usage_told = self.version
        return dict(usage)

    def _ship(self, batch: pa.RecordBatch, matches: Matches) -> Iterator[pa.RecordBatch]:
        """The tuples that any query wants, with the slots of those that do."""
        counts = np.diff(matches.offsets)
        kept = np.flatnonzero(counts)
        ids = self.selection.slot_numbers.astype(np.int32)[matches.slots]
        offsets = np.concatenate([[0], np.cumsum(counts[kept])]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
        leaving = self._leaving()
        if self.shown is None:
            columns = [batch.column(name).take(pa.array(kept)) for _, name in leaving]
        else:
            columns = self.shown.taken(batch, leaving, kept, matches, self.selection.slot_numbers)
        if self.packed is None:
            names = [name for _, name in leaving]
            yield pa.RecordBatch.from_arrays([lists, *columns], names=["__slots", *names])
            return
        types = [arrow_type(self.types[name]) for _, name in leaving]
        columns = [column.cast(type_) for column, type_ in zip(columns, types, strict=True)]
        names = [packed_name(place) for place, _ in leaving]
        yield from pack(pa.RecordBatch.from_arrays([lists, *columns], names=["__slots", *names]))

    def _leaving(self) -> list[tuple[int, str]]:
        """The columns of tuples that leave the stage, with their places."""
        columns = self.composition.shipped if self.packed is None else self.packed
        places = range(len(columns)) if self.shown is None else self.shown.places
        return [(place, columns[place]) for place in places]

    def _rows(
        self, batch: pa.RecordBatch, epoch: dict[str, Any], report: TaskReport
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Rows for the ring, and what is kept of late pairs beside the tuples themselves."""
        times = self._times(batch, epoch)
        if not self.composition.placed_first:
            self._watch_times(batch, times, epoch, report)
        batch, origins = self._placed(batch, report)
        if origins is not None:
            times = self._times(batch, epoch)
        ts_us, mask, closed_us = times.ts_us, times.timed, times.closed_us
        matches = self._select(batch, epoch, report)
        if self.folding is not None:
            rows = self.folding.rows(batch, matches, ts_us, closed_us, mask)
        else:
            rows = expand(
                batch, matches, self.slots, ts_us, closed_us, self.composition.shipped, mask
            )
        late = rows.late if origins is None else each_once(rows.late, origins)
        self._count(report.late, late.positions)
        self._count(report.lost, late.positions[late.lost])
        slots = self.selection.slot_numbers[late.positions]
        told = late_columns(late, slots, ts_us, closed_us)
        if origins is not None and not self.composition.placed_first:
            told = told.set_column(0, ROW, pa.array(origins[late.rows]))
        return self._shape(rows.batch, epoch), told

    def _times(self, batch: pa.RecordBatch, epoch: dict[str, Any]) -> _Times:
        event_time, per = self.composition.event_time, self.composition.per
        assert event_time is not None
        sources = Sources(batch.column(per), epoch) if per else None
        closed_us = epoch["punctuation_us"]
        if sources is not None and self.composition.apart:
            closed_us = sources.closed_us(epoch["punctuation_us"])
        return _Times(micros(batch, event_time), valid(batch, event_time), closed_us, sources)

    def _watch_times(
        self, batch: pa.RecordBatch, times: _Times, epoch: dict[str, Any], report: TaskReport
    ) -> None:
        last_us = self._last_end(times.closed_us)
        self._watch(batch, times.ts_us, times.timed, last_us, times.sources, epoch, report)

    def _last_end(self, closed_us: int | np.ndarray) -> int | np.ndarray:
        """The last window end that is closed: a tuple before it has missed a window."""
        slides = {s.window.slide_us for s in self.slots if s.window is not None} or {1}
        if isinstance(closed_us, int):
            return max(closed_us // slide * slide for slide in slides)
        return np.max([closed_us // slide * slide for slide in slides], axis=0)

    def _watch(
        self,
        batch: pa.RecordBatch,
        ts_us: np.ndarray,
        mask: np.ndarray,
        closed_us: int | np.ndarray,
        sources: Sources | None,
        epoch: dict[str, Any],
        report: TaskReport,
    ) -> None:
        """Note how far out of order the batch is, in all and by source."""
        clock_us = max(epoch["clock_us"], report.facts.clock_us)
        arrival_us = None
        if (arrival := self.stream.arrival_time) is not None:
            arrived = valid(batch, arrival)
            if arrived.any() or clock_us != UNKNOWN_US:  # else only event times can start the clock
                arrival_us = np.where(arrived, micros(batch, arrival), UNKNOWN_US)
        trust_us = epoch["trust_us"]
        facts = disorder_facts(
            ts_us, mask, arrival_us, clock_us, trust_us, closed_us, epoch["newest"]
        )
        if sources is not None:
            each_us = np.broadcast_to(np.asarray(closed_us, np.int64), ts_us.shape)
            report.add_sources(
                facts_by_source(
                    *sources.bounded(2 * SOURCES),
                    ts_us,
                    mask,
                    arrival_us,
                    clock_us,
                    trust_us,
                    np.ascontiguousarray(each_us),
                )
            )
        report.facts = merge_facts(report.facts, facts)

    def _count(self, counts: dict[int, int], positions: np.ndarray) -> None:
        """Add to each slot's count how often its position occurs."""
        found = np.bincount(positions)
        for position in np.flatnonzero(found):
            slot = int(self.selection.slot_numbers[position])
            counts[slot] = counts.get(slot, 0) + int(found[position])

    def _shape(self, rows: pa.RecordBatch, epoch: dict[str, Any]) -> pa.RecordBatch:
        """Give window rows the columns that the ring's plan expects."""
        by_number = {s.slot: s for s in self.slots if s.window is not None}
        slot = rows.column("__slot").to_numpy()
        known, inverse = np.unique(slot, return_inverse=True)
        specs = [by_number[number] for number in known.tolist()]
        range_us = np.array([s.window.range_us for s in specs if s.window], np.int64)[inverse]
        end_us = rows.column("__end_us").to_numpy()
        closing_us = end_us
        if self.composition.apart:
            column = rows.column(self._source_column())
            closing_us = Sources(column, epoch).closing_us(end_us)
        end = pa.array(closing_us + SHIFT_US).cast(END)
        fixed = {"__slot": rows.column("__slot"), "__range_us": pa.array(range_us), "__end": end}
        if self.composition.apart:
            fixed[TRUE_END] = pa.array(end_us)
        for place, type_ in enumerate(self.composition.constants):
            constants = pa.array([s.constants[place] for s in specs], arrow_type(type_))
            fixed[constant_name(place)] = constants.take(pa.array(inverse))
        rest = dict(zip(rows.schema.names[2:], rows.columns[2:], strict=True))
        return pa.RecordBatch.from_pydict(fixed | rest)

    def _source_column(self) -> str:
        """What the column that tells sources apart is called in window rows."""
        per = str(self.composition.per)
        return per if self.folding is None else f"__k{self.composition.keys.index(per)}"

    def _keep_late(self, late: pa.Table, report: TaskReport, reread: Reread) -> None:
        """Late tuples with all their columns; they are few, so they are read again when needed."""
        names, first = list(self.stream.schema.names), 0
        late = late.sort_by(ROW)
        rows, extra = late.column(ROW).to_numpy(), late.drop_columns(ROW).combine_chunks()
        for batch in reread(names):
            begin, end = np.searchsorted(rows, [first, first + batch.num_rows])
            if begin < end:
                tuples = batch.select(names).take(pa.array(rows[begin:end] - first))
                columns = extra.slice(begin, end - begin).to_batches()[0].columns
                report.late_rows.append(
                    pa.RecordBatch.from_arrays(
                        [*tuples.columns, *columns], names=[*names, *extra.column_names]
                    )
                )
            first += batch.num_rows


def progress_of(
    batch: pa.RecordBatch, stream: Stream, epoch: dict[str, Any], report: TaskReport
) -> DelayFacts:
    """How far a selected stream has come: where later window queries may begin."""
    if (event_time := stream.event_time) is None:
        return DelayFacts(batch.num_rows)
    clock_us = max(epoch["clock_us"], report.facts.clock_us)
    ts_us, mask = micros(batch, event_time), valid(batch, event_time)
    return disorder_facts(ts_us, mask, None, clock_us, epoch["trust_us"], NEVER_US)


def micros(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """Event times as int64 microseconds; NULL becomes 0 and is masked by the caller."""
    return batch.column(column).cast(pa.int64()).fill_null(0).to_numpy()


def valid(batch: pa.RecordBatch, column: str) -> np.ndarray:
    return batch.column(column).is_valid().to_numpy(zero_copy_only=False)
