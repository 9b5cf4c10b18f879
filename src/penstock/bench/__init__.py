"""Benchmarks: one module each, one report format. Loaded when run: most start Spark."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.bench.report import Report

# name -> what it measures; `penstock.bench.<name>.measure(quick)` makes the report, `draw` of those
# in PLOTTED its plots
NAMES = {
    "window": "sliding-window aggregates, one and a hundred, against native Structured Streaming",
    "select": "up to 100,000 selections in one pass, against native Structured Streaming and NumPy",
    "join": "m-way joins on a bit-vector hash table, against MJoin and chained hash joins",
    "geofence": "points among up to 10,000 polygons, also on Spark, against an STRtree and a UDF",
    "rings": "a thousand queries in few rings: threads, against a StreamingQuery each, churn, idle",
    "disorder": "drop ratio, latency and buffer of every estimator, on replayed streams",
    "backup": "loss, recovery and cost of upstream backup between nodes, with kills; no Spark",
    "register": "a thousand queries registered and dropped one by one on a running stream",
}
PLOTTED = ("select", "join", "geofence", "rings", "disorder", "backup")


def run(
    name: str,
    quick: bool = False,
    json_path: str | Path | None = None,
    plots: str | Path | None = None,
) -> int:
    """Run a benchmark, print its tables, write its JSON and into the directory `plots` its plots.

    The exit status: 0 if results agree.
    """
    if name not in NAMES:
        raise PenstockError(f"benchmark {name} is not known", f"benchmarks: {', '.join(NAMES)}")
    target = None if json_path is None else Path(json_path)
    if target is not None and not target.absolute().parent.is_dir():  # known before minutes of work
        raise PenstockError(
            f"{target} cannot be written", "the directory does not exist; create it first"
        )
    if plots is not None:
        _may_plot(name)
    benchmark = import_module(f"penstock.bench.{name}")
    report: Report = benchmark.measure(quick)
    report.show()
    if target is not None:
        report.write(target)
    if plots is not None:
        benchmark.draw(report, Path(plots))
    return 0 if report.agrees else 1


def _may_plot(name: str) -> None:
    if name not in PLOTTED:
        raise PenstockError(f"benchmark {name} has no plots", f"with plots: {', '.join(PLOTTED)}")
    if find_spec("matplotlib") is None:
        raise PenstockError("plots need matplotlib", "pip install 'penstock[bench]'")
