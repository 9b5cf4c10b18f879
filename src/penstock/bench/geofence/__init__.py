"""Geofences: points among up to 10,000 polygons, random and real, against shapely's own ways.

1 is the kernel (`speed`), 2 runs on Spark (`on_spark`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.bench.geofence.data import Case, county_case, random_case, zip_case
from penstock.bench.geofence.speed import kernel_row
from penstock.bench.machine import machine
from penstock.bench.real_data import NotHere
from penstock.bench.report import Report, Value

Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Sizes:
    """checked: points that the STRtree looks up as well."""

    points: int
    checked: int
    polygons: Sequence[int] = (10, 100, 1000, 10_000)
    zip_on_spark: Sequence[int] = (10, 100, 1000, 10_000)


FULL = Sizes(points=5_000_000, checked=1_000_000)
QUICK = Sizes(points=1_000_000, checked=100_000, zip_on_spark=(1000,))


def measure(quick: bool) -> Report:
    from penstock.bench.geofence import on_spark

    sizes, on = QUICK if quick else FULL, machine()
    spark_cases = _cases(sizes, sizes.zip_on_spark)
    found, figures, agrees = on_spark.measure(
        spark_cases, on_spark.QUICK if quick else on_spark.FULL
    )
    spark_rows: list[Row] = [{"experiment": "2 on Spark", **row} for row in found]
    report = contend(sizes, quick, on)
    equal = report.agrees and agrees
    return replace(
        report,
        rows=[*report.rows, *spark_rows],
        summary=report.summary | figures | {"equal": equal},
        agrees=equal,
        series=report.series | {"on_spark": spark_rows},
    )


def contend(sizes: Sizes, quick: bool, on: dict[str, Any]) -> Report:
    found = [kernel_row(case, sizes.checked) for case in _cases(sizes, sizes.polygons)]
    rows, agrees = [row for row, _ in found], all(right for _, right in found)
    random_rows = [row for row in rows if row["data"] == "random"]
    real_rows = [row for row in rows if row["data"] != "random"]
    summary = {
        "kernel_points_per_s": _by_polygons(random_rows, "points_per_s"),
        "kernel_vs_strtree": _by_polygons(random_rows, "vs_strtree"),
        "kernel_vs_row_by_row": _by_polygons(random_rows, "vs_row_by_row"),
        "kernel_real_points_per_s": _by_data(real_rows, "points_per_s"),
        "kernel_real_vs_strtree": _by_data(real_rows, "vs_strtree"),
        "memory_mb": _by_polygons(random_rows, "memory_mb"),
        "add_ms": _by_polygons(random_rows, "add_ms"),
        "equal": agrees,
    }
    return Report("geofence", quick, rows, summary, agrees, on, "experiment", {"kernel": rows})


def draw(report: Report, directory: Path) -> None:
    """Write the plots of a report, and what they show as CSV."""
    from penstock.bench.geofence.plots import draw_all

    draw_all(report.series, directory)


def say(text: str) -> None:
    print(f"geofence: {text}", file=sys.stderr, flush=True)


def _cases(sizes: Sizes, zip_areas: Sequence[int]) -> Iterator[Case]:
    for count in sizes.polygons:
        say(f"{count} random polygons")
        yield random_case(count, sizes.points, seed=count)
    try:
        for count in zip_areas:
            say(f"{count} ZIP areas")
            yield zip_case(count, sizes.points, seed=count)
        say("counties")
        yield county_case(sizes.points, seed=0)
    except NotHere as why:
        say(f"real fences are skipped: {why}")


def _by_polygons(rows: Sequence[Row], figure: str) -> dict[str, Value]:
    return {str(row["polygons"]): row[figure] for row in rows}


def _by_data(rows: Sequence[Row], figure: str) -> dict[str, Value]:
    return {f"{row['data']} {row['polygons']}": row[figure] for row in rows}
