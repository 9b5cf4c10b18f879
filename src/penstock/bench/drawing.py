"""What the plots of all benchmarks share: their files, and the figures behind each as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from penstock.bench.report import Value

Rows = Sequence[Mapping[str, Value]]

_DOTS_PER_INCH = 80


def write_plots(
    series: Mapping[str, Rows],
    figures: Callable[[Mapping[str, Rows]], dict[str, Figure]],
    directory: Path,
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, rows in series.items():
        if rows:
            _write_csv(directory / f"{name}.csv", rows)
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3}):
        for name, figure in figures(series).items():
            path = directory / f"{name}.png"
            figure.savefig(path, dpi=_DOTS_PER_INCH, pil_kwargs={"optimize": True})


def _write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(
            file,
            [key for key in rows[0] if key != "experiment"],
            extrasaction="ignore",
            lineterminator="\n",
        )
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)


def _short(value: Value) -> Value:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def empty_figure(columns: int, width: float = 9.0, height: float = 3.6) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def numbers(rows: Rows, name: str) -> list[float]:
    return [float(row[name] or 0) for row in rows]
