"""The plots of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from penstock.bench.drawing import Rows, empty_figure, numbers, write_plots
from penstock.bench.geofence.on_spark import BOXES, OURS, TREE, UDF

_COLORS = {OURS: "#0072b2", TREE: "#d55e00", BOXES: "#e69f00", UDF: "#555555"}
_CONTESTANTS = {
    "points_per_s": ("penstock", "#0072b2"),
    "strtree_points_per_s": ("STRtree, vectorised", "#d55e00"),
    "row_by_row_points_per_s": ("row by row, prepared", "#555555"),
}


def draw_all(series: Mapping[str, Rows], directory: Path) -> None:
    write_plots(series, _figures, directory)


def _figures(series: Mapping[str, Rows]) -> dict[str, Figure]:
    figures = {"kernel": _kernel(series["kernel"])}
    if "on_spark" in series:
        figures["on_spark"] = _on_spark(series["on_spark"])
    return figures


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


def _on_spark(rows: Rows) -> Figure:
    """Random polygons by their number, and the real ones beside them."""
    kinds = list(dict.fromkeys(str(row["data"]) for row in rows))
    figure, all_axes = empty_figure(len(kinds), 3.4 * len(kinds))
    for axes, kind in zip(all_axes, kinds, strict=True):
        for engine, color in _COLORS.items():
            mine = [row for row in rows if (row["data"], row["engine"]) == (kind, engine)]
            known = [row for row in mine if row["points_per_s"] is not None]
            xs, ys = numbers(known, "polygons"), numbers(known, "points_per_s")
            axes.plot(xs, ys, "o-", color=color, label=engine)
        axes.set(title=kind, xlabel="polygons", xscale="log", yscale="log")
    all_axes[0].set_ylabel("points/s on Spark")
    all_axes[0].legend(fontsize=7)
    return figure
