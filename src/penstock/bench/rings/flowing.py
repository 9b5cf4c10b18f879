"""A stream that flows on and on, for what is measured while queries come and go."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import SparkSession

from penstock.bench.rings.kinds import KINDS, asked
from penstock.bench.rings.spark_runs import Taken
from penstock.bench.tuples import COLUMNS, SLACK, WEIGHTS
from penstock.plan.catalog import OptionValue
from penstock.runtime.engine import Engine

_STREAM = f"""
CREATE STREAM S ({COLUMNS}) WITH (
  source = 'generator', rate = {{rate}}, start = 'now', event_time = 'ts', estimator = 'fixed',
  slack = '{SLACK}', delay = 'exponential(200 ms)', max_delay = '1 s',
  generate = 'key: uniform(0, 99); v: normal(20, 5); w: uniform(0, {WEIGHTS - 1})')
"""
_WATCH_S = 0.02
_TIMEOUT_S = 300.0


@contextmanager
def flowing(
    spark: SparkSession, rate: int, settings: Mapping[str, OptionValue], kinds: int = len(KINDS)
) -> Iterator[tuple[Engine, list[str]]]:
    """An engine with a query of each kind on a stream of so many tuples per second; its rings."""
    with Engine(spark, settings=settings) as engine:
        engine.execute(_STREAM.format(rate=rate))
        with engine.together():
            first = [
                engine.register(query.text, sink=Taken(False)) for query in asked(kinds, kinds)
            ]
        rings = sorted({query.status.ring for query in first})
        until(lambda: all(rows_read(engine, ring) > 0 for ring in rings))
        yield engine, rings


def rows_read(engine: Engine, ring: str) -> int:
    known = engine.registry.progress(ring)
    return 0 if known is None else int(known[1]["rows"])


def runs(spark: SparkSession) -> set[str]:
    """Of StreamingQueries: one that is started again has another."""
    return {str(query.runId) for query in spark.streams.active}


def batch_ms(engine: Engine) -> float:
    """The last micro-batch of each ring: the median."""
    took = [ring["batch_ms"] for ring in engine.rings() if ring.get("batch_ms")]
    return float(np.median(took)) if took else 0.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + _TIMEOUT_S
    while not condition():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"rings did not get there in {_TIMEOUT_S:.0f} s")
        time.sleep(_WATCH_S)


@dataclass(slots=True)
class Seen:
    """Registry versions of a ring's epochs, each with the time at which it was first seen."""

    times: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)

    def note(self, number: int, version: int) -> None:
        if not self.epochs or number > self.epochs[-1]:
            self.times.append(time.perf_counter())
            self.versions.append(version)
            self.epochs.append(number)

    def has(self, version: int) -> bool:
        return bool(self.versions) and self.versions[-1] >= version

    def when(self, version: int) -> float:
        """From when on epochs carry a version."""
        return self.times[int(np.searchsorted(self.versions, version))]

    @property
    def interval_s(self) -> float:
        """Between two epochs, on average."""
        if len(self.epochs) < 2:
            return float("nan")
        return (self.times[-1] - self.times[0]) / (self.epochs[-1] - self.epochs[0])


@contextmanager
def watched(engine: Engine) -> Iterator[dict[str, Seen]]:
    """The epochs of all rings as they are decided, to some hundredths of a second."""
    seen: dict[str, Seen] = defaultdict(Seen)
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(_WATCH_S):
            for ring in [row.id for row in engine.registry.rings() if row.state == "running"]:
                if (epoch := engine.registry.last_epoch(ring)) is not None:
                    seen[ring].note(epoch.number, epoch.version)

    thread = threading.Thread(target=watch, name="bench-watch", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
