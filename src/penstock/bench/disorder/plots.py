"""The plots of the report, and the figures behind each as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from penstock.bench.disorder.contest import TARGET
from penstock.bench.disorder.traces import TRACES
from penstock.bench.drawing import Rows, empty_figure, numbers, write_plots

# one look for an estimator in all plots
LOOKS = {
    "oracle": {"color": "#555555", "marker": "s"},
    "quantile": {"color": "#0072b2", "marker": "o"},
    "normal": {"color": "#d55e00", "marker": "^"},
    "max": {"color": "#009e73", "marker": "v"},
    "fixed_p95": {"color": "#cc79a7", "marker": "x"},
    "fixed_p99": {"color": "#e69f00", "marker": "+"},
    "fixed_max": {"color": "#56b4e9", "marker": "d"},
    "fixed_tuples": {"color": "#999933", "marker": "*"},
}
PAPER = ("max", "normal", "quantile")


def draw_all(series: Mapping[str, Rows], directory: Path) -> None:
    write_plots(series, _figures, directory)


def _figures(series: Mapping[str, Rows]) -> dict[str, Figure]:
    figures = {
        "drop_ratio": _drop_ratio(series["drop_ratio"]),
        "buffer": _buffer(series["buffer_by_bound"], series["buffer_by_sigma"]),
        "losses": _losses(series["losses"]),
        "exception": _exception(series["exception"]),
        "families": _contest(series["families"], "family"),
        "following": _following(series["following_step"], series["following_outage"]),
    }
    if series["traces"]:
        figures["traces"] = _contest(_usual_steps(series["traces"]), "trace")
    return figures


def _line(axes: Any, xs: Sequence[float], ys: Sequence[float], estimator: str, **more: Any) -> None:
    look = LOOKS[estimator] | {"markersize": 4, "linewidth": 1.2, "label": estimator} | more
    axes.plot(xs, ys, **look)


def _drop_ratio(grid: Rows) -> Figure:
    """One allowed ratio each: lines by σ would lie on one another, so the range over all σ."""
    ratios = list(dict.fromkeys(numbers(grid, "ratio")))
    figure, all_axes = empty_figure(len(ratios), 2.2 * len(ratios) + 1)
    for axes, ratio in zip(all_axes, ratios, strict=True):
        cells = [row for row in grid if row["ratio"] == ratio]
        bounds = list(dict.fromkeys(numbers(cells, "bound_s")))
        for name in PAPER:
            of_bound = [
                [100 * float(row[name] or 0) for row in cells if row["bound_s"] == bound]
                for bound in bounds
            ]
            _line(axes, bounds, [max(values) for values in of_bound], name)
            least = [min(values) for values in of_bound]
            axes.fill_between(
                bounds,
                least,
                [max(v) for v in of_bound],
                color=LOOKS[name]["color"],
                alpha=0.15,
                linewidth=0,
            )
        axes.axhline(100 * ratio, color="black", linestyle="--", linewidth=1, label="allowed")
        axes.set(title=f"allowed {ratio:.0%}", xlabel="bound B (s)", ylim=(0, None))
    all_axes[0].set_ylabel("lost (%): worst σ, range over σ")
    all_axes[0].legend(fontsize=7, loc="center right")
    return figure


def _buffer(by_bound: Rows, by_sigma: Rows) -> Figure:
    figure, (left, right) = empty_figure(2)
    for axes, rows, over in ((left, by_bound, "bound_s"), (right, by_sigma, "sigma_s")):
        for name in PAPER:
            _line(axes, numbers(rows, over), numbers(rows, f"{name}_waiting"), name)
        for name in ("max", "normal"):
            _line(
                axes,
                numbers(rows, over),
                numbers(rows, f"{name}_size"),
                name,
                linestyle=":",
                label=f"{name}, paper's size",
            )
        axes.set(ylabel="buffer (tuples)", ylim=(0, None))
    left.set(title="σ = 1 s", xlabel="bound B (s)")
    right.set(title="B = 10 s", xlabel="σ (s)")
    left.legend(fontsize=7)
    return figure


def _losses(parts: Rows) -> Figure:
    figure, (left, right) = empty_figure(2)
    tuples = [part + 1 for part in numbers(parts, "part")]
    for name in PAPER:
        lost = numbers(parts, name)
        total = max(sum(lost), 1)
        _line(left, tuples, lost, name, marker="")
        _line(
            right,
            tuples,
            [100 * sum(lost[: i + 1]) / total for i in range(len(lost))],
            name,
            marker="",
        )
    left.set(yscale="symlog", ylim=(0, None), ylabel="lost tuples in each 1% of the stream")
    right.set(ylim=(0, 102), ylabel="of all its losses (%)")
    for axes in (left, right):
        axes.set_xlabel("part of the stream (%)")
    right.legend()
    return figure


def _exception(rows: Rows) -> Figure:
    figure, (left, right) = empty_figure(2)
    for name in PAPER:
        _line(left, numbers(rows, "exception_s"), numbers(rows, f"{name}_waiting"), name)
        _line(right, numbers(rows, "exception_s"), numbers(rows, f"{name}_wait_s"), name)
    left.set_ylabel("mean buffer (tuples)")
    right.set_ylabel("mean waiting time (s)")
    for axes in (left, right):
        axes.set(yscale="log", xlabel="one exceptional delay (s); 0: none")
    left.legend()
    return figure


def _contest(rows: Rows, of: str) -> Figure:
    """Drop ratio and latency of every estimator, side by side for each family or trace."""
    figure, (left, right) = empty_figure(2, 10.0, 4.2)
    names = list(dict.fromkeys(str(row[of]) for row in rows))
    for number, (estimator, look) in enumerate(LOOKS.items()):
        mine = {str(row[of]): row for row in rows if row["estimator"] == estimator}
        places = [i + (number - 3.5) * 0.09 for i in range(len(names))]
        for axes, column, scale in ((left, "drop_ratio", 100), (right, "latency_vs_oracle", 1)):
            ys = [scale * float(mine[name][column] or 0) for name in names]
            axes.plot(places, ys, linestyle="", markersize=5, label=estimator, **look)
    left.axhline(100 * TARGET, color="black", linestyle="--", linewidth=1, label="allowed")
    right.axhline(1.0, color="black", linestyle="--", linewidth=1)
    left.set_yscale("symlog", linthresh=0.1)
    left.set(ylabel="lost (%)", ylim=(-0.005, 10))
    right.set(ylabel="latency / latency of the oracle", yscale="log")
    for axes in (left, right):
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xticks(range(len(names)), names, rotation=25)
        axes.grid(axis="x", visible=False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


def _usual_steps(rows: Rows) -> Rows:
    return [row for row in rows if row["step"] == TRACES[str(row["trace"])][1][1]]


def _following(step: Rows, outage: Rows) -> Figure:
    figure, (left, right) = empty_figure(2, 8.4)
    for axes, rows, title in (
        (left, step, "step: four times the delay, and back"),
        (right, outage, "outage: 5 s in every 100 s, then a burst"),
    ):
        for name in ("max", "normal", "oracle", "quantile"):
            _line(axes, numbers(rows, "time_s"), numbers(rows, name), name, marker="")
        axes.set(
            title=title,
            xlabel="time (s)",
            ylabel="punctuation behind the clock (s)",
            ylim=(0, None),
        )
    left.legend()
    return figure
