"""The benchmark in pieces: `python -m penstock.bench.join.pieces FILE [--minutes M] …`.

Every cell that was measured on Spark is a line of FILE. A run begins no new cell after so many
minutes; the next one goes on with those that are missing. The run that finds none missing does the
experiments on the kernels and writes the report.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.bench.join import FULL as KERNEL_FULL
from penstock.bench.join import QUICK as KERNEL_QUICK
from penstock.bench.join import contend, draw, with_spark
from penstock.bench.join.cells import FULL, QUICK, Cell
from penstock.bench.join.on_spark import rows_of
from penstock.bench.join.spark_summary import Row, agree, summary
from penstock.bench.machine import machine


def rows_in(file: Path) -> list[Row]:
    """What was measured so far; a line that was cut short does not count."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def missing(cells: Sequence[Cell], rows: Sequence[Row]) -> list[Cell]:
    return [cell for cell in cells if not any(cell.facts.items() <= row.items() for row in rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.bench.join.pieces")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plots", type=Path, metavar="DIR")
    given = parser.parse_args(arguments)
    cells = list((QUICK if given.quick else FULL).cells())
    end = time.monotonic() + 60 * given.minutes
    if left := missing(cells, rows_in(given.file)):
        with given.file.open("a") as kept:
            for row in rows_of(left, lambda: time.monotonic() < end):
                kept.write(json.dumps(row) + "\n")
                kept.flush()
        left = missing(cells, rows_in(given.file))
        print(f"{len(cells) - len(left)} of {len(cells)} cells are done", file=sys.stderr)
        if left:
            return 3
    rows = rows_in(given.file)
    kernels = contend(KERNEL_QUICK if given.quick else KERNEL_FULL, given.quick, machine())
    report = with_spark(kernels, rows, summary(rows), agree(rows))
    report.show()
    if given.json is not None:
        report.write(given.json)
    if given.plots is not None:
        draw(report, given.plots)
    return 0 if report.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
