"""One n-way join on Spark: every engine gets the same files, micro-batches and sink.

An engine starts on directories with a small file each and runs until it is idle: `start_s`. Then
the other files come in at once; `seconds` is the time until the last result is delivered. At the
end it is stopped and started again from its checkpoint, with one more small file: `restart_s` is
the time until that file's results are there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import and_
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.bench.contest import NATIVE_STORES, Rows, scratch
from penstock.bench.machine import cpu_seconds
from penstock.runtime.engine import Engine
from penstock.runtime.session import session_settings

COLUMNS = "id BIGINT, v BIGINT, ts TIMESTAMP"
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
# The state stores for stream-stream joins that a user of Structured Streaming can choose from.
STORES = {
    "rocksdb, format 2": NATIVE_STORES["rocksdb"] | {_FORMAT: "2"},
    "rocksdb, format 4": NATIVE_STORES["rocksdb"] | {_FORMAT: "4"},
    "memory": NATIVE_STORES["memory"] | {_FORMAT: "2"},
}
_SMALL = 200  # rows of the first and the last file
_FIRST_US = 1_700_000_000_000_000
_STEP_US = 1000  # between the tuples of a stream
_APART = 2000  # tuples of other streams by which a partner may come earlier or later
_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class Given:
    """selectivity: the share of each stream's tuples that have a partner in every other stream."""

    streams: int
    selectivity: float
    files: int
    rows_per_file: int
    files_per_batch: int
    range_s: int
    seed: int = 1

    @property
    def rows(self) -> int:
        """Of all streams, without those of the small files."""
        return self.streams * self.files * self.rows_per_file


def write_input(directory: Path, given: Given) -> None:
    """A directory of files for each stream; all tuples in order of time."""
    rng = np.random.default_rng(given.seed)
    sizes = [_SMALL, *[given.rows_per_file] * given.files, _SMALL]
    joins = rng.random(sum(sizes)) < given.selectivity
    positions = np.arange(joins.size)
    for stream in range(given.streams):
        (directory / str(stream)).mkdir(parents=True)
        own = 10**12 + positions * given.streams + stream
        place = positions + rng.integers(-_APART, _APART + 1, joins.size)
        ids = np.where(joins, positions, own)[np.argsort(place, kind="stable")]
        table = pa.table(
            {
                "id": pa.array(ids),
                "v": pa.array(rng.integers(0, 1000, ids.size)),
                "ts": pa.array(_FIRST_US + positions * _STEP_US, pa.timestamp("us", tz="UTC")),
            }
        )
        for number, size in enumerate(sizes):
            path = directory / str(stream) / f"part-{number:05d}.parquet"
            pq.write_table(table.slice(sum(sizes[:number]), size), path)
            seconds = 1_700_000_000 + number  # every engine reads the oldest file first
            os.utime(path, (seconds, seconds))


@dataclass(frozen=True, slots=True)
class Running:
    """An engine at work; table_bytes: what its workers hold beside the state."""

    await_idle: Callable[[], None]
    table_bytes: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """state_bytes: the most that the state stores held in memory, as Spark counts it."""

    start_s: float
    seconds: float
    cpu_s: float | None
    restart_s: float | None
    state_bytes: int
    table_bytes: int
    checkpoint_bytes: int
    results: pa.Table


# of the directory of the inboxes, a directory of its own, and the sink
Start = Callable[[Path, Path, Rows], AbstractContextManager[Running]]


def run(
    spark: SparkSession, files: Path, given: Given, start: Start, restarts: bool = True
) -> Outcome:
    rows = Rows()
    restart_s = None
    with scratch() as directory:
        inbox = directory / "in"
        for stream in range(given.streams):
            (inbox / str(stream)).mkdir(parents=True)
        _link(files, inbox, slice(0, 1))
        begin = time.perf_counter()
        with start(inbox, directory, rows) as running:
            running.await_idle()
            ready, used = time.perf_counter(), cpu_seconds()
            _link(files, inbox, slice(1, 1 + given.files))
            running.await_idle()
            now, last = cpu_seconds(), rows.last
            state_bytes, table_bytes = _state_bytes(spark), running.table_bytes()
        checkpoint_bytes = _size(directory) - _size(inbox)
        if restarts:
            _link(files, inbox, slice(1 + given.files, None))
            again = time.perf_counter()
            with start(inbox, directory, rows) as running:
                running.await_idle()
                restart_s = time.perf_counter() - again
    return Outcome(
        ready - begin,
        last - ready,
        None if used is None or now is None else now - used,
        restart_s,
        state_bytes,
        table_bytes,
        checkpoint_bytes,
        _sorted(rows, given.streams),
    )


def _state_bytes(spark: SparkSession) -> int:
    """Of the one query that runs."""
    [query] = spark.streams.active
    each = (progress["stateOperators"] for progress in query.recentProgress)
    return max(sum(operator["memoryUsedBytes"] for operator in found) for found in each)


def _link(files: Path, inbox: Path, which: slice) -> None:
    for stream in inbox.iterdir():
        for file in sorted((files / stream.name).iterdir())[which]:
            os.link(file, stream / file.name)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _sorted(rows: Rows, streams: int) -> pa.Table:
    names = ["id", *(f"v{stream}" for stream in range(streams))]
    tables = [table.rename_columns(names) for table in rows.tables]
    empty = pa.schema([(name, pa.int64()) for name in names]).empty_table()
    return pa.concat_tables([empty, *tables]).sort_by([(n, "ascending") for n in names])


def penstock(spark: SparkSession, given: Given) -> Start:
    """One query in a ring of its own."""
    streams = range(given.streams)
    values = ", ".join(f"S{n}.v AS v{n}" for n in streams)
    sources = ", ".join(f"S{n} [RANGE {given.range_s} SECONDS]" for n in streams)
    equal = " AND ".join(f"S0.id = S{n}.id" for n in streams[1:])
    text = f"SELECT S0.id, {values} FROM {sources} WHERE {equal}"

    @contextmanager
    def start(inbox: Path, directory: Path, rows: Rows) -> Iterator[Running]:
        resumed = (directory / "workspace").exists()
        with Engine(spark, directory / "workspace") as engine:
            if not resumed:
                for n in streams:
                    engine.execute(
                        f"CREATE STREAM S{n} ({COLUMNS}) WITH (source = 'file', format = 'parquet',"
                        f" path = '{inbox / str(n)}', event_time = 'ts', estimator = 'fixed',"
                        f" slack = '0 s', max_files_per_batch = {given.files_per_batch})"
                    )
            engine.register(text, name="joined", sink=rows)

            def table_bytes() -> int:
                return int(engine.rings()[0]["join"]["table_bytes"])

            yield Running(lambda: engine.await_idle(_TIMEOUT_S), table_bytes)

    return start


def native(spark: SparkSession, given: Given, settings: dict[str, str]) -> Start:
    """A chain of stream-stream joins as Spark accepts it: one event time goes on from each."""

    @contextmanager
    def start(inbox: Path, directory: Path, rows: Rows) -> Iterator[Running]:
        def deliver(frame: DataFrame, _: int) -> None:
            table = frame.toArrow()
            if table.num_rows:
                rows(table)

        with session_settings(spark, settings):
            writer = chain(spark, inbox, given).writeStream.foreachBatch(deliver)
            check = str(directory / "checkpoint")
            query = writer.option("checkpointLocation", check).start()
        try:
            yield Running(query.processAllAvailable, lambda: 0)
        finally:
            query.stop()

    return start


def chain(spark: SparkSession, inbox: Path, given: Given) -> DataFrame:
    """S0 joined with S1, the result with S2, and so on; all times but that of S0 are numbers."""
    joined = _stream(spark, inbox, given, 0)
    for n in range(1, given.streams):
        other = _stream(spark, inbox, given, n)
        span = F.expr(f"INTERVAL {given.range_s} SECONDS")
        near = (F.col(f"t{n}") >= F.col("t0") - span) & (F.col(f"t{n}") <= F.col("t0") + span)
        joined = joined.join(other, (F.col("id0") == F.col(f"id{n}")) & near)
        joined = joined.drop(f"id{n}").withColumn(f"t{n}", F.expr(f"unix_micros(t{n})"))
    return joined.where(_all_near(given)).select(
        F.col("id0").alias("id"), *(f"v{n}" for n in range(given.streams))
    )


def _stream(spark: SparkSession, inbox: Path, given: Given, n: int) -> DataFrame:
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", given.files_per_batch)
    tuples = reader.parquet(str(inbox / str(n))).withWatermark("ts", "0 seconds")
    names = {"id": f"id{n}", "v": f"v{n}", "ts": f"t{n}"}
    return tuples.select(*(F.col(name).alias(own) for name, own in names.items()))


def _all_near(given: Given) -> Column:
    """Of the streams after the first, whose times are numbers."""
    near = (
        F.expr(f"abs(t{a} - t{b}) <= {given.range_s * 1_000_000}")
        for a, b in combinations(range(1, given.streams), 2)
    )
    return reduce(and_, near, F.lit(True))
