"""Experiment 2: up to a thousand continuous queries of ten kinds on Spark, in rings or one by one.

penstock and Structured Streaming read the same files and their rows are compared, query by query
(`spark_runs`). Structured Streaming gets as many StreamingQueries as the machine bears. There are
few files, of which all rows are kept and compared, and many, in micro-batches of the same size:
penstock is done with the few in no time. With the most queries Structured Streaming reads these,
too; it takes ten minutes. penstock also runs queries of one kind only: then all of them
are in one ring. The files are JSON lines, as events often come; with Parquet, where reading costs
next to nothing, the most queries are run once more.

`python -m penstock.bench.rings.on_spark N …` runs it for N queries with the quick sizes, after
`--full` with the full ones, JSON alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.bench.contest import scratch
from penstock.bench.report import Report, Value
from penstock.bench.resources import jvm_heap_mb
from penstock.bench.rings.kinds import KINDS, Asked, asked, in_order, same_rows
from penstock.bench.rings.spark_runs import Outcome, run_native, run_penstock
from penstock.bench.tuples import Tuples, tables, write_tuples
from penstock.runtime.session import start_spark

Row = dict[str, Value]
OURS = "penstock"
FEW, ONE_KIND = ", as few tuples", ", one kind"
_CHECKED = 97  # of many queries every so manieth is counted beside the engine
_WARM_UP = Tuples(2, 5_000, 20)


@dataclass(frozen=True, slots=True)
class Sizes:
    """few: the files whose rows are compared; many: those of the ratios.

    formats: of these files; all but the first are read with the most native queries only. runs: of
    both engines on many files with the most native queries, of which the fastest counts: a JVM
    that has run one plan for long takes its time to get used to others.
    """

    few: Tuples
    many: Tuples
    files_per_batch: int
    queries: Sequence[int]
    native: Sequence[int]
    formats: Sequence[str] = ("json",)
    store: str = "memory"  # the faster one of Spark's, on the heap; for both
    kinds: int = len(KINDS)
    runs: int = 2

    @property
    def most(self) -> int:
        return max(self.native, default=0)


FULL = Sizes(
    few=Tuples(8, 100_000, 40),
    many=Tuples(24, 100_000, 120),
    files_per_batch=8,
    queries=(1, 10, 64, 250, 1000),
    native=(1, 8, 64),
    formats=("json", "parquet"),
)
QUICK = replace(
    FULL,
    few=Tuples(4, 100_000, 20),
    many=Tuples(24, 100_000, 120),
    files_per_batch=4,
    formats=("json",),
    runs=1,
)


def native_name(store: str) -> str:
    return f"native {store}"


def contest(spark: SparkSession, sizes: Sizes) -> tuple[list[Row], bool]:
    """Rows, and whether every query got what it asked for."""
    first, *others = sizes.formats
    rows = _contest(spark, sizes, first)
    for other in others:
        only = [n for n in sizes.queries if n == sizes.most]
        rows += _contest(spark, replace(sizes, queries=only, native=only), other)
    return rows, all(row["equal_rows"] is not False for row in rows)


def _contest(spark: SparkSession, sizes: Sizes, format_: str) -> list[Row]:
    few, many, warm = (replace(t, format=format_) for t in (sizes.few, sizes.many, _WARM_UP))
    sizes, rows = replace(sizes, few=few, many=many), []
    with scratch() as directory:
        for name, tuples in (("warm", warm), ("few", few), ("many", many)):
            write_tuples(directory / name, tuples)
        _say(f"warm-up, {format_}")
        some = asked(sizes.kinds, sizes.kinds)
        run_penstock(spark, directory / "warm", some, 1, False, sizes.store)
        run_native(spark, directory / "warm", some, 1, False, sizes.store)
        for count in sorted({*sizes.queries, *sizes.native}):
            if count in sizes.native:
                rows += compared(spark, directory / "few", count, sizes)
            if count in sizes.queries:
                for _ in range(sizes.runs if count == sizes.most else 1):
                    rows.append(_counted(spark, directory / "many", count, sizes.kinds, sizes))
        if sizes.most in sizes.queries:
            rows.append(_counted(spark, directory / "many", sizes.most, 1, sizes))
            most = asked(sizes.most, sizes.kinds)
            for _ in range(sizes.runs):
                rows.append(_counted_natively(spark, directory / "many", most, sizes))
    return rows


def compared(spark: SparkSession, files: Path, count: int, sizes: Sizes) -> list[Row]:
    """Both engines on the same files; the rows of every query are compared."""
    queries, batch = asked(count, sizes.kinds), sizes.files_per_batch
    _say(f"{count} queries, native, {sizes.few.format}")
    theirs = run_native(spark, files, queries, batch, True, sizes.store)
    native = _row(f"{native_name(sizes.store)}{FEW}", count, sizes.few, theirs, jvm_heap_mb(spark))
    _say(f"{count} queries, penstock on the same files")
    ours = run_penstock(spark, files, queries, batch, True, sizes.store)
    equal = all(
        same_rows(in_order(query.kind, a.tables), in_order(query.kind, b.tables))
        for query, a, b in zip(queries, ours.taken, theirs.taken, strict=True)
    )
    own = _row(f"{OURS}{FEW}", count, sizes.few, ours, jvm_heap_mb(spark))
    live = np.percentile(theirs.live_s, (50, 99))
    native |= {"live_p50_s": float(live[0]), "live_p99_s": float(live[1])}
    return [native | {"equal_rows": equal}, own | {"equal_rows": equal}]


def _counted(spark: SparkSession, files: Path, count: int, kinds: int, sizes: Sizes) -> Row:
    """penstock on many files."""
    queries = asked(count, kinds)
    name = OURS if kinds == sizes.kinds else f"{OURS}{ONE_KIND}"
    _say(f"{count} queries, {name}, {sizes.many.format}")
    ours = run_penstock(spark, files, queries, sizes.files_per_batch, False, sizes.store)
    row = _row(name, count, sizes.many, ours, jvm_heap_mb(spark))
    return row | {"equal_rows": _are_as_expected(sizes.many, queries, ours)}


def _counted_natively(
    spark: SparkSession, files: Path, queries: Sequence[Asked], sizes: Sizes
) -> Row:
    """Structured Streaming on the same many files."""
    _say(f"{len(queries)} queries, native on as many files, {sizes.many.format}")
    theirs = run_native(spark, files, queries, sizes.files_per_batch, False, sizes.store)
    name = native_name(sizes.store)
    row = _row(name, len(queries), sizes.many, theirs, jvm_heap_mb(spark))
    return row | {"equal_rows": _are_as_expected(sizes.many, queries, theirs)}


def _are_as_expected(tuples: Tuples, queries: Sequence[Asked], run: Outcome) -> bool:
    """Whether some of the queries got as many rows as counted beside the engine."""
    step = _CHECKED if len(queries) > 100 else 7
    return expected_rows(tuples, queries[::step]) == [taken.rows for taken in run.taken[::step]]


def expected_rows(tuples: Tuples, queries: Sequence[Asked]) -> list[int]:
    """How many rows each query has to get of all tuples, of which the last are in no window yet."""
    table = pa.concat_tables(tables(tuples))
    w, ts_us, key = (table.column(n).cast("int64").to_numpy() for n in ("w", "ts", "key"))
    end_us = int(ts_us.max())
    found = []
    for query in queries:
        wanted = (w >= query.low) & (w < query.low + query.kind.width)
        if query.kind.aggregates:
            keys = key[wanted] if query.kind.columns else np.zeros(int(wanted.sum()), np.int64)
            found.append(_windows(ts_us[wanted], keys, query.range_minutes, end_us))
        else:
            found.append(int(wanted.sum()))
    return found


def _windows(ts_us: np.ndarray, key: np.ndarray, range_minutes: int, last_us: int) -> int:
    """Windows with a tuple in them, by key, that have ended before the last tuple's."""
    minute = ts_us // 60_000_000
    ends = np.concatenate([minute + 1 + n for n in range(range_minutes)])
    closed = ends * 60_000_000 <= last_us - 10_000_000
    pairs = ends * 1000 + np.tile(key, range_minutes)
    return int(np.unique(pairs[closed]).size)


def _row(engine: str, count: int, tuples: Tuples, run: Outcome, heap_mb: float) -> Row:
    found: Row = {
        "queries": count,
        "engine": engine,
        "format": tuples.format,
        "running": run.running,
        "tuples": tuples.rows,
        "seconds": run.seconds,
        "tuples_per_s": tuples.rows / run.seconds,
        "start_s": run.start_s,
        "cpu_s": run.cpu_s,
        "driver_cpu_s": run.driver_cpu_s,
        "driver_mb": run.after.driver_mb,
        "python_mb": run.after.python_mb,
        "jvm_heap_mb": heap_mb,
        "workers_mb": run.after.workers_mb,
        "threads": run.after.threads,
        "results": sum(taken.rows for taken in run.taken),
    }
    _say(f"{count} queries, {engine}: {tuples.rows / run.seconds:,.0f} tuples/s")
    return found


def summary(rows: Sequence[Row], store: str) -> dict[str, Any]:
    """What Structured Streaming reaches, and how many times as much penstock does."""
    found: dict[str, Any] = {}
    for format_ in dict.fromkeys(str(row["format"]) for row in rows):
        rates: dict[str, dict[int, float]] = {}
        for row in rows:
            if row["format"] == format_:
                by_count, count = rates.setdefault(str(row["engine"]), {}), int(row["queries"] or 0)
                by_count[count] = max(by_count.get(count, 0.0), float(row["tuples_per_s"] or 0))
        end = f"_{format_}" if found else ""
        native = native_name(store)
        few = rates.get(f"{native}{FEW}", {})
        found[f"native_tuples_per_s{end}"] = {str(n): rate for n, rate in few.items()}
        compared = {
            "": (OURS, native),
            "_of_one_kind": (f"{OURS}{ONE_KIND}", native),
            "_of_few": (f"{OURS}{FEW}", f"{native}{FEW}"),
        }
        for what, (own, other) in compared.items():
            others = rates.get(other, {})
            for n, rate in rates.get(own, {}).items():
                if n in others:
                    found[f"ratio_vs_native_{n}{what}{end}"] = rate / others[n]
    return found


def _say(text: str) -> None:
    print(f"rings on Spark: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    full = "--full" in arguments
    counts = [int(a) for a in arguments if a != "--full"] or [64]
    given = replace(FULL, formats=("json",)) if full else QUICK
    native = [n for n in counts if n <= max(given.native)]
    sizes = replace(given, queries=counts, native=native)
    spark = start_spark()
    try:
        rows, agrees = contest(spark, sizes)
    finally:
        spark.stop()
    Report("rings on Spark", not full, rows, summary(rows, sizes.store), agrees).show()
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
