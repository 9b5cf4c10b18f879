"""Sliding-window aggregates: one query, and a hundred, against native Structured Streaming.

One query: the same files through penstock and through Structured Streaming with each of its state
stores, in turns; medians, and the better of the stores counts. A hundred queries of one composition
share one ring in penstock; Structured Streaming runs one StreamingQuery each. A hundred of these
are more than a small machine bears: their time is extrapolated along the line through two counts
that were measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.bench.contest import (
    NATIVE_STORES,
    Outcome,
    WindowQuery,
    run_native,
    run_penstock,
    same_rows,
    scratch,
)
from penstock.bench.machine import machine
from penstock.bench.report import Report, Value
from penstock.bench.tuples import Tuples, write_tuples
from penstock.runtime.session import start_spark


@dataclass(frozen=True, slots=True)
class Sizes:
    one: Tuples
    many: Tuples
    files_per_batch: int
    repetitions: int
    queries: int
    native_counts: tuple[int, int]


FULL = Sizes(Tuples(24, 1_000_000, 120), Tuples(8, 500_000, 40), 4, 5, 100, (8, 24))
QUICK = Sizes(Tuples(8, 1_000_000, 60), Tuples(4, 250_000, 10), 4, 1, 100, (2, 4))
_WARM_UP = Tuples(2, 5_000, 20)


def measure(quick: bool) -> Report:
    on = machine()
    spark = start_spark()
    try:
        return contest(spark, QUICK if quick else FULL, quick, on)
    finally:
        spark.stop()


def contest(spark: SparkSession, sizes: Sizes, quick: bool, on: dict[str, Value]) -> Report:
    with scratch() as directory:
        for name, tuples in (("warm", _WARM_UP), ("one", sizes.one), ("many", sizes.many)):
            write_tuples(directory / name, tuples)
        one, one_summary = _one_query(spark, directory, sizes)
        store = str(one_summary["native_best"]).removeprefix("native ")
        many, many_summary = _many_queries(spark, directory, sizes, store)
    rows = [*one, *many]
    agrees = all(row["equal_rows"] is not False for row in rows)
    return Report(
        "window", quick, rows, {**one_summary, **many_summary, "equal_rows": agrees}, agrees, on
    )


def _one_query(
    spark: SparkSession, directory: Path, sizes: Sizes
) -> tuple[list[dict[str, Value]], dict[str, Value]]:
    """Every engine in turns, the first of a turn another each time."""
    one, batch = [WindowQuery()], sizes.files_per_batch
    engines: dict[str, Callable[[Path], Outcome]] = {
        "penstock": lambda files: run_penstock(spark, files, one, batch),
        **{f"native {store}": _native(spark, one, batch, store) for store in NATIVE_STORES},
    }
    for run in engines.values():
        run(directory / "warm")
    outcomes: dict[str, list[Outcome]] = {name: [] for name in engines}
    names = list(engines)
    for turn in range(sizes.repetitions):
        first = turn % len(names)
        for name in [*names[first:], *names[:first]]:
            outcomes[name].append(engines[name](directory / "one"))
    expected = outcomes["native rocksdb"][0].results[0]
    rows = [
        _row("1 query", name, 1, sizes.one.rows, runs)
        | {"equal_rows": all(same_rows(run.results[0], expected) for run in runs)}
        for name, runs in outcomes.items()
    ]
    ours, native = rows[0], min(rows[1:], key=lambda row: float(row["seconds"] or 0))
    summary: dict[str, Value] = {
        "ratio_vs_native": float(native["seconds"] or 0) / float(ours["seconds"] or 1),
        "cpu_ratio_vs_native": (
            float(native["cpu_s"]) / float(ours["cpu_s"])
            if native["cpu_s"] and ours["cpu_s"]
            else None
        ),
        "rows_per_s": ours["rows_per_s"],
        "native_rows_per_s": native["rows_per_s"],
        "native_best": native["engine"],
        "start_s": ours["start_s"],
        "native_start_s": native["start_s"],
    }
    return rows, summary


def _native(
    spark: SparkSession, queries: list[WindowQuery], batch: int, store: str
) -> Callable[[Path], Outcome]:
    return lambda files: run_native(spark, files, queries, batch, store)


def many_queries(count: int) -> list[WindowQuery]:
    """Queries of one composition: overlapping tenths of `w`, ranges of one to five minutes."""
    return [
        WindowQuery(1 + number % 5, 1, 9 * number % 900, 9 * number % 900 + 100)
        for number in range(count)
    ]


def _many_queries(
    spark: SparkSession, directory: Path, sizes: Sizes, store: str
) -> tuple[list[dict[str, Value]], dict[str, Value]]:
    queries, files = many_queries(sizes.queries), directory / "many"
    label = f"{sizes.queries} queries"
    run_penstock(spark, directory / "warm", queries, sizes.files_per_batch)
    turns = max(1, sizes.repetitions // 2)
    ours = [run_penstock(spark, files, queries, sizes.files_per_batch) for _ in range(turns)]
    rows = [_row(label, "penstock", sizes.queries, sizes.many.rows, ours)]
    seconds, starts, equals = [], [], []
    for count in sizes.native_counts:
        run = run_native(spark, files, queries[:count], sizes.files_per_batch, store)
        equals.append(all(map(same_rows, ours[0].results[:count], run.results)))
        native = _row(label, f"native {store}", count, sizes.many.rows, [run])
        rows.append(native | {"equal_rows": equals[-1]})
        seconds.append(run.seconds)
        starts.append(run.start_s)
    rows[0]["equal_rows"] = all(
        equals
    )  # as far as checked: `equal_rows_checked_of_…` says how many
    native_s = extrapolate(sizes.native_counts, seconds, sizes.queries)
    rows.append(
        {
            "case": label,
            "engine": f"native {store}, extrapolated",
            "queries": sizes.queries,
            "rows": sizes.many.rows,
            "seconds": native_s,
            "rows_per_s": sizes.many.rows / native_s,
            "start_s": extrapolate(sizes.native_counts, starts, sizes.queries),
            "equal_rows": None,
        }
    )
    ratio = native_s / float(rows[0]["seconds"] or 1)
    return rows, {
        f"ratio_vs_native_{sizes.queries}": ratio,
        f"ratio_vs_native_{sizes.queries}_is": (
            "extrapolated from {} and {} native queries".format(*sizes.native_counts)
        ),
        f"equal_rows_checked_of_{sizes.queries}": max(sizes.native_counts),
    }


def extrapolate(counts: tuple[int, int], seconds: Sequence[float], wanted: int) -> float:
    """The line through two measured points, taken on to `wanted`; never below the greater one.

    >>> extrapolate((2, 4), (3.0, 5.0), 10)
    11.0
    """
    (a, b), (at_a, at_b) = counts, seconds
    return max(at_b, at_b + (wanted - b) * (at_b - at_a) / (b - a))


def _row(
    case: str, engine: str, queries: int, tuples: int, runs: Sequence[Outcome]
) -> dict[str, Value]:
    seconds = statistics.median(run.seconds for run in runs)
    cpu = [run.cpu_s for run in runs if run.cpu_s is not None]
    return {
        "case": case,
        "engine": engine,
        "queries": queries,
        "rows": tuples,
        "seconds": seconds,
        "rows_per_s": tuples / seconds,
        "cpu_s": statistics.median(cpu) if cpu else None,
        "start_s": statistics.median(run.start_s for run in runs),
    }
