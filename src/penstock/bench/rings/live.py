"""How long a query waits: registered one by one in running rings, while tuples flow.

A query is live when the epoch of a micro-batch of its ring carries it: from there on it sees every
tuple. `interval_s` is the time between two micro-batches of a ring, which is the trigger's unless
there is more to do than that.

`python -m penstock.bench.rings.live N …` runs it for N queries.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
from pyspark.sql import SparkSession

from penstock.bench.report import Report, Value
from penstock.bench.resources import jvm_heap_mb, usage
from penstock.bench.rings.flowing import flowing, rows_read, runs, until, watched
from penstock.bench.rings.kinds import KINDS, asked
from penstock.bench.rings.spark_runs import Taken
from penstock.runtime.session import start_spark

Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Sizes:
    rate: int = 10_000  # tuples per second
    trigger_ms: int = 3000  # so that rings are not all that two cores do
    steady_s: float = 10.0  # before and after queries are registered
    kinds: int = len(KINDS)


def join_running(spark: SparkSession, count: int, sizes: Sizes) -> tuple[Row, bool]:
    """Figures of so many queries, the first of each kind aside; whether nothing was restarted."""
    settings = {"trigger": sizes.trigger_ms}
    with flowing(spark, sizes.rate, settings, sizes.kinds) as (engine, rings):
        time.sleep(sizes.steady_s)
        begun = runs(spark)
        register_s, registered, taken = [], [], []
        with watched(engine) as seen:
            for query in asked(count, sizes.kinds)[sizes.kinds :]:
                sink = Taken(False)
                begin = time.perf_counter()
                known = engine.register(query.text, sink=sink)
                register_s.append(time.perf_counter() - begin)
                registered.append((begin, known.status.ring, engine.registry.version))
                if not query.kind.aggregates:
                    taken.append((begin, sink))
            until(lambda: all(seen[ring].has(version) for _, ring, version in registered))
            read, since = sum(rows_read(engine, ring) for ring in rings), time.perf_counter()
            until(lambda: all(sink.first is not None for _, sink in taken))
            time.sleep(sizes.steady_s)
            passed = time.perf_counter() - since
            read = sum(rows_read(engine, ring) for ring in rings) - read
        live_s = [seen[ring].when(version) - begin for begin, ring, version in registered]
        first_s = [sink.first - begin for begin, sink in taken if sink.first is not None]
        now, heap_mb = usage(), jvm_heap_mb(spark)
        untouched = runs(spark) == begun and len(spark.streams.active) == len(rings)
        row: Row = {
            "queries": count,
            "rings": len(spark.streams.active),
            "trigger_s": sizes.trigger_ms / 1000,
            "interval_s": float(np.mean([seen[ring].interval_s for ring in rings])),
            **_spread("register", register_s),
            **_spread("live", live_s),
            **_spread("first_result", first_s),
            "generated_per_s": sizes.rate,
            "tuples_per_s": read / passed / len(rings),
            "restarts": len(runs(spark) ^ begun),
            "python_mb": now.python_mb,
            "jvm_mb": now.jvm_mb,
            "jvm_heap_mb": heap_mb,
            "workers_mb": now.workers_mb,
        }
    return row, untouched


def _spread(what: str, seconds: list[float]) -> Row:
    if not seconds:
        return {f"{what}_p50_s": None, f"{what}_p99_s": None}
    p50, p99 = np.percentile(seconds, (50, 99))
    return {f"{what}_p50_s": float(p50), f"{what}_p99_s": float(p99)}


def main(counts: list[int]) -> int:
    spark = start_spark()
    try:
        found = [join_running(spark, count, Sizes()) for count in counts]
    finally:
        spark.stop()
    agrees = all(untouched for _, untouched in found)
    Report("rings: live", True, [row for row, _ in found], {"no_restart": agrees}, agrees).show()
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main([int(count) for count in sys.argv[1:]] or [64]))
