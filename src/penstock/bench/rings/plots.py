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
    drawn = {
        "threads": _threads,
        "maximum": _maximum,
        "churn": _churn,
        "queries": _queries,
        "live": _live,
        "changes": _changes,
    }
    return {name: draw(series[name]) for name, draw in drawn.items() if name in series}


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


def _queries(rows: Rows) -> Figure:
    """Tuples per second and memory by number of queries, for every engine, on JSON."""
    figure, (rates, memory) = empty_figure(2)
    for engine in dict.fromkeys(str(row["engine"]) for row in rows):
        own = [row for row in rows if row["engine"] == engine and row["format"] == "json"]
        if len(own) < 2:
            continue
        rates.plot(numbers(own, "queries"), numbers(own, "tuples_per_s"), "o-", label=engine)
        memory.plot(numbers(own, "queries"), numbers(own, "jvm_heap_mb"), "o-", label=engine)
    rates.set(xlabel="queries", ylabel="tuples per second", xscale="log", yscale="log")
    memory.set(xlabel="queries", ylabel="heap of the JVM, MB", xscale="log", ylim=0)
    rates.legend(fontsize=8)
    return figure


def _live(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 6.0)
    for part in ("p50", "p99"):
        axes.plot(numbers(rows, "queries"), numbers(rows, f"live_{part}_s"), "o-", label=part)
    axes.plot(numbers(rows, "queries"), [2 * t for t in numbers(rows, "trigger_s")], "k--")
    axes.set(xlabel="queries", ylabel="registered until live, s", xscale="log", ylim=0)
    axes.legend(fontsize=8, title="dashed: two triggers", title_fontsize=8)
    return figure


def _changes(rows: Rows) -> Figure:
    """Memory, open files and micro-batches while queries come and go."""
    figure, (memory, counts, took) = empty_figure(3, 11.0)
    at_s = numbers(rows, "at_s")
    for name in ("python_mb", "jvm_mb", "workers_mb"):
        memory.plot(at_s, numbers(rows, name), label=name.removesuffix("_mb"))
    for name in ("threads", "open_files", "workspace_files"):
        counts.plot(at_s, numbers(rows, name), label=name.replace("_", " "))
    took.plot(at_s[1:], numbers(rows, "batch_ms")[1:])
    memory.set(xlabel="s", ylabel="MB", ylim=0)
    counts.set(xlabel="s", ylim=0)
    took.set(xlabel="s", ylabel="micro-batch, ms", ylim=0)
    for axes in (memory, counts):
        axes.legend(fontsize=8)
    return figure
