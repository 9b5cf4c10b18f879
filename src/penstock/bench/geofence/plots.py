"""The plot of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from penstock.bench.drawing import Rows, empty_figure, numbers, write_plots

_CONTESTANTS = {
    "points_per_s": ("penstock", "#0072b2"),
    "strtree_points_per_s": ("STRtree, vectorised", "#d55e00"),
    "row_by_row_points_per_s": ("row by row, prepared", "#555555"),
}


def draw_all(series: Mapping[str, Rows], directory: Path) -> None:
    write_plots(series, lambda found: {"kernel": _kernel(found["kernel"])}, directory)


def _kernel(rows: Rows) -> Figure:
    """Each kind of fences beside the other; counties come in one number only."""
    kinds = list(dict.fromkeys(str(row["data"]) for row in rows))
    figure, all_axes = empty_figure(len(kinds), 3.4 * len(kinds))
    for axes, kind in zip(all_axes, kinds, strict=True):
        mine = [row for row in rows if row["data"] == kind]
        for name, (label, color) in _CONTESTANTS.items():
            axes.plot(
                numbers(mine, "polygons"), numbers(mine, name), "o-", color=color, label=label
            )
        axes.set(title=kind, xlabel="polygons", xscale="log", yscale="log")
    all_axes[0].set_ylabel("points/s, one core")
    all_axes[0].legend(fontsize=7)
    return figure
