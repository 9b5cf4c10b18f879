"""Queries registered and dropped one by one while their stream runs: what a change costs.

The queries are selections of one composition, so all share one ring that is never restarted. A
second thread notes when each registry version reaches an epoch: from there on a query sees tuples.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from penstock.bench.machine import machine
from penstock.bench.report import Report, Value
from penstock.runtime.engine import Engine
from penstock.runtime.query import Query
from penstock.runtime.session import start_spark

_STREAM = """
CREATE STREAM S (id INT, temp DOUBLE, ts TIMESTAMP) WITH (
  source = 'generator', rate = {rate}, start = 'now', event_time = 'ts',
  generate = 'id: uniform(0, 999); temp: normal(20, 5)')
"""
_IDS = 1000
_WATCH_S = 0.005


@dataclass(frozen=True, slots=True)
class Sizes:
    queries: int
    rate: int  # tuples per second
    steady_s: float  # how long throughput is watched at each count
    counts: tuple[int, ...]


FULL = Sizes(1000, 50_000, 20.0, (1, 10, 100, 1000))
QUICK = Sizes(1000, 20_000, 5.0, (1, 100, 1000))


def measure(quick: bool) -> Report:
    on = machine()
    spark = start_spark()
    try:
        return register_and_drop(spark, QUICK if quick else FULL, quick, on)
    finally:
        spark.stop()


def register_and_drop(
    spark: SparkSession, sizes: Sizes, quick: bool, on: dict[str, Value]
) -> Report:
    with Engine(spark) as engine:
        engine.execute(_STREAM.format(rate=sizes.rate))
        begin = time.perf_counter()
        first = engine.register(query_text(0), name="q0")
        ring = first.status.ring
        _until(lambda: _rows_read(engine, ring) > 0)
        first_tuples_s = time.perf_counter() - begin
        runs = _runs(spark)
        time.sleep(sizes.steady_s)  # the tuples that came while Spark got ready are read by then

        queries, steady, register_ms = [first], [], []
        with _watch(engine, ring) as seen:
            live: list[tuple[float, int]] = []
            for number in range(1, sizes.queries):
                if number in sizes.counts:
                    steady.append(_steady(engine, ring, number, sizes.steady_s))
                begin = time.perf_counter()
                queries.append(engine.register(query_text(number), name=f"q{number}"))
                done = time.perf_counter()
                register_ms.append((done - begin) * 1000)
                live.append((done, engine.registry.version))
            _until(lambda: bool(seen.versions) and seen.versions[-1] >= live[-1][1])
            if sizes.queries in sizes.counts:
                steady.append(_steady(engine, ring, sizes.queries, sizes.steady_s))
        live_ms = [(seen.when(version) - done) * 1000 for done, version in live]
        agrees = all(
            _holds(query, number) for number, query in enumerate(queries) if number % 97 == 0
        )
        agrees = agrees and all(
            q.status.state == "running" for q in queries[:: sizes.queries // 10]
        )
        rings, restarts = len(engine.rings()), len(_runs(spark) ^ runs)

        drop_ms = []
        for query in queries:
            begin = time.perf_counter()
            query.drop()
            drop_ms.append((time.perf_counter() - begin) * 1000)
    rows = [
        *steady,
        _spread("register", register_ms),
        _spread("registered until in an epoch", live_ms),
        _spread("drop", drop_ms),
    ]
    summary: dict[str, Value] = {
        "queries": sizes.queries,
        "register_p50_ms": float(np.percentile(register_ms, 50)),
        "register_p99_ms": float(np.percentile(register_ms, 99)),
        "live_p50_ms": float(np.percentile(live_ms, 50)),
        "live_p99_ms": float(np.percentile(live_ms, 99)),
        "drop_p50_ms": float(np.percentile(drop_ms, 50)),
        "drop_p99_ms": float(np.percentile(drop_ms, 99)),
        "first_tuples_s": first_tuples_s,
        "rings": rings,
        "restarts": restarts,
        "keeps_up": all(float(row["tuples_per_s"] or 0) > 0.9 * sizes.rate for row in steady),
    }
    return Report("register", quick, rows, summary, agrees and rings == 1 and restarts == 0, on)


def query_text(number: int) -> str:
    low = number % 40
    return f"SELECT id, temp FROM S WHERE id = {number % _IDS} AND temp > {low}"


def _holds(query: Query, number: int) -> bool:
    """Every row that the query got belongs to it."""
    rows = query.results()
    if not rows.num_rows:
        return number % 40 > 20  # warmer than anything that was generated so far
    own = pc.equal(rows["id"], number % _IDS)
    return bool(pc.all(pc.and_(own, pc.greater(rows["temp"], float(number % 40)))).as_py())


def _steady(engine: Engine, ring: str, count: int, seconds: float) -> dict[str, Value]:
    """What the ring reads per second with `count` queries, and how long its micro-batches take."""
    begin, rows = time.perf_counter(), _rows_read(engine, ring)
    took = []
    while time.perf_counter() - begin < seconds:
        time.sleep(min(0.25, seconds / 4))
        took += [r["batch_ms"] for r in engine.rings() if "batch_ms" in r]
    passed = time.perf_counter() - begin
    return {
        "what": f"stream with {count} queries",
        "queries": count,
        "tuples_per_s": (_rows_read(engine, ring) - rows) / passed,
        "batch_ms": float(np.median(took)) if took else None,
    }


def _spread(what: str, ms: list[float]) -> dict[str, Value]:
    p50, p99 = np.percentile(ms, (50, 99))
    return {"what": what, "n": len(ms), "p50_ms": p50, "p99_ms": p99, "max_ms": max(ms)}


@dataclass(slots=True)
class _Seen:
    """Registry versions of the ring's epochs, each with the time at which it was first seen."""

    times: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def when(self, version: int) -> float:
        return self.times[int(np.searchsorted(self.versions, version))]


@contextmanager
def _watch(engine: Engine, ring: str) -> Iterator[_Seen]:
    seen, stop = _Seen(), threading.Event()

    def watch() -> None:
        while not stop.wait(_WATCH_S):
            epoch = engine.registry.last_epoch(ring)
            if epoch is not None and (not seen.versions or epoch.version > seen.versions[-1]):
                seen.times.append(time.perf_counter())
                seen.versions.append(epoch.version)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _rows_read(engine: Engine, ring: str) -> int:
    known = engine.registry.progress(ring)
    return 0 if known is None else int(known[1]["rows"])


def _runs(spark: SparkSession) -> set[str]:
    return {str(query.runId) for query in spark.streams.active}


def _until(condition, timeout_s: float = 120.0) -> None:
    deadline = time.perf_counter() + timeout_s
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError("the ring did not get there in two minutes")
        time.sleep(0.02)
