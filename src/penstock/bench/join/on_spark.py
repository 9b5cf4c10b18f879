"""n streams joined on Spark: penstock's one operator, and chains of Structured Streaming's joins.

All read the same Parquet files in the same micro-batches (`spark_runs`), and every result is
compared. At one selectivity the chain runs on each state store that Spark has (of the two formats
of RocksDB only the newer in a quick run); the best counts, and RocksDB with the newest format is
shown beside it, for its state is as durable as penstock's. At the others it runs on the store in
memory, which is several times as fast as the others.

Of several runs of an engine, one right after the other, the fastest counts: in the first, processes
start and memory is touched for the first time. On RocksDB there is one run, of minutes.

`python -m penstock.bench.join.on_spark N SELECTIVITY …` runs it for these alone, quick sizes, on
the store in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.bench.contest import scratch
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
from penstock.bench.report import Report, Value
from penstock.runtime.session import start_spark

Row = dict[str, Value]
OURS = "penstock"
IN_MEMORY, DURABLE = "memory", "rocksdb, format 4"
_USUAL = 0.05  # the selectivity by which streams are compared


@dataclass(frozen=True, slots=True)
class Sizes:
    """pairs: streams and selectivity of each contest; compared: of those on several stores."""

    pairs: Sequence[tuple[int, float]]
    compared: Sequence[tuple[int, float]]
    stores: Sequence[str]
    files: int
    rows_per_file: int
    files_per_batch: int
    range_s: int
    repetitions: int

    def stores_for(self, streams: int, selectivity: float) -> dict[str, dict[str, str]]:
        compared = (streams, selectivity) in self.compared
        return {name: STORES[name] for name in (self.stores if compared else [IN_MEMORY])}

    def given(self, streams: int, selectivity: float) -> Given:
        return Given(
            streams,
            selectivity,
            self.files,
            self.rows_per_file,
            self.files_per_batch,
            self.range_s,
        )


_COUNTS, _SWEEP = (2, 3, 4, 6), (0.01, _USUAL, 0.25, 1.0)
FULL = Sizes(
    pairs=[(n, s) for n in _COUNTS for s in _SWEEP],
    compared=[(n, _USUAL) for n in _COUNTS],
    stores=list(STORES),
    files=6,
    rows_per_file=400_000,
    files_per_batch=2,
    range_s=150,
    repetitions=3,
)
QUICK = replace(
    FULL,
    pairs=[(3, _USUAL), (4, _USUAL), (2, _USUAL), (2, 1.0)],
    compared=[(3, _USUAL)],
    stores=[IN_MEMORY, DURABLE],
)
_HEAP = "12g"  # room for the state in memory, and for collecting garbage at ease


def measure(quick: bool) -> tuple[list[Row], dict[str, Any], bool]:
    spark = start_spark(memory=_HEAP)
    try:
        return contest(spark, QUICK if quick else FULL)
    finally:
        spark.stop()


def contest(spark: SparkSession, sizes: Sizes) -> tuple[list[Row], dict[str, Any], bool]:
    """Rows, summary, and whether all results are equal."""
    _warm_up(spark, sizes)
    rows = [row for pair in sizes.pairs for row in _compare(spark, sizes, *pair)]
    return rows, summary(rows), all(row["equal_results"] for row in rows)


def engines(
    spark: SparkSession, given: Given, stores: dict[str, dict[str, str]]
) -> dict[str, Start]:
    rivals = {name: native(spark, given, settings) for name, settings in stores.items()}
    return {OURS: penstock(spark, given), **rivals}


def _warm_up(spark: SparkSession, sizes: Sizes) -> None:
    """The largest contest, uncounted: the JVM compiles what is in use, workers get memory."""
    streams = max(n for n, _ in sizes.pairs)
    given = sizes.given(streams, _USUAL)
    with scratch() as directory:
        write_input(directory / "files", given)
        for name, start in engines(spark, given, {IN_MEMORY: STORES[IN_MEMORY]}).items():
            _say(f"warm-up, {name}")
            run(spark, directory / "files", given, start)


def _compare(spark: SparkSession, sizes: Sizes, streams: int, selectivity: float) -> list[Row]:
    given = sizes.given(streams, selectivity)
    outcomes: dict[str, list[Outcome]] = {}
    with scratch() as directory:
        write_input(directory / "files", given)
        starts = engines(spark, given, sizes.stores_for(streams, selectivity))
        for name, start in starts.items():
            for _ in range(sizes.repetitions if name in (OURS, IN_MEMORY) else 1):
                _say(f"{streams} streams, selectivity {selectivity:g}, {name}")
                outcome = run(spark, directory / "files", given, start)
                outcomes.setdefault(name, []).append(outcome)
    expected = outcomes[OURS][0].results
    return [
        _row(given, name, runs)
        | {"equal_results": all(one.results.equals(expected) for one in runs)}
        for name, runs in outcomes.items()
    ]


def _row(given: Given, engine: str, runs: list[Outcome]) -> Row:
    """The fastest run."""
    one = min(runs, key=lambda run: run.seconds)
    return {
        "streams": given.streams,
        "selectivity": given.selectivity,
        "engine": engine,
        "rows": given.rows,
        "results": one.results.num_rows,
        "seconds": one.seconds,
        "rows_per_s": given.rows / one.seconds,
        "cpu_s": one.cpu_s,
        "start_s": one.start_s,
        "restart_s": one.restart_s,
        "state_mb": one.state_bytes / 2**20,
        "tables_mb": one.table_bytes / 2**20,
        "checkpoint_mb": one.checkpoint_bytes / 2**20,
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Ratios by number of streams; of two streams that of the worst selectivity."""
    contests: dict[tuple[int, float], dict[str, Row]] = {}
    for row in rows:
        pair = int(row["streams"] or 0), float(row["selectivity"] or 0)
        contests.setdefault(pair, {})[str(row["engine"])] = row
    best = {pair: _best(found) for pair, found in contests.items()}
    usual = {f"n{n}": (n, s) for n, s in contests if s == _USUAL}
    speeds = {pair: _ratio(contests[pair], best[pair], "rows_per_s") for pair in contests}
    everywhere = {
        n: contests[pair] for n, pair in sorted(usual.items()) if DURABLE in contests[pair]
    }
    worst = {f"n{n}": min(s for (m, _), s in speeds.items() if m == n) for n, _ in contests}
    states = {pair: _ratio(contests[pair], best[pair], "state_mb") for pair in contests}
    memory = {pair: states[pair] + _share(contests[pair], best[pair]) for pair in contests}
    disks = {pair: _ratio(contests[pair], best[pair], "checkpoint_mb") for pair in contests}
    return {
        "spark_rows_per_s": {
            n: contests[pair][OURS]["rows_per_s"] for n, pair in sorted(usual.items())
        },
        "native_best": {n: best[pair] for n, pair in sorted(usual.items())},
        "ratio_vs_native": {n: speeds[pair] for n, pair in sorted(usual.items())}
        | {n: ratio for n, ratio in worst.items() if n == "n2"},
        "ratio_vs_native_worst": worst,
        "ratio_vs_rocksdb_4": {n: _ratio(c, DURABLE, "rows_per_s") for n, c in everywhere.items()},
        "state_ratio_vs_native": max(states.values()),
        "state_ratio_vs_rocksdb_4": {
            n: _ratio(c, DURABLE, "state_mb") for n, c in everywhere.items()
        },
        "state_and_tables_ratio_vs_native": max(memory.values()),
        "checkpoint_ratio_vs_native": max(disks.values()),
    }


def _best(found: dict[str, Row]) -> str:
    return max(found.keys() - {OURS}, key=lambda name: float(found[name]["rows_per_s"] or 0))


def _ratio(found: dict[str, Row], rival: str, figure: str) -> float:
    return float(found[OURS][figure] or 0) / float(found[rival][figure] or 1)


def _share(found: dict[str, Row], rival: str) -> float:
    return float(found[OURS]["tables_mb"] or 0) / float(found[rival]["state_mb"] or 1)


def _say(text: str) -> None:
    print(f"join on Spark: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    pairs = [(int(n), float(s)) for n, s in zip(arguments[::2], arguments[1::2], strict=True)]
    spark = start_spark(memory=_HEAP)
    try:
        rows, figures, agrees = contest(spark, replace(QUICK, pairs=pairs, compared=()))
    finally:
        spark.stop()
    Report("join on Spark", True, rows, figures, agrees).show()
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
