"""Window queries in penstock and in native Structured Streaming: same files, session and sink.

Both get the same micro-batches (files per batch), the same slack, and a function that takes each
micro-batch's rows as Arrow. A query is started on a directory that holds one small file and runs
until it is idle: that is `start_s`. Then the other files come in at once, and `seconds` is the time
until the last row that they cause is delivered.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.machine import cpu_seconds
from penstock.bench.tuples import COLUMNS, SLACK
from penstock.runtime.engine import Engine
from penstock.runtime.session import session_settings

_STATE = "org.apache.spark.sql.execution.streaming.state."
# The state stores that a user of Structured Streaming can choose from, at their best settings.
NATIVE_STORES = {
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": _STATE + "RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "memory": {
        "spark.sql.streaming.stateStore.providerClass": _STATE + "HDFSBackedStateStoreProvider",
    },
}
_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class WindowQuery:
    range_minutes: int = 5
    slide_minutes: int = 1
    w_from: int | None = None  # None: no predicate
    w_below: int = 0

    @property
    def predicate(self) -> str | None:
        return None if self.w_from is None else f"w >= {self.w_from} AND w < {self.w_below}"

    @property
    def text(self) -> str:
        where = "" if self.predicate is None else f" WHERE {self.predicate}"
        return (
            "SELECT key, count(*) AS n, sum(v) AS s, max(v) AS m, avg(v) AS a FROM S "
            f"[RANGE {self.range_minutes} MINUTES SLIDE {self.slide_minutes} MINUTES]{where} "
            "GROUP BY key"
        )


@dataclass(slots=True)
class Rows:
    """What one query delivered, and when the last of it came."""

    tables: list[pa.Table] = field(default_factory=list)
    last: float = 0.0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, rows: pa.Table) -> None:
        with self.guard:
            self.tables.append(rows)
            self.last = time.perf_counter()

    def table(self) -> pa.Table:
        """All rows in one order; engines may differ in names and in how they write UTC."""
        if not self.tables:
            return pa.table({})
        names = ["window_start", "window_end", "key", "n", "s", "m", "a"]
        table = pa.concat_tables(self.tables).rename_columns(names)
        for name in names[:2]:
            micros = table.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            table = table.set_column(table.schema.get_field_index(name), name, micros)
        order = [("window_end", "ascending"), ("window_start", "ascending"), ("key", "ascending")]
        return table.sort_by(order).combine_chunks()


@dataclass(frozen=True, slots=True)
class Outcome:
    start_s: float
    seconds: float
    cpu_s: float | None  # of all processes, over `seconds` and until they are idle
    results: list[pa.Table]


def run_penstock(
    spark: SparkSession, files: Path, queries: Sequence[WindowQuery], files_per_batch: int
) -> Outcome:
    rows = [Rows() for _ in queries]
    with scratch() as directory, Engine(spark, directory / "workspace") as engine:
        inbox = first_files(files, directory)
        engine.execute(
            f"CREATE STREAM S ({COLUMNS}) WITH (source = 'file', format = 'parquet', "
            f"path = '{inbox}', max_files_per_batch = {files_per_batch}, event_time = 'ts', "
            f"estimator = 'fixed', slack = '{SLACK}')"
        )
        begin = time.perf_counter()
        with engine.together():
            for query, sink in zip(queries, rows, strict=True):
                engine.register(query.text, sink=sink)
        engine.await_idle(_TIMEOUT_S)
        ready, used = time.perf_counter(), cpu_seconds()
        other_files(files, inbox)
        engine.await_idle(_TIMEOUT_S)
        return _outcome(begin, ready, used, rows)


def run_native(
    spark: SparkSession,
    files: Path,
    queries: Sequence[WindowQuery],
    files_per_batch: int,
    store: str,
) -> Outcome:
    """The queries as one StreamingQuery each, all at the same time."""
    rows = [Rows() for _ in queries]
    with scratch() as directory, session_settings(spark, NATIVE_STORES[store]):
        inbox = first_files(files, directory)
        begin = time.perf_counter()
        running = []
        try:
            for number, (query, sink) in enumerate(zip(queries, rows, strict=True)):
                writer = native_frame(spark, inbox, query, files_per_batch).writeStream
                writer = writer.outputMode("append").foreachBatch(_collect_into(sink))
                checkpoint = str(directory / "checkpoints" / str(number))
                running.append(writer.option("checkpointLocation", checkpoint).start())
            _process_all(running)
            ready, used = time.perf_counter(), cpu_seconds()
            other_files(files, inbox)
            _process_all(running)
            return _outcome(begin, ready, used, rows)
        finally:
            for streaming in running:
                streaming.stop()


def first_files(files: Path, directory: Path, count: int = 1) -> Path:
    inbox = directory / "inbox"
    inbox.mkdir()
    for file in sorted(files.iterdir())[:count]:
        os.link(file, inbox / file.name)
    return inbox


def other_files(files: Path, inbox: Path, first: int = 1, most: int | None = None) -> None:
    """All files but the first ones, or so many of them."""
    for file in sorted(files.iterdir())[first:][:most]:
        os.link(file, inbox / file.name)


def _process_all(running: list[StreamingQuery]) -> None:
    for streaming in running:
        streaming.processAllAvailable()


def native_frame(
    spark: SparkSession, path: Path, query: WindowQuery, files_per_batch: int
) -> DataFrame:
    frame = (
        spark.readStream.schema(COLUMNS)
        .option("maxFilesPerTrigger", files_per_batch)
        .parquet(str(path))
        .withWatermark("ts", SLACK)
    )
    if query.predicate is not None:
        frame = frame.where(query.predicate)
    window = F.window("ts", f"{query.range_minutes} minutes", f"{query.slide_minutes} minutes")
    return (
        frame.groupBy(window.alias("window"), "key")
        .agg(F.expr("count(*) n"), F.expr("sum(v) s"), F.expr("max(v) m"), F.expr("avg(v) a"))
        .select("window.start", "window.end", "key", "n", "s", "m", "a")
    )


def _collect_into(sink: Rows):
    def collect(frame: DataFrame, _: int) -> None:
        table = frame.toArrow()
        if table.num_rows:
            sink(table)

    return collect


def _outcome(begin: float, ready: float, used: float | None, rows: list[Rows]) -> Outcome:
    now = cpu_seconds()
    cpu_s = None if used is None or now is None else now - used
    last = max(r.last for r in rows)
    return Outcome(ready - begin, last - ready, cpu_s, [r.table() for r in rows])


def same_rows(ours: pa.Table, theirs: pa.Table) -> bool:
    """Equal keys and counts exactly; sums of doubles up to the order in which they were added."""
    if ours.num_rows != theirs.num_rows or ours.num_rows == 0:
        return False
    for name in ("window_start", "window_end", "key", "n", "m"):
        if not np.array_equal(ours.column(name).to_numpy(), theirs.column(name).to_numpy()):
            return False
    return all(
        np.allclose(ours.column(n).to_numpy(), theirs.column(n).to_numpy(), rtol=1e-9, atol=0)
        for n in ("s", "a")
    )


@contextmanager
def scratch() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
