"""Benchmarks: one module each, one report format. Loaded when run: they start Spark."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.bench.report import Report

# name -> what it measures; `penstock.bench.<name>.measure(quick)` makes the report
NAMES = {
    "window": "sliding-window aggregates, one and a hundred, against native Structured Streaming",
    "register": "a thousand queries registered and dropped one by one on a running stream",
}


def run(name: str, quick: bool = False, json_path: str | Path | None = None) -> int:
    """Run a benchmark, print its table and write its JSON; the exit status: 0 if results agree."""
    if name not in NAMES:
        raise PenstockError(f"benchmark {name} is not known", f"benchmarks: {', '.join(NAMES)}")
    target = None if json_path is None else Path(json_path)
    if target is not None and not target.absolute().parent.is_dir():  # known before minutes of work
        raise PenstockError(
            f"{target} cannot be written", "the directory does not exist; create it first"
        )
    report: Report = import_module(f"penstock.bench.{name}").measure(quick)
    report.show()
    if target is not None:
        report.write(target)
    return 0 if report.agrees else 1
