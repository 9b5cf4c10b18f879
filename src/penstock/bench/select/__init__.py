"""Selection: thousands of predicates in one pass, by attribute.

Experiments 1 to 5 are those of Lee and Lee (`experiments`); 6 is the kernel with up to 100,000
queries (`speed`), 7 runs on Spark (`on_spark`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.bench.machine import machine
from penstock.bench.real_data import NotHere
from penstock.bench.report import Report, Value
from penstock.bench.select import experiments, queries
from penstock.bench.select.experiments import KINDS, NEVER, STREAMS, TICKETS, Cost
from penstock.bench.select.speed import kernel_row

Row = dict[str, Value]
_NEAR = 1.1  # of the visits of the best order: what macssas may need for the report to agree
_STREAMS = ("D1", "D2", "D3")


@dataclass(frozen=True, slots=True)
class Sizes:
    """stretch: tuples until the stream of experiment 5 changes; period: its λ."""

    one_attribute_tuples: int
    predicates: Sequence[int]
    tuples: int
    orders: int
    seeds: int
    attributes: Sequence[int]
    changes: Sequence[float]
    stretch: int
    period: int
    queries: Sequence[int]


FULL = Sizes(
    one_attribute_tuples=5_000_000,
    predicates=(10, 30, 100, 300, 1000),
    tuples=1_000_000,
    orders=2000,
    seeds=5,
    attributes=(4, 8, 12, 16, 20),
    changes=(0.02, 0.05, 0.1, 0.2, NEVER),
    stretch=1_000_000,
    period=80_000,
    queries=(100, 1000, 10_000, 100_000),
)
QUICK = Sizes(
    one_attribute_tuples=500_000,
    predicates=(10, 100, 1000),
    tuples=200_000,
    orders=200,
    seeds=2,
    attributes=(4, 12, 20),
    changes=(0.05, 0.2, NEVER),
    stretch=200_000,
    period=16_000,
    queries=(100, 1000, 10_000, 100_000),
)


def measure(quick: bool) -> Report:
    from penstock.bench.select import on_spark

    on = machine()
    say("on Spark")
    found, spark_summary, spark_agrees = on_spark.measure(quick)
    spark_rows: list[Row] = [{"experiment": "7 on Spark", **row} for row in found]
    report = contend(QUICK if quick else FULL, quick, on)
    return replace(
        report,
        rows=[*report.rows, *spark_rows],
        summary=report.summary | spark_summary,
        agrees=report.agrees and spark_agrees,
        series=report.series | {"on_spark": spark_rows},
    )


def contend(sizes: Sizes, quick: bool, on: dict[str, Any]) -> Report:
    one_rows, one_right = _one_attribute(sizes)
    made_rows, made_right = _orders(sizes)
    census_rows, census_right = _census(sizes)
    say("experiment 4")
    drop_rows = [experiments.dropping(n, sizes.tuples, 0) for n in sizes.attributes]
    adapt_rows, adapt_series = _adapting(sizes)
    kernel_rows, kernel_right = _kernel(sizes)
    order_rows = [*made_rows, *census_rows]
    near = max(float(r["worst_vs_best"] or 0) for r in order_rows if r["method"] == "macssas")
    ahead = min(float(r["least_vs_macssas"] or 0) for r in order_rows if r["method"] in TICKETS)
    summary = {
        "kernel_tuples_per_s": _by_queries(kernel_rows, "tuples_per_s"),
        "numpy_tuples_per_s": _by_queries(kernel_rows, "numpy_tuples_per_s"),
        "kernel_add_query_ms": _by_queries(kernel_rows, "add_query_ms"),
        "memory_mb": _by_queries(kernel_rows, "memory_mb"),
        "visits": _visits(order_rows),
        "macssas_vs_best": near,
        "ticket_vs_macssas": ahead,
    }
    series = {
        "one_attribute": one_rows,
        "orders": order_rows,
        "dropping": drop_rows,
        **adapt_series,
        "kernel": kernel_rows,
    }
    rows = [*one_rows, *order_rows, *drop_rows, *adapt_rows, *kernel_rows]
    agrees = one_right and made_right and census_right and kernel_right and near <= _NEAR
    return Report("select", quick, rows, summary, agrees, on, "experiment", series)


def draw(report: Report, directory: Path) -> None:
    """Write the plots of a report, and what they show as CSV."""
    from penstock.bench.select.plots import draw_all

    draw_all(report.series, directory)


def say(text: str) -> None:
    print(f"select: {text}", file=sys.stderr, flush=True)


def _one_attribute(sizes: Sizes) -> tuple[list[Row], bool]:
    found = []
    for kind in KINDS:
        say(f"experiment 1, {kind}")
        found += [
            experiments.one_attribute(kind, count, sizes.one_attribute_tuples, 0)
            for count in sizes.predicates
        ]
    return [row for row, _ in found], all(right for _, right in found)


def _orders(sizes: Sizes) -> tuple[list[Row], bool]:
    rows: list[Row] = []
    agrees = True
    for name in _STREAMS:
        say(f"experiment 2, {name}, {sizes.seeds} seeds")
        by_seed: list[dict[str, Cost]] = []
        for seed in range(sizes.seeds):
            asked = experiments.made_queries(queries.ORDERS, seed)
            stream = experiments.made_stream(name, asked, sizes.tuples, seed)
            costs, right = experiments.compare_orders(stream, asked, sizes.orders, seed)
            by_seed.append(costs)
            agrees = agrees and right
        rows += experiments.order_rows("2 orders of attributes", name, by_seed)
    return rows, agrees


def _census(sizes: Sizes) -> tuple[list[Row], bool]:
    by_name: dict[str, list[dict[str, Cost]]] = {}
    agrees = True
    for seed in range(sizes.seeds):
        say(f"experiment 3, census, seed {seed}")
        try:
            streams, asked = experiments.census_streams(sizes.tuples, seed)
        except NotHere as why:
            say(f"the census is skipped: {why}")
            break
        for name, stream in streams.items():
            costs, right = experiments.compare_orders(stream, asked, sizes.orders, seed)
            by_name.setdefault(name, []).append(costs)
            agrees = agrees and right
    rows = [
        row
        for name, by_seed in by_name.items()
        for row in experiments.order_rows("3 orders of attributes, census", name, by_seed)
    ]
    return rows, agrees


def _adapting(sizes: Sizes) -> tuple[list[Row], dict[str, list[Row]]]:
    rows: list[Row] = []
    series: dict[str, list[Row]] = {}
    for key, name in zip(("adapting", "adapting_pulses"), STREAMS, strict=True):
        say(f"experiment 5, {name}")
        found, series[key] = experiments.adapting(
            name,
            sizes.changes,
            sizes.stretch,
            sizes.period,
            sizes.orders,
            sizes.seeds,
        )
        rows += found
    return rows, series


def _kernel(sizes: Sizes) -> tuple[list[Row], bool]:
    found = []
    for k in sizes.queries:
        say(f"kernel, {k} queries")
        found.append(kernel_row(k))
    return [row for row, _ in found], all(right for _, right in found)


def _by_queries(rows: Sequence[Row], figure: str) -> dict[str, Value]:
    return {str(row["queries"]): row[figure] for row in rows if row[figure] is not None}


def _visits(rows: Sequence[Row]) -> dict[str, dict[str, Value]]:
    """data -> method -> visits for each tuple."""
    found: dict[str, dict[str, Value]] = {}
    for row in rows:
        found.setdefault(str(row["data"]), {})[str(row["method"])] = row["visits_per_tuple"]
    return found
