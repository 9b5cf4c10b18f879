"""What one task saw of an epoch, on its way to the engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.control.disorder import OTHERS, SOURCES
from penstock.control.ordering import OrderFacts
from penstock.control.ordering import plain as plain_order
from penstock.kernels.delays import DelayFacts, merge_facts, plain
from penstock.runtime.config import StageConfig
from penstock.runtime.packing import to_ipc
from penstock.runtime.service import ask
from penstock.runtime.sources.beside import Beside

ROWS_PER_CALL = 10_000  # a bad record has at most 10,000 characters: 100 MB at the worst


@dataclass(slots=True)
class TaskReport:
    """What one task of one epoch saw."""

    facts: DelayFacts = field(default_factory=DelayFacts)
    sources: dict[str, DelayFacts] = field(default_factory=dict)
    order: OrderFacts = field(default_factory=OrderFacts)
    late: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    unplaced: int = 0  # tuples with a point that is no place, where a query asks for it
    late_rows: list[pa.RecordBatch] = field(default_factory=list)
    beside: Beside = field(default_factory=Beside)
    read_ns: int = 0  # time spent on getting tuples
    run_ns: int = 0  # and on all of the stage, that included

    def reading(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches; getting them is timed."""
        while True:
            begin = time.perf_counter_ns()
            batch = next(batches, None)
            self.read_ns += time.perf_counter_ns() - begin
            if batch is None:
                return
            yield batch

    def running(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What a stage makes; making it is timed, what Spark does with it is not."""
        while True:
            begin = time.perf_counter_ns()
            batch = next(results, None)
            self.run_ns += time.perf_counter_ns() - begin
            if batch is None:
                return
            yield batch

    def send(self, config: StageConfig, number: int, part: int) -> None:
        """Tell the engine: first the rows, in pieces that the service takes, then the figures."""
        rows = [("late", "", batch) for batch in self.late_rows]
        bad = self.beside.bad.items()
        rows += [("bad", piece, batch) for piece, found in bad for batch in found]
        whole = {"ring": config.ring, "number": number, "part": part}
        position = 0
        for kind, piece, batch in rows:
            for start in range(0, batch.num_rows, ROWS_PER_CALL):
                body = to_ipc(batch.slice(start, ROWS_PER_CALL))
                message = {**whole, "kind": kind, "piece": piece, "position": position}
                ask(config.address, "rows", message, [body])
                position += 1
        seen = {
            "facts": plain(self.facts),
            "sources": {k: plain(f) for k, f in self.sources.items()},
            "order": plain_order(self.order),
        }
        whole["punctuation_us"] = self.beside.punctuation_us
        counts = {"late": self.late, "lost": self.lost, "unplaced": self.unplaced}
        spent = {"read_ns": self.read_ns, "run_ns": self.run_ns}
        ask(config.address, "report", {**whole, **seen, **counts, **spent, "pieces": position})

    def add_sources(self, found: dict[str, DelayFacts]) -> None:
        """Take in facts by source; beyond a bound they are lumped together."""
        for key, facts in found.items():
            if key not in self.sources and len(self.sources) >= 2 * SOURCES:
                key = OTHERS
            known = self.sources.get(key)
            self.sources[key] = facts if known is None else merge_facts(known, facts)
