"""The plots of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from penstock.bench.drawing import Rows, empty_figure, numbers, write_plots
from penstock.bench.select.experiments import KINDS, STREAMS

# one look for a structure or a method in all plots
STRUCTURES: dict[str, dict[str, Any]] = {
    "asc": {"color": "#0072b2", "marker": "o"},
    "grouped filter": {"color": "#d55e00", "marker": "^"},
    "red-black tree": {"color": "#009e73", "marker": "v"},
    "linked list": {"color": "#555555", "marker": "s"},
    "select": {"color": "#56b4e9", "marker": "d", "linestyle": ":"},
}
METHODS: dict[str, dict[str, Any]] = {
    "best": {"color": "#555555"},
    "macssas": {"color": "#0072b2"},
    "sas": {"color": "#56b4e9"},
    "macs": {"color": "#009e73"},
    "ticket, by queries": {"color": "#e69f00"},
    "ticket": {"color": "#d55e00"},
    "worst": {"color": "#cc79a7"},
}
_BAR = 0.11


def draw_all(series: Mapping[str, Rows], directory: Path) -> None:
    write_plots(series, _figures, directory)


def _figures(series: Mapping[str, Rows]) -> dict[str, Figure]:
    figures = {
        "one_attribute": _one_attribute(series["one_attribute"]),
        "orders": _orders(series["orders"]),
        "dropping": _dropping(series["dropping"]),
        "adapting": _adapting(series["adapting"], series["adapting_pulses"]),
        "kernel": _kernel(series["kernel"]),
    }
    if "on_spark" in series:
        figures["on_spark"] = _on_spark(series["on_spark"])
    return figures


def _one_attribute(rows: Rows) -> Figure:
    figure, all_axes = empty_figure(len(KINDS), 10.0)
    for axes, kind in zip(all_axes, KINDS, strict=True):
        mine = [row for row in rows if row["predicate"] == kind]
        for name, look in STRUCTURES.items():
            millions = [rate / 1e6 for rate in numbers(mine, name)]
            axes.plot(numbers(mine, "predicates"), millions, markersize=4, label=name, **look)
        axes.set(title=kind, xlabel="predicates", xscale="log", yscale="log")
    all_axes[0].set_ylabel("million tuples/s, one core")
    all_axes[0].legend(fontsize=7)
    return figure


def _orders(rows: Rows) -> Figure:
    """Visits of each method, side by side for each stream."""
    figure, (axes,) = empty_figure(1)
    names = list(dict.fromkeys(str(row["data"]) for row in rows))
    for number, (method, look) in enumerate(METHODS.items()):
        mine = {
            str(row["data"]): float(row["visits_per_tuple"] or 0)
            for row in rows
            if row["method"] == method
        }
        places = [place + (number - 3) * _BAR for place in range(len(names))]
        axes.bar(places, [mine[name] for name in names], _BAR, label=method, **look)
    axes.set(ylabel="visits for each tuple")
    axes.set_xticks(range(len(names)), names)
    axes.grid(axis="x", visible=False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


def _dropping(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 5.0)
    for name, color in (("delayed", "#d55e00"), ("immediate", "#0072b2")):
        axes.plot(numbers(rows, "attributes"), numbers(rows, name), "o-", color=color, label=name)
    axes.set(xlabel="attributes", ylabel="visits for each tuple", ylim=(0, None))
    axes.legend()
    return figure


def _adapting(*streams: Rows) -> Figure:
    figure, all_axes = empty_figure(len(streams), 10.0)
    for axes, name, rows in zip(all_axes, STREAMS, streams, strict=True):
        millions = [tuples / 1e6 for tuples in numbers(rows, "tuples")]
        for label in (key for key in rows[0] if key != "tuples"):
            look = {"color": "black", "linestyle": "--"} if label == "best" else {}
            axes.plot(millions, numbers(rows, label), linewidth=1.2, label=label, **look)
        axes.set(title=name, xlabel="million tuples")
    all_axes[0].set_ylabel("visits for each tuple")
    all_axes[0].legend(fontsize=7)
    return figure


def _kernel(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 5.0)
    for name, label in (("tuples_per_s", "select"), ("numpy_tuples_per_s", "NumPy, in turn")):
        mine = [row for row in rows if row[name] is not None]
        axes.plot(numbers(mine, "queries"), numbers(mine, name), "o-", label=label)
    axes.set(xlabel="queries", ylabel="tuples/s, one core", xscale="log", yscale="log")
    axes.legend()
    return figure


def _on_spark(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 7.0)
    for engine in dict.fromkeys(str(row["engine"]) for row in rows):
        mine = [row for row in rows if row["engine"] == engine and row.get("rows_per_s")]
        axes.plot(numbers(mine, "queries"), numbers(mine, "rows_per_s"), "o-", label=engine)
    axes.set(xlabel="queries", ylabel="tuples/s", xscale="log", yscale="log")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure
