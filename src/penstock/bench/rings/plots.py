"""The plots of the report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from penstock.bench.drawing import Rows, empty_figure, numbers, write_plots

# one look for a policy in all plots
POLICIES: dict[str, dict[str, Any]] = {
    "ots": {"color": "#d55e00", "marker": "v"},
    "gts": {"color": "#009e73", "marker": "s"},
    "hmts": {"color": "#e69f00", "marker": "^"},
    "rots": {"color": "#0072b2", "marker": "o"},
}


def draw_all(series: Mapping[str, Rows], directory: Path) -> None:
    write_plots(series, _figures, directory)


def _figures(series: Mapping[str, Rows]) -> dict[str, Figure]:
    return {
        "threads": _threads(series["threads"]),
        "maximum": _maximum(series["maximum"]),
        "churn": _churn(series["churn"]),
    }


def _threads(rows: Rows) -> Figure:
    """Figure 4 of the paper."""
    figure, (axes,) = empty_figure(1, 6.0)
    for policy, look in POLICIES.items():
        own = [row for row in rows if row["policy"] == policy]
        axes.plot(numbers(own, "similar_percent"), numbers(own, "threads"), label=policy, **look)
    axes.set(xlabel="similar queries, % of all", ylabel="threads", yscale="log")
    axes.legend(fontsize=8)
    return figure


def _maximum(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 6.0)
    axes.plot(numbers(rows, "maximum"), numbers(rows, "threads"), **POLICIES["rots"])
    axes.set(xlabel="maximum capacity value of a ring", ylabel="rings", xscale="log", ylim=0)
    return figure


def _churn(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 6.0)
    for row in rows:
        policy = str(row["policy"])
        made = float(row["threads_made_again"] or 0)
        axes.bar(policy, made, color=POLICIES[policy]["color"])
    axes.set(ylabel="threads made while all queries are replaced")
    return figure
