"""k selections over one stream on Spark: penstock, Structured Streaming, NumPy in mapInArrow.

All read the same Parquet files in the same micro-batches and log (id, matching queries) in the same
way (`selecting`); every match is compared. A slow engine gets fewer of the micro-batches, and
forms that cannot bear k queries are not asked. One StreamingQuery for each query is measured for a
few; its time for more is taken from the line through these.

`python -m penstock.bench.select.on_spark K …` runs it for these k alone, with the quick sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.bench.contest import scratch
from penstock.bench.report import Report, Value
from penstock.bench.select import spark_forms as forms
from penstock.bench.select.speed import match_in_turn
from penstock.bench.select.workload import Workload, rows, texts
from penstock.bench.selecting import (
    Asked,
    Input,
    Outcome,
    Rows,
    Start,
    large_file,
    native,
    penstock,
    run,
    same_matches,
    write_input,
)
from penstock.bench.window import extrapolate
from penstock.kernels.jit import Ints
from penstock.runtime.session import start_spark

Row = dict[str, Value]
IN_READER, IN_MAP = "penstock", "penstock, DataFrame"
NUMPY = "NumPy in mapInArrow"  # whole columns: what one would write
NARROWING = "NumPy in mapInArrow, narrowing"  # on the rows that are left, which is faster
APART = "native, a query each"
_MOST_IN_MAP = 10_000  # queries; to register more of them twice takes too long
_CHECKED_PAIRS = 100_000_000  # of tuple and query, that NumPy checks beside the engines
_NO_WHOLE_STAGE = {"spark.sql.codegen.wholeStage": "false"}


@dataclass(frozen=True, slots=True)
class Rival:
    form: Callable[[Workload, DataFrame], list[DataFrame]]
    most: int  # queries that it is asked for
    settings: dict[str, str]


NATIVE = {
    APART: Rival(forms.apart, 10, {}),
    # with whole-stage code, 1,000 queries were seen not to stop within three minutes of the limit
    "native, array": Rival(forms.in_array, 100, {}),
    "native, array, no whole-stage code": Rival(forms.in_array, 1000, _NO_WHOLE_STAGE),
    "native, join": Rival(forms.joined, 1000, {}),
}
MOST_NATIVE = max(rival.most for rival in NATIVE.values())
RIVALS = NATIVE | {
    NUMPY: Rival(partial(forms.in_numpy, narrowing=False), 10_000, {}),
    NARROWING: Rival(partial(forms.in_numpy, narrowing=True), 10_000, {}),
}
# queries from which on an engine takes long: it reads one micro-batch
_MANY = dict.fromkeys(NATIVE, 1000) | {NUMPY: 10_000}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Up to `repeated` queries an engine runs `repetitions` times, and the median counts."""

    given: Input
    queries: Sequence[int]
    limit_s: float
    repetitions: int
    repeated: int


FULL = Sizes(Input(16, 500_000, 4), (1, 10, 100, 1000, 10_000, 100_000), 300.0, 3, 100)
QUICK = Sizes(Input(8, 250_000, 4), (1, 10, 100, 1000, 10_000), 120.0, 3, 10)


def measure(quick: bool) -> tuple[list[Row], dict[str, Any], bool]:
    spark = start_spark()
    try:
        return contest(spark, QUICK if quick else FULL)
    finally:
        spark.stop()


def contest(spark: SparkSession, sizes: Sizes) -> tuple[list[Row], dict[str, Any], bool]:
    """Rows, summary, and whether all matches are equal and right."""
    with scratch() as directory:
        files = directory / "files"
        write_input(files, rows_of(Workload(1)), sizes.given)
        _warm_up(spark, directory / "warm", sizes)
        rows = [row for k in sizes.queries for row in _compare(spark, files, sizes, k)]
    rows += extrapolated(rows, sizes)
    return rows, summary(rows), all(row["equal_matches"] is not False for row in rows)


def asked(workload: Workload) -> Asked:
    columns = ", ".join(f"{name} BIGINT" for name in ("id", *workload.names))
    (another,) = texts(replace(workload, k=1, seed=workload.seed + 1))
    return Asked(columns, texts(workload), another)


def rows_of(workload: Workload) -> Rows:
    """Tuples by their ids."""
    return lambda ids: rows(workload, len(ids), abs(ids.start))


def _warm_up(spark: SparkSession, files: Path, sizes: Sizes) -> None:
    """One micro-batch through every engine: the JVM compiles what is in use."""
    given = replace(sizes.given, files=sizes.given.files_per_batch)
    write_input(files, rows_of(Workload(1)), given)
    for name, start in engines(spark, Workload(1), given).items():
        _say(f"warm-up, {name}")
        run(files, given, sizes.limit_s, start)


def engines(spark: SparkSession, workload: Workload, given: Input) -> dict[str, Start]:
    queries = asked(workload)
    in_map = {IN_MAP: penstock(spark, queries, given, in_reader=False)}
    return {
        IN_READER: penstock(spark, queries, given, in_reader=True),
        **(in_map if workload.k <= _MOST_IN_MAP else {}),
        **{
            name: native(spark, queries, given, partial(rival.form, workload), rival.settings)
            for name, rival in RIVALS.items()
            if workload.k <= rival.most
        },
    }


def _compare(spark: SparkSession, files: Path, sizes: Sizes, k: int) -> list[Row]:
    """Every engine in turns, the first of a turn another each time."""
    starts = engines(spark, Workload(k), sizes.given)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in starts}
    names = list(starts)
    for turn in range(sizes.repetitions if k <= sizes.repeated else 1):
        first = turn % len(names)
        for name in [*names[first:], *names[:first]]:
            _say(f"{k:,} queries, {name}")
            outcomes[name].append(run(files, _share(name, k, sizes), sizes.limit_s, starts[name]))
    expected = outcomes[IN_READER][0].pairs
    right = same_matches(k, *checked(files, Workload(k)), expected)
    return [
        _row(k, name, runs, sizes.limit_s)
        | {"equal_matches": right and all(same_matches(k, r.rows, r.pairs, expected) for r in runs)}
        for name, runs in outcomes.items()
    ]


def _share(engine: str, k: int, sizes: Sizes) -> Input:
    """What an engine reads: one micro-batch of it if that takes long enough."""
    if k < _MANY.get(engine, k + 1):
        return sizes.given
    return replace(sizes.given, files=sizes.given.files_per_batch)


def checked(files: Path, workload: Workload) -> tuple[int, Ints]:
    """So many of the first tuples, and their matches, one predicate after the other."""
    table = pq.read_table(large_file(files), columns=list(workload.names))
    batch = table.slice(0, _CHECKED_PAIRS // workload.k).combine_chunks().to_batches()[0]
    row, number = match_in_turn(workload, batch)
    return batch.num_rows, row * workload.k + number


def _row(k: int, engine: str, runs: list[Outcome], limit_s: float) -> Row:
    """The median run."""
    one = sorted(runs, key=lambda run: run.rows_per_s)[len(runs) // 2]
    if not one.rows:
        note: str | None = f"no micro-batch in {limit_s:.0f} s"
    else:
        note = None if one.finished else f"stopped after {limit_s:.0f} s"
    return {
        "queries": k,
        "engine": engine,
        "rows": one.rows,
        "seconds": one.seconds if one.rows else None,
        "rows_per_s": one.rows_per_s or None,
        "cpu_s": one.cpu_s,
        "start_s": one.start_s,
        "register_s": one.register_s,
        "add_query_ms": one.add_query_ms,
        "driver_mb": None if one.memory_mb is None else one.memory_mb[0],
        "worker_mb": None if one.memory_mb is None else one.memory_mb[1],
        "note": note,
    }


def extrapolated(rows: Sequence[Row], sizes: Sizes) -> list[Row]:
    """One StreamingQuery each, for more queries than were run so."""
    took = {
        int(row["queries"] or 0): sizes.given.rows / float(row["rows_per_s"])
        for row in rows
        if row["engine"] == APART and row["rows_per_s"] is not None
    }
    if len(took) < 2:
        return []
    few, many = sorted(took)[-2:]
    return [
        {
            "queries": k,
            "engine": APART,
            "rows": sizes.given.rows,
            "seconds": (seconds := extrapolate((few, many), (took[few], took[many]), k)),
            "rows_per_s": sizes.given.rows / seconds,
            "equal_matches": None,
            "note": f"extrapolated from {few} and {many} queries",
        }
        for k in sizes.queries
        if many < k <= MOST_NATIVE
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Tuples per second and ratios by number of queries."""
    rates: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["rows_per_s"] is not None:
            by_engine = rates.setdefault(str(row["queries"]), {})
            by_engine[str(row["engine"])] = float(row["rows_per_s"])
    best = {
        k: max((name for name in NATIVE if name in found), key=found.__getitem__)
        for k, found in rates.items()
        if int(k) <= MOST_NATIVE
    }
    return {
        "spark_tuples_per_s": {k: found[IN_READER] for k, found in rates.items()},
        "spark_tuples_per_s_in_map": {
            k: found[IN_MAP] for k, found in rates.items() if IN_MAP in found
        },
        "native_best": best,
        "native_tuples_per_s": {k: rates[k][name] for k, name in best.items()},
        "ratio_vs_native": {k: rates[k][IN_READER] / rates[k][name] for k, name in best.items()},
        "ratio_vs_numpy": _ratios(rates, NUMPY),
        "ratio_vs_numpy_narrowing": _ratios(rates, NARROWING),
        **{
            figure: {str(r["queries"]): r.get(figure) for r in rows if r["engine"] == IN_READER}
            for figure in ("register_s", "add_query_ms", "driver_mb", "worker_mb")
        },
    }


def _ratios(rates: dict[str, dict[str, float]], rival: str) -> dict[str, float]:
    return {k: found[IN_READER] / found[rival] for k, found in rates.items() if rival in found}


def _say(text: str) -> None:
    print(f"select on Spark: {text}", file=sys.stderr, flush=True)


def main(queries: Sequence[int]) -> int:
    spark = start_spark()
    try:
        rows, figures, agrees = contest(spark, replace(QUICK, queries=queries))
    finally:
        spark.stop()
    Report("select on Spark", True, rows, figures, agrees).show()
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main([int(k) for k in sys.argv[1:]]))
