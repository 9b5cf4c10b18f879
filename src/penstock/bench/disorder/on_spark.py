"""DRATIO on Spark against Structured Streaming with a watermark picked by hand, side by side.

The same tuples come in at real speed, file by file, to one engine after the other: short delays,
then for a while long ones, then short ones again. Both count tuples per second of event time. A
result's latency is the time from the end of its window until it is delivered; what is missing from
all results is lost. The watermark is tried from long to short until it loses too much: the
shortest that keeps it counts, which is what someone who knew the future would write.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.bench.contest import NATIVE_STORES, scratch
from penstock.bench.disorder.replay import Trace, oracle_delay
from penstock.runtime.engine import Engine
from penstock.runtime.session import session_settings, start_spark

RATIO = 0.01
COLUMNS = "ts TIMESTAMP, got TIMESTAMP"
LONGEST = 5.0  # delay, in mean delays
_SECOND = 1_000_000
_TIMEOUT_S = 300.0
_LATER_US = 3_600 * _SECOND


@dataclass(frozen=True, slots=True)
class Feed:
    """Phases of (seconds, mean delay in seconds); results of the first are not timed."""

    phases: tuple[tuple[float, float], ...]
    rate: int = 5_000
    file_s: float = 0.25
    seed: int = 7

    @property
    def seconds(self) -> float:
        return sum(s for s, _ in self.phases)

    def tuples(self) -> tuple[np.ndarray, np.ndarray]:
        """Event and arrival times in order of arrival; microseconds from the start."""
        random = np.random.default_rng(self.seed)
        number = int(self.seconds * self.rate)
        event = np.sort(random.uniform(0, self.seconds, number))
        ends = np.cumsum([s for s, _ in self.phases])
        phase = np.minimum(np.searchsorted(ends, event, "right"), len(self.phases) - 1)
        mean = np.array([m for _, m in self.phases])[phase]
        arrival = event + np.minimum(random.exponential(1, number), LONGEST) * mean
        order = np.argsort(arrival, kind="stable")
        times = np.stack([event, arrival])[:, order] * _SECOND
        return times[0].astype(np.int64), times[1].astype(np.int64)


QUICK = Feed(((8, 0.3), (15, 0.3), (8, 4.0), (25, 0.3)))
FULL = Feed(((15, 0.3), (45, 0.3), (20, 6.0), (60, 0.3), (20, 3.0), (60, 0.3)))
# watermarks in parts of the constant delay that loses exactly what is allowed, decided each second
GUESSES = (1.0, 0.85, 0.7, 0.55, 0.4)
STRETCH = 100_000


@dataclass(slots=True)
class Heard:
    """Results as they come: (window end, tuples counted, the time then)."""

    rows: list[tuple[int, int, float]] = field(default_factory=list)

    def __call__(self, table: pa.Table) -> None:
        now = time.time()
        ends = table.column(0).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        self.rows += [
            (end, n, now) for end, n in zip(ends, table.column(1).to_pylist(), strict=True)
        ]


def measure(quick: bool) -> dict[str, Any]:
    """The summary's part on Spark."""
    feed = QUICK if quick else FULL
    spark = start_spark()
    try:
        ours = _run(feed, partial(_penstock, spark))
        tried = []
        enough_us = oracle_delay(Trace("feed", *feed.tuples()), feed.rate, RATIO)
        for part in GUESSES:
            slack_ms = round(enough_us * part / 1000)
            found = _run(feed, partial(_native, spark, slack_ms))
            tried.append({"watermark_s": slack_ms / 1000, **found})
            if found["drop_ratio"] > RATIO:
                break
    finally:
        spark.stop()
    kept = [t for t in tried if t["drop_ratio"] <= RATIO]
    best = min(kept, key=lambda t: t["watermark_s"]) if kept else None
    return {
        **ours,
        "target": RATIO,
        "native_latency_s": None if best is None else best["latency_s"],
        "native_watermark_s": None if best is None else best["watermark_s"],
        "native": tried,
    }


@dataclass(frozen=True, slots=True)
class _Running:
    """A query that reads an inbox: `finish` reads what is left and closes all windows."""

    finish: Callable[[], None]
    stop: Callable[[], None]


def _run(feed: Feed, start: Callable[[Path, Heard], _Running]) -> dict[str, Any]:
    heard = Heard()
    with scratch() as directory:
        inbox = directory / "inbox"
        inbox.mkdir()
        running = start(inbox, heard)
        try:
            start_us = _play(feed, inbox)
            ended = time.time()
            running.finish()
        finally:
            running.stop()
    lost, made = _lost(feed, start_us, heard)
    timed_from = start_us + int(feed.phases[0][0] * _SECOND)
    # what only the end of the feed let out says nothing about the engine
    waits = [at - end / _SECOND for end, _, at in heard.rows if end > timed_from and at <= ended]
    return {
        "drop_ratio": float(lost.sum() / made.sum()),
        "worst_stretch": worst_stretch(lost, made, STRETCH),
        "latency_s": statistics.fmean(waits),
        "latency_p95_s": float(np.quantile(waits, 0.95)),
        "timed_results": len(waits),
    }


def _lost(feed: Feed, start_us: int, heard: Heard) -> tuple[np.ndarray, np.ndarray]:
    """By window: tuples that no result counts, and all tuples."""
    event, _ = feed.tuples()
    window = (event + start_us) // _SECOND
    made = np.bincount(window - window.min())
    counted = np.zeros(made.size, np.int64)
    for end, n, _ in heard.rows:
        at = end // _SECOND - 1 - window.min()
        if 0 <= at < made.size:
            counted[at] += n
    return made - counted, made


def worst_stretch(lost: np.ndarray, made: np.ndarray, tuples: int) -> float:
    """The largest share lost of any windows in a row that hold at least so many tuples.

    >>> worst_stretch(np.array([0, 2, 0, 0]), np.array([10, 10, 10, 10]), 20)
    0.1
    """
    worst, first, total, gone = 0.0, 0, 0, 0
    for last in range(made.size):
        total, gone = total + int(made[last]), gone + int(lost[last])
        while total - made[first] >= tuples:
            total, gone = total - int(made[first]), gone - int(lost[first])
            first += 1
        if total >= tuples:
            worst = max(worst, gone / total)
    return worst


def _play(feed: Feed, inbox: Path) -> int:
    """Write the feed at its own speed; the time it began."""
    event, arrival = feed.tuples()
    files = int(arrival.max() / _SECOND / feed.file_s) + 1
    cuts = np.searchsorted(arrival, np.arange(files + 1) * int(feed.file_s * _SECOND))
    begin = time.time()
    start_us = int(begin * _SECOND)
    for number in range(files):
        due = begin + (number + 1) * feed.file_s
        time.sleep(max(0.0, due - time.time()))
        if due - begin > feed.seconds + 1 and cuts[number] == cuts[number + 1]:
            continue
        rows = slice(cuts[number], cuts[number + 1])
        _write(inbox, number, event[rows] + start_us, arrival[rows] + start_us)
    return start_us


def _write(inbox: Path, number: int, event_us: np.ndarray, arrival_us: np.ndarray) -> None:
    kind = pa.timestamp("us", tz="UTC")
    table = pa.table({"ts": pa.array(event_us, kind), "got": pa.array(arrival_us, kind)})
    beside = inbox / f"_{number:06d}"
    pq.write_table(table, beside)
    os.replace(beside, inbox / f"{number:06d}.parquet")


def _penstock(spark: SparkSession, inbox: Path, heard: Heard) -> _Running:
    engine = Engine(spark, settings={"trigger_ms": 10, "state_store": "memory"})
    engine.execute(
        f"CREATE STREAM S ({COLUMNS}) WITH (source = 'file', format = 'parquet', "
        f"path = '{inbox}', event_time = 'ts', arrival_time = 'got')"
    )
    engine.register(
        "SELECT window_end AS at, count(*) AS n FROM S [RANGE 1 SECOND DRATIO 1%]",
        sink=lambda table: heard(table.select(["at", "n"])),
    )
    return _Running(lambda: engine.finish(_TIMEOUT_S), engine.stop)


def _native(spark: SparkSession, slack_ms: int, inbox: Path, heard: Heard) -> _Running:
    def collect(frame: DataFrame, _: int) -> None:
        table = frame.toArrow()
        if table.num_rows:
            heard(table)

    frame = (
        spark.readStream.schema(COLUMNS)
        .parquet(str(inbox))
        .withWatermark("ts", f"{slack_ms} milliseconds")
        .groupBy(F.window("ts", "1 second").alias("window"))
        .agg(F.expr("count(*) n"))
        .select("window.end", "n")
    )
    checkpoint = inbox.with_name("checkpoint")
    with session_settings(spark, NATIVE_STORES["memory"]):
        query = (
            frame.writeStream.outputMode("append")
            .foreachBatch(collect)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def finish() -> None:
        query.processAllAvailable()
        later_us = int(time.time() * _SECOND) + _LATER_US
        for number in (900_000, 900_001):  # they carry the watermark past all windows
            _write(inbox, number, np.array([later_us]), np.array([later_us]))
            query.processAllAvailable()

    return _Running(finish, query.stop)
