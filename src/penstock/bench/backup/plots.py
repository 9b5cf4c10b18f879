"""The plots of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from penstock.bench.drawing import Rows, empty_figure, numbers, write_plots

MODES = {
    "plain": {"color": "#d55e00", "marker": "x"},
    "block": {"color": "#009e73", "marker": "v"},
    "adaptive": {"color": "#0072b2", "marker": "o"},
    "adaptive, paper": {"color": "#56b4e9", "marker": "s"},
}
MEASURED = {"all": {"color": "#d55e00"}, "partial": {"color": "#0072b2"}}


def draw_all(series: Mapping[str, Rows], directory: Path) -> None:
    write_plots(series, _figures, directory)


def _figures(series: Mapping[str, Rows]) -> dict[str, Figure]:
    return {
        "loss": _loss(series["loss"]),
        "monitoring": _monitoring(series["monitoring"]),
        "recovery": _recovery(series["recovery"]),
    }


def _loss(rows: Rows) -> Figure:
    figure, (left, right) = empty_figure(2)
    for mode, look in MODES.items():
        mine = [row for row in rows if row["mode"] == mode]
        lost = [100 * share for share in numbers(mine, "lost_share")]
        left.plot(numbers(mine, "rate"), lost, label=mode, **look)
        right.plot(numbers(mine, "rate"), numbers(mine, "reached_per_s"), label=mode, **look)
    left.set(ylabel="lost (%)", ylim=(-2, 100))
    right.set(ylabel="tuples/s that the upstream reached", yscale="log")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="tuples/s that were offered")
    left.legend(fontsize=8)
    return figure


def _monitoring(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 6.0)
    for measured, look in MEASURED.items():
        mine = [row for row in rows if row["measured"] == measured]
        shares = [100 * share for share in numbers(mine, "monitor_cpu")]
        axes.plot(numbers(mine, "rate"), shares, marker="o", label=measured, **look)
    axes.set(xlabel="tuples/s", ylabel="processor time of measuring (% of a core)", ylim=(0, None))
    axes.legend()
    return figure


def _recovery(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 6.0)
    schemes = [str(row["scheme"]) for row in rows]
    axes.barh(schemes, numbers(rows, "recovery_p50_s"), color="#0072b2")
    axes.set(xscale="log", xlabel="seconds until all is read again after kill −9 (median)")
    axes.invert_yaxis()
    return figure
