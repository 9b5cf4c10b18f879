"""The first stage of every ring: Arrow batches in, what the ring needs of them out.

One function for both ways in: inside the reader of penstock's own sources, and in `mapInArrow` for
any other DataFrame. Given an epoch it does the late test, the selection, and then either ships
matching tuples with the slots they belong to, or turns them into window rows, pre-aggregated where
it can. What it saw (delays, late tuples) goes to the engine in one report per task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.control.punctuation import DelayFacts, merge_facts
from penstock.kernels.delays import disorder_facts
from penstock.kernels.selection import Matches, Selection, build_selection, select
from penstock.kernels.windows import expand, preaggregate
from penstock.plan.catalog import Stream
from penstock.plan.codec import composition_from, slot_from, stream_from
from penstock.plan.specs import Composition, SlotSpec
from penstock.runtime.config import SHIFT_US, StageConfig
from penstock.runtime.service import ask
from penstock.schema import arrow_type

END = pa.timestamp("us", tz="UTC")

ROWS_PER_CALL = 10_000  # a bad record has at most 10,000 characters: 100 MB at the worst
Reread = Callable[[list[str]], Iterator[pa.RecordBatch]]


@dataclass(slots=True)
class TaskReport:
    """What one task of one epoch saw."""

    facts: DelayFacts = field(default_factory=DelayFacts)
    late: dict[int, int] = field(default_factory=dict)
    late_rows: list[pa.RecordBatch] = field(default_factory=list)
    bad: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    def send(self, config: StageConfig, number: int, part: int) -> None:
        """Tell the engine: first the rows, in pieces that the service takes, then the figures."""
        rows = [("late", "", batch) for batch in self.late_rows]
        rows += [("bad", piece, batch) for piece, found in self.bad.items() for batch in found]
        whole = {"ring": config.ring, "number": number, "part": part}
        position = 0
        for kind, piece, batch in rows:
            for start in range(0, batch.num_rows, ROWS_PER_CALL):
                body = _ipc([batch.slice(start, ROWS_PER_CALL)])
                message = {**whole, "kind": kind, "piece": piece, "position": position}
                ask(config.address, "rows", message, [body])
                position += 1
        ask(
            config.address,
            "report",
            {**whole, "facts": asdict(self.facts), "late": self.late, "pieces": position},
        )


def _ipc(batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


@dataclass(frozen=True, slots=True)
class Stage:
    """A ring's first stage, compiled for one registry version."""

    composition: Composition
    stream: Stream
    version: int
    slots: tuple[SlotSpec, ...]
    selection: Selection
    types: dict[str, str]

    @property
    def predicate_columns(self) -> set[str]:
        return {name for s in self.slots for term in s.terms for name, _ in term.sets}

    def columns(self) -> list[str]:
        """The stream columns that must be read for these slots, in the stream's order."""
        composition = self.composition
        needed = self.predicate_columns | set(composition.shipped)
        needed |= {p.argument for p in composition.partials if p.argument is not None}
        if composition.preaggregated:
            needed |= set(composition.keys)
        if composition.kind == "window":
            needed |= {c for c in (composition.event_time, self.stream.arrival_time) if c}
        elif self.stream.event_time is not None:
            needed.add(self.stream.event_time)
        return [n for n in self.stream.schema.names if n in needed]

    def run(
        self,
        batches: Iterator[pa.RecordBatch],
        epoch: dict[str, Any],
        report: TaskReport,
        reread: Reread | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The stage's output; fills `report`. `reread` yields the same rows with other columns."""
        if self.composition.kind == "select":
            for batch in batches:
                report.facts = merge_facts(report.facts, self._seen(batch))
                matches = select(self.selection, batch)
                if len(matches.slots):
                    yield self._ship(batch, matches)
            return
        first_row, late_rows = 0, []
        for batch in batches:
            result, late = self._window_rows(batch, epoch, report)
            late_rows.append(late + np.array([first_row, 0]))
            first_row += batch.num_rows
            if result.num_rows:
                yield result
        self._keep_late(np.concatenate(late_rows) if late_rows else None, epoch, report, reread)

    def _seen(self, batch: pa.RecordBatch) -> DelayFacts:
        """How far a selected stream has come: where later window queries may begin."""
        latest = None
        if self.stream.event_time is not None:
            times = batch.column(self.stream.event_time).cast(pa.int64())
            latest = pc.max(times).as_py()
        return DelayFacts(batch.num_rows, latest)

    def _ship(self, batch: pa.RecordBatch, matches: Matches) -> pa.RecordBatch:
        counts = np.diff(matches.offsets)
        kept = np.flatnonzero(counts)
        ids = np.array([s.slot for s in self.slots], np.int32)[matches.slots]
        offsets = np.concatenate([[0], np.cumsum(counts[kept])]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
        rows = batch.select(list(self.composition.shipped)).take(pa.array(kept))
        names = ["__slots", *self.composition.shipped]
        return pa.RecordBatch.from_arrays([lists, *rows.columns], names=names)

    def _window_rows(
        self, batch: pa.RecordBatch, epoch: dict[str, Any], report: TaskReport
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        event_time = self.composition.event_time
        assert event_time is not None
        ts_us, mask = _micros(batch, event_time), _valid(batch, event_time)
        seen = _latest(epoch["previous_max_us"], report.facts.max_event_us)
        if (arrival := self.stream.arrival_time) is None:
            facts = disorder_facts(ts_us[mask], None, seen)
        else:
            both = mask & _valid(batch, arrival)
            facts = disorder_facts(ts_us[both], _micros(batch, arrival)[both], seen)
        latest = int(ts_us[mask].max()) if mask.any() else None  # with or without an arrival time
        report.facts = merge_facts(
            report.facts,
            DelayFacts(batch.num_rows, latest, facts.max_arrival_us, facts.max_delay_us),
        )
        matches = select(self.selection, batch)
        closed_us = epoch["punctuation_us"]
        if self.composition.preaggregated:
            rows = preaggregate(
                batch,
                matches,
                self.slots,
                ts_us,
                self.composition.keys,
                self.composition.partials,
                self.types,
                closed_us,
                mask,
            )
        else:
            rows = expand(
                batch, matches, self.slots, ts_us, closed_us, self.composition.shipped, mask
            )
        for position in np.flatnonzero(rows.late_by_slot):
            slot = self.slots[position].slot
            report.late[slot] = report.late.get(slot, 0) + int(rows.late_by_slot[position])
        late = _late_pairs(matches, self.slots, ts_us, closed_us, rows.late_rows)
        return self._shape(rows.batch), late

    def _shape(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Give window rows the columns that the ring's plan expects."""
        ranges = {s.slot: s.window.range_us for s in self.slots if s.window is not None}
        slot = rows.column("slot").to_numpy()
        known, inverse = np.unique(slot, return_inverse=True)
        range_us = np.array([ranges[int(s)] for s in known], np.int64)[inverse]
        end = pa.array(rows.column("window_end_us").to_numpy() + SHIFT_US).cast(END)
        rest = rows.columns[2:]
        if self.composition.preaggregated:
            names = [f"__k{i}" for i in range(len(self.composition.keys))]
            names += [p.name for p in self.composition.partials]
            types = (*self.composition.key_types, *self.composition.partial_types)
            rest = [
                c if t.startswith("struct") else c.cast(arrow_type(t))
                for c, t in zip(rest, types, strict=True)
            ]
        else:
            names = list(self.composition.shipped)
        fixed = [rows.column("slot"), pa.array(range_us), end]
        return pa.RecordBatch.from_arrays(
            [*fixed, *rest], names=["__slot", "__range_us", "__end", *names]
        )

    def _keep_late(
        self,
        pairs: np.ndarray | None,
        epoch: dict[str, Any],
        report: TaskReport,
        reread: Reread | None,
    ) -> None:
        """Late tuples with all their columns; they are few, so they are read again when needed."""
        if pairs is None or not len(pairs) or reread is None:
            return
        names, first = list(self.stream.schema.names), 0
        for batch in reread(names):
            here = pairs[(pairs[:, 0] >= first) & (pairs[:, 0] < first + batch.num_rows)]
            if len(here):
                rows = batch.select(names).take(pa.array(here[:, 0] - first))
                ts_us = _micros(rows, str(self.composition.event_time))
                lateness = (epoch["punctuation_us"] - ts_us) // 1000
                punctuation = np.full(len(here), epoch["punctuation_us"])
                extra = [pa.array(lateness), pa.array(here[:, 1]), pa.array(punctuation).cast(END)]
                report.late_rows.append(
                    pa.RecordBatch.from_arrays(
                        [*rows.columns, *extra],
                        names=[*names, "_lateness_ms", "_slot", "_punctuation"],
                    )
                )
            first += batch.num_rows


def _micros(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """Event times as int64 microseconds; NULL becomes 0 and is masked by the caller."""
    return batch.column(column).cast(pa.int64()).fill_null(0).to_numpy()


def _valid(batch: pa.RecordBatch, column: str) -> np.ndarray:
    return batch.column(column).is_valid().to_numpy(zero_copy_only=False)


def _latest(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _late_pairs(
    matches: Matches,
    slots: Sequence[SlotSpec],
    ts_us: np.ndarray,
    closed_us: int,
    late_rows: np.ndarray,
) -> np.ndarray:
    """(row, slot id) of every tuple that is late for a query."""
    rows = np.flatnonzero(late_rows)
    counts = np.diff(matches.offsets)[rows]
    row = np.repeat(rows, counts)
    if not len(row):
        return np.empty((0, 2), np.int64)
    position = np.concatenate(
        [matches.slots[matches.offsets[r] : matches.offsets[r + 1]] for r in rows]
    )
    windows = [s.window for s in slots]
    range_us = np.array([0 if w is None else w.range_us for w in windows], np.int64)[position]
    slide_us = np.array([1 if w is None else w.slide_us for w in windows], np.int64)[position]
    last_end = (ts_us[row] + range_us) // slide_us * slide_us
    late = (last_end > ts_us[row]) & (last_end <= closed_us)
    ids = np.array([s.slot for s in slots], np.int64)[position]
    return np.stack([row[late], ids[late]], axis=1)


_known_slots: dict[str, tuple[int, dict[int, SlotSpec]]] = {}
_stages: dict[str, Stage] = {}


def stage_for(config: StageConfig, version: int) -> Stage:
    """The stage of a ring at a registry version; workers keep the last and fetch only changes."""
    cached = _stages.get(config.ring)
    if cached is not None and cached.version == version:
        return cached
    since, slots = _known_slots.get(config.ring, (0, {}))
    if since > version:
        since, slots = 0, {}
    message = {"ring": config.ring, "since": since, "version": version}
    changes = ask(config.address, "slots", message)
    dropped = set(changes["dropped"])
    slots = {k: v for k, v in slots.items() if k not in dropped}
    slots |= {s.slot: s for s in map(slot_from, changes["added"])}
    _known_slots[config.ring] = (version, slots)
    if cached is not None and not changes["added"] and not dropped:
        stage = replace(cached, version=version)
    else:
        stage = _compile(config, version, slots)
    _stages[config.ring] = stage
    return stage


def _compile(config: StageConfig, version: int, slots: dict[int, SlotSpec]) -> Stage:
    composition, stream = composition_from(config.composition), stream_from(config.stream)
    types = {f.name: f.type for f in stream.schema.fields}
    types |= {a.name: a.type for a in composition.derived}
    ordered = tuple(slots[k] for k in sorted(slots))
    selection = build_selection(ordered, types)
    return Stage(composition, stream, version, ordered, selection, types)
