"""Continuous queries on Spark: penstock in rings, Structured Streaming with a query for each.

Both read the same files in the same micro-batches and hand the rows of every query to a
function of its own, as Arrow. An engine starts on a directory that holds one small file and runs
until it is idle: `start_s`. Then the other files come in at once; `seconds` is the time until the
last row that they cause is delivered.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.contest import NATIVE_STORES, first_files, other_files, scratch
from penstock.bench.resources import Usage, usage
from penstock.bench.rings.kinds import Asked
from penstock.bench.tuples import COLUMNS, SLACK
from penstock.runtime.engine import Engine
from penstock.runtime.session import session_settings

TIMEOUT_S = 1800.0


@dataclass(slots=True)
class Taken:
    """What one query delivered: how many rows, when; the rows themselves if they are kept."""

    keeps: bool
    rows: int = 0
    first: float | None = None
    last: float = 0.0
    tables: list[pa.Table] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, rows: pa.Table) -> None:
        with self.guard:
            self.rows += rows.num_rows
            self.last = time.perf_counter()
            if self.first is None:
                self.first = self.last
            if self.keeps:
                self.tables.append(rows)


@dataclass(frozen=True, slots=True)
class Outcome:
    """used: processor time over `seconds` and until all is idle; what is held then."""

    start_s: float
    seconds: float
    before: Usage
    after: Usage
    running: int  # StreamingQueries
    live_s: list[float]  # of each query, from its registration to the first micro-batch it is in
    taken: list[Taken]

    @property
    def cpu_s(self) -> float:
        return self.after.cpu_s - self.before.cpu_s

    @property
    def driver_cpu_s(self) -> float:
        return self.after.driver_cpu_s - self.before.driver_cpu_s


def stream_of_files(inbox: Path, files_per_batch: int, format_: str) -> str:
    return (
        f"CREATE STREAM S ({COLUMNS}) WITH (source = 'file', format = '{format_}', "
        f"path = '{inbox}', max_files_per_batch = {files_per_batch}, event_time = 'ts', "
        f"estimator = 'fixed', slack = '{SLACK}')"
    )


def format_of(files: Path) -> str:
    return next(files.iterdir()).suffix.removeprefix(".")


def run_penstock(
    spark: SparkSession,
    files: Path,
    queries: Sequence[Asked],
    files_per_batch: int,
    keeps: bool,
    store: str,
) -> Outcome:
    """All queries in one engine, which begin together."""
    taken, settings = [Taken(keeps) for _ in queries], {"state_store": store}
    with scratch() as directory, Engine(spark, directory / "w", settings=settings) as engine:
        inbox = first_files(files, directory)
        engine.execute(stream_of_files(inbox, files_per_batch, format_of(files)))
        begin = time.perf_counter()
        with engine.together():
            for query, sink in zip(queries, taken, strict=True):
                engine.register(query.text, sink=sink)
        engine.await_idle(TIMEOUT_S)
        return _measured(spark, files, inbox, begin, taken, lambda: engine.await_idle(TIMEOUT_S))


def run_native(
    spark: SparkSession,
    files: Path,
    queries: Sequence[Asked],
    files_per_batch: int,
    keeps: bool,
    store: str,
) -> Outcome:
    """A StreamingQuery each, started one after the other."""
    taken = [Taken(keeps) for _ in queries]
    running: list[StreamingQuery] = []
    asked, live = [], [0.0 for _ in queries]
    with scratch() as directory, session_settings(spark, NATIVE_STORES[store]):
        inbox = first_files(files, directory)
        reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", files_per_batch)
        begin = time.perf_counter()
        try:
            for number, (query, sink) in enumerate(zip(queries, taken, strict=True)):
                asked.append(time.perf_counter())
                stream = reader.format(format_of(files)).load(str(inbox))
                writer = query.native(stream).writeStream.outputMode("append")
                writer = writer.foreachBatch(_collect_into(sink, live, number))
                checkpoint = str(directory / "checkpoints" / str(number))
                running.append(writer.option("checkpointLocation", checkpoint).start())
            _process_all(running)
            live_s = [at - since for at, since in zip(live, asked, strict=True)]
            return _measured(
                spark, files, inbox, begin, taken, lambda: _process_all(running), live_s
            )
        finally:
            for streaming in running:
                streaming.stop()


def _measured(
    spark: SparkSession,
    files: Path,
    inbox: Path,
    begin: float,
    taken: list[Taken],
    await_idle: Callable[[], None],
    live_s: Sequence[float] = (),
) -> Outcome:
    ready, before = time.perf_counter(), usage()
    other_files(files, inbox)
    await_idle()
    after = usage()
    last = max(one.last for one in taken)
    running = len(spark.streams.active)
    return Outcome(ready - begin, last - ready, before, after, running, list(live_s), taken)


def _collect_into(sink: Taken, live: list[float], number: int) -> Callable[[DataFrame, int], None]:
    def collect(frame: DataFrame, _: int) -> None:
        live[number] = live[number] or time.perf_counter()
        table = frame.toArrow()
        if table.num_rows:
            sink(table)

    return collect


def _process_all(running: Sequence[StreamingQuery]) -> None:
    for streaming in running:
        streaming.processAllAvailable()
