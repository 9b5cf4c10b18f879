"""The plots of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from penstock.bench.drawing import Rows, empty_figure, numbers, write_plots
from penstock.bench.join.cells import DURABLE, IN_MEMORY, OURS, STORED, STREAMS
from penstock.bench.report import Value

# one look for a join or a choice of victims in all plots
JOINS: dict[str, dict[str, Any]] = {
    "biht": {"color": "#0072b2"},
    "mjoin": {"color": "#d55e00"},
    "chain": {"color": "#009e73"},
    "key table": {"color": "#56b4e9"},
    "mjoin, counting": {"color": "#e69f00"},
}
ENGINES: dict[str, dict[str, Any]] = {
    OURS: {"color": "#0072b2"},
    IN_MEMORY: {"color": "#d55e00"},
    "rocksdb, format 2": {"color": "#e69f00"},
    DURABLE: {"color": "#009e73"},
}
VICTIMS: dict[str, dict[str, Any]] = {
    "bits": {"color": "#0072b2"},
    "random": {"color": "#d55e00"},
}


def draw_all(series: Mapping[str, Rows], directory: Path) -> None:
    write_plots(series, _figures, directory)


def _figures(series: Mapping[str, Rows]) -> dict[str, Figure]:
    found = {"on_spark": _on_spark(series["on_spark"])} if "on_spark" in series else {}
    return found | {
        "selectivity": _selectivity(series["selectivity"], "tuples"),
        "selectivity_results": _selectivity(series["selectivity"], "results"),
        "only_keys": _only_keys(series["only_keys"]),
        "over_budget": _over_budget(series["over_budget"], "flushes"),
        "over_budget_results": _over_budget(series["over_budget"], "results"),
    }


def _by(rows: Rows, name: str) -> Iterator[tuple[Value, Rows]]:
    for value in dict.fromkeys(row[name] for row in rows):
        yield value, [row for row in rows if row[name] == value]


def _selectivity(rows: Rows, counted: str) -> Figure:
    """Tuples or results over time, one plot for each selectivity."""
    parts = list(_by(rows, "selectivity"))
    figure, all_axes = empty_figure(len(parts), 10.0)
    for axes, (selectivity, mine) in zip(all_axes, parts, strict=True):
        for join, of_join in _by(mine, "join"):
            millions = [count / 1e6 for count in numbers(of_join, counted)]
            axes.plot(numbers(of_join, "seconds"), millions, label=join, **JOINS[str(join)])
        axes.set(title=f"selectivity {selectivity:g}", xlabel="seconds of one core")
    all_axes[0].set_ylabel(f"million {counted}")
    all_axes[0].legend(fontsize=8)
    return figure


def _only_keys(rows: Rows) -> Figure:
    figure, (axes,) = empty_figure(1, 7.0)
    for place, row in enumerate(rows):
        rate = float(row["tuples_per_s"] or 0) / 1e6
        axes.barh(place, rate, **JOINS[str(row["join"])])
    axes.set_yticks(range(len(rows)), [_join_and_size(row) for row in rows])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="million tuples/s, one core")
    return figure


def _join_and_size(row: Mapping[str, Value]) -> str:
    size = row["other_bytes"]
    return str(row["join"]) if size is None else f"{row['join']}, {size} bytes kept"


def _over_budget(rows: Rows, counted: str) -> Figure:
    """Flushes or results over tuples, one plot for each number of repeats."""
    parts = list(_by(rows, "repeats"))
    figure, all_axes = empty_figure(len(parts), 10.0)
    for axes, (repeats, mine) in zip(all_axes, parts, strict=True):
        for victims, of_victims in _by(mine, "victims"):
            thousands = [count / 1e3 for count in numbers(of_victims, "tuples")]
            counts = numbers(of_victims, counted)
            axes.plot(thousands, counts, label=victims, **VICTIMS[str(victims)])
        axes.set(title=f"tuples per key and stream: {repeats}", xlabel="thousand tuples")
    all_axes[0].set_ylabel(counted)
    all_axes[0].legend(fontsize=8)
    return figure


def _on_spark(rows: Rows) -> Figure:
    """Speeds by number of streams, then by store, then over the selectivity."""
    figure, (streams, stores, sweep) = empty_figure(3, 12.0)
    for axes, part in ((streams, STREAMS), (stores, STORED)):
        mine = [row for row in rows if row["part"] == part]
        counts = sorted({int(row["streams"] or 0) for row in mine})
        engines = sorted(_by(mine, "engine"), key=lambda one: list(ENGINES).index(str(one[0])))
        for place, (engine, of_engine) in enumerate(engines):
            at = [counts.index(int(n)) for n in numbers(of_engine, "streams")]
            width = 0.8 / len(engines)
            axes.bar(
                [x + (place - (len(engines) - 1) / 2) * width for x in at],
                numbers(of_engine, "rows_per_s"),
                width,
                label=engine,
                **ENGINES[str(engine)],
            )
        axes.set_xticks(range(len(counts)), [str(n) for n in counts])
        axes.set(yscale="log", xlabel="streams")
    streams.set(ylabel="rows/s")
    stores.set_ylim(top=5 * stores.get_ylim()[1])  # room for the legend
    stores.legend(fontsize=7, loc="upper left")
    alike = [row for row in rows if row["part"] != STORED]
    for style, (engine, of_engine) in zip(("-", "--"), _by(alike, "engine"), strict=False):
        for marker, (count, of_count) in zip("os^v", _by(of_engine, "streams"), strict=False):
            points = sorted(
                zip(numbers(of_count, "selectivity"), numbers(of_count, "rows_per_s"), strict=True)
            )
            xs, ys = zip(*points, strict=True)
            label = f"{count} streams" if engine == OURS else None
            sweep.plot(xs, ys, style, marker=marker, label=label, **ENGINES[str(engine)])
    sweep.set(xscale="log", yscale="log", xlabel="selectivity")
    sweep.legend(fontsize=7)
    return figure
