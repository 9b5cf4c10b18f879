"""Selections on Spark: every engine gets the same files and micro-batches, writes the same log.

An engine starts on a directory with a small file for each core, so that all workers know the
queries, and runs until it is idle: `start_s`. Then the other files come in at once; `seconds` is
the time until the last matches are in the log. A rival that is not done after `limit_s` is stopped:
what counts are the micro-batches in its log, the same as everybody's, only fewer.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.contest import first_files, other_files, scratch
from penstock.bench.machine import cpu_seconds, python_memory_mb
from penstock.kernels.jit import Ints
from penstock.runtime.engine import Engine
from penstock.runtime.session import session_settings
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import matched_rows

_FIRST_FILES, _FIRST_ROWS = 2, 2000
_TIMEOUT_S = 3600.0
_ADDED = 20  # queries that are registered while the ring runs


@dataclass(frozen=True, slots=True)
class Input:
    files: int
    rows_per_file: int
    files_per_batch: int = 2

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_file


@dataclass(frozen=True, slots=True)
class Asked:
    """Predicates on a stream of an `id` and more columns; another one, to be added later."""

    columns: str
    predicates: Sequence[str]
    another: str

    @property
    def count(self) -> int:
        return len(self.predicates)


Rows = Callable[[range], pa.RecordBatch]  # of ids, without them


def write_input(directory: Path, rows: Rows, given: Input) -> None:
    """Files of tuples numbered from 0 on; those of the first, small files are below 0."""
    directory.mkdir(parents=True)
    small = [(-n * _FIRST_ROWS, _FIRST_ROWS) for n in range(_FIRST_FILES, 0, -1)]
    large = [(n * given.rows_per_file, given.rows_per_file) for n in range(given.files)]
    for number, (start, count) in enumerate(small + large):
        ids = range(start, start + count)
        batch = rows(ids)
        path = directory / f"part-{number:05d}.parquet"
        table = pa.table([pa.array(np.array(ids)), *batch.columns], ["id", *batch.schema.names])
        pq.write_table(table, path)
        seconds = 1_700_000_000 + number  # every engine reads the oldest file first
        os.utime(path, (seconds, seconds))


def large_file(directory: Path) -> Path:
    """The file whose tuples begin at 0."""
    return sorted(directory.iterdir())[_FIRST_FILES]


@dataclass(frozen=True, slots=True)
class Running:
    """An engine at work. `slots`: what its logs call the queries, in their order."""

    logs: list[Path]
    slots: Ints
    await_idle: Callable[[float], bool]
    stop: Callable[[], None]
    register_s: float | None = None
    add_query: Callable[[], None] | None = None  # one more, while tuples may come


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an engine did with the first `rows` tuples; `pairs` is what matched, id · k + query."""

    rows: int
    seconds: float
    start_s: float
    register_s: float | None
    cpu_s: float | None  # of all processes; None if it was stopped
    add_query_ms: float | None  # the median of a few
    memory_mb: tuple[float, float] | None  # of the driver's Python and of the largest worker
    finished: bool
    pairs: Ints  # ascending

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds if self.rows else 0.0


Start = Callable[[Path, Path], Running]  # of an inbox and a directory of its own


def run(files: Path, given: Input, limit_s: float, start: Start) -> Outcome:
    with scratch() as directory:
        inbox = first_files(files, directory, _FIRST_FILES)
        begin = time.time()
        running = start(inbox, directory)
        try:
            started = running.await_idle(limit_s)
            ready, used = time.time(), cpu_seconds()
            other_files(files, inbox, _FIRST_FILES, given.files)
            finished = started and running.await_idle(limit_s)
            now, memory_mb = cpu_seconds(), python_memory_mb()
            add_query_ms = _add_queries_ms(running)
        finally:
            running.stop()
        cpu_s = None if used is None or now is None or not finished else now - used
        tables = [_read_log(log) for log in running.logs]
        done = given.rows if finished else min(_whole_files(t, given) for t in tables)
        pairs = np.sort(np.concatenate([_pairs(t, running.slots) for t in tables]))
        return Outcome(
            done,
            max(map(_last_written, running.logs)) - ready,
            ready - begin - (running.register_s or 0.0),
            running.register_s,
            cpu_s,
            add_query_ms,
            memory_mb,
            finished,
            pairs[np.searchsorted(pairs, 0) : np.searchsorted(pairs, done * running.slots.size)],
        )


def same_matches(k: int, rows: int, pairs: Ints, expected: Ints) -> bool:
    """Whether the matches of the first rows are those expected of them."""
    return np.array_equal(pairs, expected[: np.searchsorted(expected, rows * k)])


def _add_queries_ms(running: Running) -> float | None:
    if running.add_query is None:
        return None
    took = []
    for _ in range(_ADDED):
        begin = time.perf_counter()
        running.add_query()
        took.append(1000 * (time.perf_counter() - begin))
    return statistics.median(took)


def _read_log(log: Path) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("__slots", pa.list_(pa.int32()))])
    tables = [pa.ipc.open_file(path).read_all() for path in log.glob("*.arrow")]
    named = [_shown(table).rename_columns(schema.names).cast(schema) for table in tables]
    return pa.concat_tables([schema.empty_table(), *named])


def _shown(table: pa.Table) -> pa.Table:
    """Without the columns of a ring that no query shows: those have no type."""
    return table.select([f.name for f in table.schema if not pa.types.is_null(f.type)])


def _last_written(log: Path) -> float:
    """When the last file got its name."""
    return max((path.stat().st_ctime for path in log.glob("*.arrow")), default=0.0)


def _whole_files(table: pa.Table, given: Input) -> int:
    """Rows of all files up to that of the last id."""
    last = int(table.column("id").to_numpy().max(initial=-1))
    return (last // given.rows_per_file + 1) * given.rows_per_file


def _pairs(table: pa.Table, slots: Ints) -> Ints:
    lists = table.column("__slots").combine_chunks()
    ids = np.repeat(table.column("id").to_numpy(), np.diff(lists.offsets.to_numpy()))
    return ids * slots.size + np.searchsorted(slots, lists.values.to_numpy())


def penstock(spark: SparkSession, asked: Asked, given: Input, in_reader: bool) -> Start:
    """The queries in one ring; the stage in penstock's reader, or behind Spark's in mapInArrow."""

    def start(inbox: Path, directory: Path) -> Running:
        engine = Engine(spark, directory / "workspace")
        if in_reader:
            engine.execute(
                f"CREATE STREAM S ({asked.columns}) WITH (source = 'file', path = '{inbox}', "
                f"format = 'parquet', max_files_per_batch = {given.files_per_batch})"
            )
        else:
            engine.stream("S", stream_of(spark, asked.columns, given, inbox))
        with engine.together():
            begin = time.perf_counter()
            queries = [engine.register(_query(predicate)) for predicate in asked.predicates]
            register_s = time.perf_counter() - begin
        slots = np.array([query.slot for query in queries])
        log = engine.workspace.results(queries[0].status.ring)

        def await_idle(_: float) -> bool:
            engine.await_idle(_TIMEOUT_S)
            return True

        def add_query() -> None:
            engine.register(_query(asked.another))

        return Running([log], slots, await_idle, engine.stop, register_s, add_query)

    return start


def _query(predicate: str) -> str:
    return f"SELECT id FROM S WHERE {predicate}"


def stream_of(spark: SparkSession, columns: str, given: Input, inbox: Path) -> DataFrame:
    reader = spark.readStream.schema(columns)
    return reader.option("maxFilesPerTrigger", given.files_per_batch).parquet(str(inbox))


Form = Callable[[DataFrame], list[DataFrame]]  # a stream to its matches: (id, __slots)


def native(
    spark: SparkSession, asked: Asked, given: Input, form: Form, settings: dict[str, str]
) -> Start:
    """Structured Streaming: a query for each DataFrame that the form makes."""

    def start(inbox: Path, directory: Path) -> Running:
        queries: list[StreamingQuery] = []
        logs: list[Path] = []
        with session_settings(spark, settings):
            for frame in form(stream_of(spark, asked.columns, given, inbox)):
                own = directory / str(len(queries))
                logs.append(own / "log")
                writer = frame.writeStream.foreachBatch(_append_to(ResultLog(logs[-1])))
                queries.append(writer.option("checkpointLocation", str(own / "check")).start())

        def stop() -> None:
            for query in queries:
                query.stop()

        numbers = np.arange(asked.count)
        return Running(logs, numbers, lambda limit_s: _are_idle(queries, limit_s), stop)

    return start


def _append_to(log: ResultLog) -> Callable[[DataFrame, int], None]:
    def append(frame: DataFrame, batch: int) -> None:
        table = frame.toArrow()
        if table.num_rows:
            log.append(batch, matched_rows(table, ("id",)))

    return append


def _are_idle(queries: list[StreamingQuery], limit_s: float) -> bool:
    """Whether all have processed what is there, within the time."""

    def process_all() -> None:
        for query in queries:
            query.processAllAvailable()

    pool = ThreadPoolExecutor(1)  # a wait that is given up ends when the queries are stopped
    waiting = pool.submit(process_all)
    pool.shutdown(wait=False)
    try:
        waiting.result(limit_s)
    except TimeoutError:
        return False
    return True
