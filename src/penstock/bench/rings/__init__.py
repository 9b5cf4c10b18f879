"""Rings against the other ways to give threads to queries.

Experiment 1 is that of Kim et al., 4.1, as a simulation with the planner's own compositions
(`threads`). Experiment 2 is on Spark: throughput against a StreamingQuery for each continuous query
(`on_spark`), how long a new query waits (`live`), queries that come and go (`churn`) and rings that
have nothing to do (`idle`); each of these can be run alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.bench.machine import machine
from penstock.bench.report import Report, Value
from penstock.bench.rings.threads import (
    MAXIMA,
    by_churn,
    by_maximum,
    by_share,
    draw_workload,
)

_SHARES = tuple(percent / 100 for percent in range(0, 101, 10))
_KINDS = 10  # compositions of the similar queries


@dataclass(frozen=True, slots=True)
class Sizes:
    queries: int
    shares: Sequence[float] = _SHARES


FULL = Sizes(queries=1000)
QUICK = Sizes(queries=1000, shares=(0.0, 0.25, 0.5, 0.75, 1.0))


def measure(quick: bool) -> Report:
    from penstock.bench.rings import spark_parts

    report = allocate(QUICK if quick else FULL, quick, machine())
    rows, summary, series, agrees = spark_parts.measure(quick)
    return replace(
        report,
        rows=[*report.rows, *rows],
        summary=report.summary | summary,
        agrees=report.agrees and agrees,
        series=report.series | series,
    )


def allocate(sizes: Sizes, quick: bool, on: dict[str, Any]) -> Report:
    say(f"experiment 1, {sizes.queries} queries")
    workload = draw_workload(sizes.queries, _KINDS, seed=0)
    series = {
        "threads": by_share(workload, sizes.shares),
        "maximum": by_maximum(workload, MAXIMA),
        "churn": by_churn(workload, seed=0),
    }
    rows = [row for part in series.values() for row in part]
    agrees = all(row["valid"] for row in rows) and workload.compositions == _KINDS
    summary = {
        "threads": _threads(series["threads"]),
        "threads_made_again": {str(r["policy"]): r["threads_made_again"] for r in series["churn"]},
        "similar_queries": len(workload.similar),
        "compositions_of_similar_queries": workload.compositions,
        "allocations_valid": agrees,
    }
    return Report("rings", quick, rows, summary, agrees, on, "experiment", series)


def _threads(rows: Sequence[dict[str, Value]]) -> dict[str, dict[str, Value]]:
    """By the share of similar queries in percent, threads by policy."""
    found: dict[str, dict[str, Value]] = {}
    for row in rows:
        found.setdefault(str(row["similar_percent"]), {})[str(row["policy"])] = row["threads"]
    return found


def draw(report: Report, directory: Path) -> None:
    """Write the plots of a report, and what they show as CSV."""
    from penstock.bench.rings.plots import draw_all

    draw_all(report.series, directory)


def say(text: str) -> None:
    print(f"rings: {text}", file=sys.stderr, flush=True)
