"""Queries come and go a hundred times a second while tuples flow: what grows, and what stops.

There are ten kinds of queries and a standing number of them; whenever it is above that one goes,
else one comes, at random. After a warm-up, memory, threads, files and the registry are looked at
every few seconds. Growth is the mean of the last samples less that of the first; of the JVM it is
what its objects take after garbage is collected.

`python -m penstock.bench.rings.churn SECONDS` runs it for that long after the warm-up.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from penstock.bench.report import Report, Value
from penstock.bench.resources import jvm_heap_mb, usage
from penstock.bench.rings.flowing import batch_ms, flowing, rows_read, runs
from penstock.bench.rings.kinds import KINDS, asked
from penstock.bench.rings.spark_runs import Taken
from penstock.runtime.engine import Engine
from penstock.runtime.query import Query
from penstock.runtime.session import start_spark

Row = dict[str, Value]
_TEXTS = 5000  # that come in turn


@dataclass(frozen=True, slots=True)
class Sizes:
    """edge_s: how much of the beginning and of the end are compared."""

    seconds: float
    warm_up_s: float
    sample_s: float
    edge_s: float
    per_s: int = 100
    standing: int = 200
    rate: int = 10_000
    trigger_ms: int = 3000
    kinds: int = len(KINDS)


FULL = Sizes(seconds=600.0, warm_up_s=60.0, sample_s=10.0, edge_s=60.0)
QUICK = Sizes(seconds=45.0, warm_up_s=20.0, sample_s=3.0, edge_s=12.0)


@dataclass(slots=True)
class _Coming:
    """Registers and drops, paced; keeps how long each took."""

    engine: Engine
    texts: Sequence[str]
    per_s: int
    standing: int
    random: random.Random
    queries: list[Query] = field(default_factory=list)
    made: int = 0
    took: dict[str, list[float]] = field(default_factory=lambda: {"register": [], "drop": []})

    def fill(self) -> None:
        with self.engine.together():
            while len(self.queries) < self.standing:
                self._register()

    def go_on(self, seconds: float) -> float:
        """Change queries for so long; how many changes there were in a second."""
        begin, done = time.perf_counter(), 0
        while (now := time.perf_counter()) < begin + seconds:
            due = begin + done / self.per_s
            if now < due:
                time.sleep(due - now)
            self._change()
            done += 1
        return done / (time.perf_counter() - begin)

    def _change(self) -> None:
        begin = time.perf_counter()
        wanted = self.standing + self.random.randint(-self.standing // 4, self.standing // 4)
        if drops := len(self.queries) > wanted:
            place = self.random.randrange(len(self.queries))
            self.queries[place], self.queries[-1] = self.queries[-1], self.queries[place]
            self.queries.pop().drop()
        else:
            self._register()
        self.took["drop" if drops else "register"].append(time.perf_counter() - begin)

    def _register(self) -> None:
        self.made += 1
        text = self.texts[self.made % len(self.texts)]
        self.queries.append(self.engine.register(text, sink=Taken(False)))


def churn(spark: SparkSession, sizes: Sizes) -> tuple[list[Row], dict[str, Any], bool]:
    """Samples, summary, and whether no StreamingQuery was started, stopped or started again, and
    nothing grew."""
    settings = {"trigger": sizes.trigger_ms}
    with flowing(spark, sizes.rate, settings, sizes.kinds) as (engine, rings):
        texts = [query.text for query in asked(_TEXTS, sizes.kinds)]
        coming = _Coming(engine, texts, sizes.per_s, sizes.standing, random.Random(0))
        coming.fill()
        _say(f"warm-up, {sizes.warm_up_s:.0f} s")
        coming.go_on(sizes.warm_up_s)
        begun, heap_mb = runs(spark), jvm_heap_mb(spark)
        _say(f"{sizes.seconds:.0f} s")
        begin, samples = time.perf_counter(), [_sample(engine, rings, 0.0, 0.0)]
        coming.took = {"register": [], "drop": []}
        while (passed := time.perf_counter() - begin) < sizes.seconds:
            per_s = coming.go_on(min(sizes.sample_s, sizes.seconds - passed))
            passed = time.perf_counter() - begin
            samples.append(_sample(engine, rings, passed, per_s))
        restarts = len(runs(spark) ^ begun)
        grown = {"jvm_heap_mb": jvm_heap_mb(spark) - heap_mb} | growth(samples, sizes.edge_s)
        states = {query.status.state for query in coming.queries}
        same_rings = {ring["ring"] for ring in engine.rings()} == set(rings)
        undisturbed = restarts == 0 and states == {"running"} and same_rings
    summary = {
        "per_s": _mean(samples[1:], "changes_per_s"),
        "seconds": passed,
        "restarts": restarts,
        "memory_growth_mb": sum(grown[name] for name in ("python_mb", "jvm_heap_mb", "workers_mb")),
        "growth": grown,
        "leaks": leaks(grown),
        "batch_ms": _first_and_last(samples[1:], "batch_ms", sizes.edge_s),
        "register_ms": _percentiles_ms(coming.took["register"]),
        "drop_ms": _percentiles_ms(coming.took["drop"]),
        "states": sorted(states),
    }
    return samples, summary, undisturbed and not summary["leaks"]


def _sample(engine: Engine, rings: Sequence[str], at_s: float, per_s: float) -> Row:
    now = usage()
    catalog = engine.workspace.catalog
    registry = [catalog, catalog.with_name(f"{catalog.name}-wal")]
    files = _files(engine.workspace.path)
    return {
        "at_s": at_s,
        "changes_per_s": per_s,
        "python_mb": now.python_mb,
        "jvm_mb": now.jvm_mb,
        "workers_mb": now.workers_mb,
        "workers": now.workers,
        "threads": now.threads,
        "open_files": now.files,
        "sqlite_mb": sum(_size(path) for path in registry) / 2**20,
        "workspace_files": len(files),
        "workspace_mb": sum(map(_size, files)) / 2**20,
        "batch_ms": batch_ms(engine),
        "tuples": sum(rows_read(engine, ring) for ring in rings) / len(rings),
        "cpu_s": now.cpu_s,
    }


def _files(directory: Path) -> list[Path]:
    return [Path(at) / name for at, _, names in os.walk(directory) for name in names]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # Spark has removed it
        return 0


_GROWING = (
    "python_mb",
    "jvm_mb",
    "workers_mb",
    "workers",
    "threads",
    "open_files",
    "sqlite_mb",
    "workspace_files",
    "workspace_mb",
)


# What may come and go in ten minutes; what leaks at a hundred changes per second is far above.
_ALLOWED = {
    "python_mb": 64.0,
    "jvm_heap_mb": 64.0,
    "threads": 16.0,
    "open_files": 64.0,
    "sqlite_mb": 8.0,
}


def leaks(grown: Mapping[str, float]) -> list[str]:
    """What has grown more than it may.

    >>> leaks({"python_mb": 12.0, "threads": 300.0})
    ['threads']
    """
    return [name for name, most in _ALLOWED.items() if grown.get(name, 0.0) > most]


def growth(samples: Sequence[Row], edge_s: float) -> dict[str, float]:
    """By figure, the mean of the last samples less that of the first."""
    return {
        name: last - first
        for name in _GROWING
        for first, last in [_first_and_last(samples, name, edge_s)]
    }


def _first_and_last(samples: Sequence[Row], name: str, edge_s: float) -> tuple[float, float]:
    begin, end = float(samples[0]["at_s"] or 0), float(samples[-1]["at_s"] or 0)
    first = [s for s in samples if float(s["at_s"] or 0) <= begin + edge_s]
    last = [s for s in samples if float(s["at_s"] or 0) >= end - edge_s]
    return _mean(first, name), _mean(last, name)


def _mean(samples: Sequence[Row], name: str) -> float:
    return float(np.mean([float(sample[name] or 0) for sample in samples]))


def _percentiles_ms(seconds: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(seconds, (50, 99)) * 1000
    return {"p50": float(p50), "p99": float(p99), "max": 1000 * max(seconds)}


def _say(text: str) -> None:
    print(f"rings: churn, {text}", file=sys.stderr, flush=True)


def main(seconds: float) -> int:
    sizes = replace(FULL if seconds >= 300 else QUICK, seconds=seconds)
    spark = start_spark()
    try:
        samples, summary, agrees = churn(spark, sizes)
    finally:
        spark.stop()
    report = Report("rings: churn", seconds < 300, samples, summary, agrees)
    report.show()
    print(summary)
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else QUICK.seconds))
