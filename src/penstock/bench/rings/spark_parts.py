"""Experiment 2 as a whole: all that is run on Spark, one part after the other, in one session."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.bench.report import Value
from penstock.bench.rings import churn, live, on_spark
from penstock.bench.rings import idle as idling
from penstock.runtime.session import start_spark

Row = dict[str, Value]
Findings = tuple[list[Row], dict[str, Any], dict[str, list[Row]], bool]


@dataclass(frozen=True, slots=True)
class Sizes:
    contest: on_spark.Sizes
    live: live.Sizes
    churn: churn.Sizes
    idle: idling.Sizes


FULL = Sizes(on_spark.FULL, live.Sizes(), churn.FULL, idling.FULL)
QUICK = Sizes(on_spark.QUICK, live.Sizes(steady_s=5.0), churn.QUICK, idling.QUICK)


def measure(quick: bool) -> Findings:
    """Rows, summary, what is drawn, and whether results are right and nothing was restarted."""
    spark = start_spark()
    try:
        return experiment(spark, QUICK if quick else FULL)
    finally:
        spark.stop()


def experiment(spark: SparkSession, sizes: Sizes) -> Findings:
    idle = idling.idle(spark, sizes.idle)
    _say("idle", [idle])
    counts = [n for n in sizes.contest.queries if n > sizes.live.kinds]
    waits = [live.join_running(spark, n, sizes.live) for n in counts]
    _say("live", [row for row, _ in waits])
    samples, changes, undisturbed = churn.churn(spark, sizes.churn)
    _say("churn", [changes])
    contest, equal = on_spark.contest(spark, sizes.contest)
    series = {"queries": contest, "live": [row for row, _ in waits], "changes": samples}
    summary = {
        "queries": by_queries(contest, series["live"]),
        **on_spark.summary(contest, sizes.contest.store),
        "churn": changes,
        "idle_cpu_share_per_ring": idle["cpu_share_per_ring"],
        "rows_equal": equal,
        "nothing_restarted": undisturbed and all(untouched for _, untouched in waits),
    }
    rows = [
        *({"experiment": "2 throughput", **row} for row in contest),
        *({"experiment": "2 live", **row} for row in series["live"]),
        *({"experiment": "2 churn", **row} for row in samples),
        {"experiment": "2 idle", **idle},
    ]
    return rows, summary, series, equal and summary["nothing_restarted"]


def _say(part: str, found: Sequence[Mapping[str, object]]) -> None:
    """What was found so far: the rest takes a while."""
    for row in found:
        print(f"rings on Spark: {part}: {row}", file=sys.stderr, flush=True)


def by_queries(contest: Sequence[Row], waits: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """By number of queries what penstock needs and how long a new one waits for running rings."""
    found: dict[str, dict[str, Any]] = {}
    for row in contest:
        known = found.get(str(row["queries"]), {"tuples_per_s": 0.0})
        faster = float(row["tuples_per_s"] or 0) > known["tuples_per_s"]
        ours = row["engine"] == on_spark.OURS and row["format"] == contest[0]["format"]
        if ours and faster:
            found[str(row["queries"])] = {
                "rings": row["running"],
                "register_to_live_s": None,
                **{name: row[name] for name in ("tuples_per_s", "driver_mb", "driver_cpu_s")},
            }
    for row in waits:
        found[str(row["queries"])]["register_to_live_s"] = {
            "p50": row["live_p50_s"],
            "p99": row["live_p99_s"],
            "trigger_s": row["trigger_s"],
            "interval_s": row["interval_s"],
        }
    return found
