"""n streams joined on Spark: penstock's one operator, and chains of Structured Streaming's joins.

Engines read the same Parquet files in the same micro-batches (`spark_runs`), and all results are
compared. `cells` says what is measured, `spark_summary` what comes of it. The state of RocksDB is
as durable as penstock's, that of the store in memory is not.

`python -m penstock.bench.join.on_spark N SELECTIVITY …` runs it for these alone, on the store in
memory.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.bench.contest import scratch
from penstock.bench.join.cells import (
    FULL,
    IN_MEMORY,
    OURS,
    QUICK,
    STREAMS,
    USUAL,
    Cell,
)
from penstock.bench.join.spark_runs import (
    STORES,
    Given,
    Outcome,
    Start,
    native,
    penstock,
    run,
    write_input,
)
from penstock.bench.join.spark_summary import Row, agree, summary
from penstock.bench.report import Report
from penstock.runtime.session import start_spark

_HEAP = "12g"  # room for the state in memory, and for collecting garbage at ease
_WARM = Given(
    streams=4, selectivity=USUAL, files=2, rows_per_file=200_000, files_per_batch=2, range_s=150
)


def measure(quick: bool) -> tuple[list[Row], dict[str, Any], bool]:
    """Rows, summary, and whether all results are equal."""
    rows = list(rows_of((QUICK if quick else FULL).cells()))
    return rows, summary(rows), agree(rows)


def rows_of(cells: Iterable[Cell], go_on: Callable[[], bool] = lambda: True) -> Iterator[Row]:
    """A row for each cell, as long as there is time to begin another."""
    with _warm_session() as spark:
        for given, some in groupby(cells, key=lambda cell: cell.given):
            with scratch() as directory:
                write_input(directory / "files", given)
                for cell in some:
                    if not go_on():
                        return
                    yield _measured(spark, directory / "files", cell)


def engine(spark: SparkSession, given: Given, name: str) -> Start:
    if name == OURS:
        return penstock(spark, given)
    return native(spark, given, STORES[name])


@contextmanager
def _warm_session() -> Iterator[SparkSession]:
    """Spark after a run of both engines: its JVM has compiled what is in use."""
    spark = start_spark(memory=_HEAP)
    try:
        with scratch() as directory:
            write_input(directory / "files", _WARM)
            for name in (OURS, IN_MEMORY):
                _say(f"warm-up, {name}")
                run(spark, directory / "files", _WARM, engine(spark, _WARM, name), restarts=False)
        yield spark
    finally:
        spark.stop()


def _measured(spark: SparkSession, files: Path, cell: Cell) -> Row:
    given = cell.given
    _say(f"{given.streams} streams, selectivity {given.selectivity:g}, {cell.engine}")
    load = os.getloadavg()[0]
    one = run(spark, files, given, engine(spark, given, cell.engine), cell.restarts)
    return _row(cell, one) | {"load_before": load}


def _row(cell: Cell, one: Outcome) -> Row:
    return {
        **cell.facts,
        "results": one.results.num_rows,
        "digest": digest(one.results),
        "seconds": one.seconds,
        "rows_per_s": cell.given.rows / one.seconds,
        "cpu_s": one.cpu_s,
        "start_s": one.start_s,
        "restart_s": one.restart_s,
        "state_mb": one.state_bytes / 2**20,
        "tables_mb": one.table_bytes / 2**20,
        "checkpoint_mb": one.checkpoint_bytes / 2**20,
    }


def digest(results: pa.Table) -> str:
    """The same for equal results, which are in order, and for no others."""
    told = hashlib.sha256(str(results.schema).encode())
    for column in results.columns:
        told.update(column.to_numpy().tobytes())
    return told.hexdigest()[:16]


def _say(text: str) -> None:
    print(f"join on Spark: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    pairs = [(int(n), float(s)) for n, s in zip(arguments[::2], arguments[1::2], strict=True)]
    givens = [FULL.given(STREAMS, *pair) for pair in pairs]
    runs = product(givens, (OURS, IN_MEMORY), range(3))
    rows = list(rows_of(Cell(STREAMS, g, name, n, restarts=n == 0) for g, name, n in runs))
    Report("join on Spark", False, rows, summary(rows), agree(rows)).show()
    return 0 if agree(rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
