"""What is measured on Spark: cells, each one run of one engine on one input, in three parts.

- *streams*: two to six streams, large micro-batches, penstock and Spark's chain of joins on the
  state store in memory, its fastest; for some also on RocksDB, whose state is as durable as ours.
- *sweep*: the same two over the share of tuples that join, on less input.
- *stores*: a chain on every state store that Spark has. On RocksDB it takes minutes for what the
  others do in seconds, so there is less input, the same for all; most of penstock's time on it is
  that of micro-batches by themselves.

Of several runs of an engine, one right after the other, the fastest counts: in the first, processes
start and memory is touched for the first time. On RocksDB there is one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.bench.join.spark_runs import STORES, Given
from penstock.bench.report import Value

OURS, IN_MEMORY, DURABLE = "penstock", "memory", "rocksdb, format 4"
USUAL = 0.05  # the selectivity by which streams are compared
STREAMS, SWEEP, STORED = "streams", "sweep", "stores"


@dataclass(frozen=True, slots=True)
class Cell:
    """restarts: whether the engine is started again at the end."""

    part: str
    given: Given
    engine: str
    run: int
    restarts: bool

    @property
    def facts(self) -> dict[str, Value]:
        """By what a row of it is known."""
        return {
            "part": self.part,
            "streams": self.given.streams,
            "selectivity": self.given.selectivity,
            "engine": self.engine,
            "run": self.run,
            "rows": self.given.rows,
        }


@dataclass(frozen=True, slots=True)
class Sizes:
    """By part: numbers of streams, rows of a file, files; selectivities are those of the sweep."""

    counts: dict[str, Sequence[int]]
    selectivities: Sequence[float]
    stores: Sequence[str]
    rows_per_file: dict[str, int]
    files: dict[str, int]
    range_s: int = 150
    files_per_batch: int = 2
    runs: int = 2
    durable: Sequence[int] = ()  # streams that are also joined on RocksDB, of the first part

    def cells(self) -> Iterator[Cell]:
        """All cells, those of one input next to each other."""
        for part, shares in self._shares():
            for streams in self.counts[part]:
                for share in shares:
                    given = self.given(part, streams, share)
                    for engine in (OURS, *self._chains(part, streams)):
                        slow = engine not in (OURS, IN_MEMORY)
                        restarts = part == STORED or (part == STREAMS and not slow)
                        for run in range(1 if slow else self.runs):
                            yield Cell(part, given, engine, run, restarts and run == 0)

    def _chains(self, part: str, streams: int) -> Sequence[str]:
        if part == STORED:
            return self.stores
        durable = part == STREAMS and streams in self.durable
        return [IN_MEMORY, DURABLE] if durable else [IN_MEMORY]

    def given(self, part: str, streams: int, selectivity: float) -> Given:
        files, rows = self.files[part], self.rows_per_file[part]
        return Given(streams, selectivity, files, rows, self.files_per_batch, self.range_s)

    def _shares(self) -> list[tuple[str, Sequence[float]]]:
        return [(STREAMS, [USUAL]), (SWEEP, self.selectivities), (STORED, [USUAL])]


FULL = Sizes(
    counts={STREAMS: (4, 3, 2, 6), SWEEP: (2, 3, 4, 6), STORED: (3, 4, 2, 6)},
    selectivities=(0.01, 0.25, 1.0),
    stores=list(STORES),
    rows_per_file={STREAMS: 400_000, SWEEP: 200_000, STORED: 75_000},
    files={STREAMS: 6, SWEEP: 4, STORED: 4},
    durable=(3, 4),
)
QUICK = Sizes(
    counts={STREAMS: (3, 4), SWEEP: (2,), STORED: (3,)},
    selectivities=(USUAL, 1.0),
    stores=[IN_MEMORY, DURABLE],
    rows_per_file={STREAMS: 400_000, SWEEP: 200_000, STORED: 50_000},
    files={STREAMS: 4, SWEEP: 4, STORED: 4},
)
