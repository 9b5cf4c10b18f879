"""Geofences on Spark: penstock, and shapely in functions of Structured Streaming.

Each polygon is the fence of a registered query. All engines read the same points from Parquet files
and log (id, matching fences) in the same way (`selecting`); every match is compared. The function
that is called for each row gets the first of these points in smaller files.

`python -m penstock.bench.geofence.on_spark P …` runs it for so many random polygons alone, with the
quick sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely
from pyspark.sql import SparkSession
from shapely import Geometry

from penstock.bench.contest import scratch
from penstock.bench.geofence import spark_forms as forms
from penstock.bench.geofence.data import Case, random_case
from penstock.bench.report import Report, Value
from penstock.bench.selecting import (
    Asked,
    Input,
    Outcome,
    Rows,
    native,
    penstock,
    run,
    same_matches,
    write_input,
)
from penstock.kernels.fences import Fences
from penstock.kernels.jit import Ints
from penstock.runtime.session import start_spark

Row = dict[str, Value]
OURS, TREE, BOXES, UDF = "penstock", "STRtree", "STRtree, prepared", "UDF"
_FORMS = {TREE: forms.in_tree, BOXES: forms.in_boxes, UDF: forms.row_by_row}
_COLUMNS = "id BIGINT, x DOUBLE, y DOUBLE"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What each engine reads: the slower, the less. Up to `repeated` polygons several times."""

    ours: Input
    tree: Input
    udf: Input
    repetitions: int
    repeated: int = 1000
    limit_s: float = 300.0

    def input_of(self, engine: str) -> Input:
        return {OURS: self.ours, UDF: self.udf}.get(engine, self.tree)


_TREE = Input(4, 1_000_000, 4)  # a micro-batch
FULL = Sizes(Input(24, 1_000_000, 4), replace(_TREE, files=8), Input(4, 50_000, 4), 3)
QUICK = Sizes(Input(12, 1_000_000, 4), _TREE, Input(4, 20_000, 4), 1)


def measure(cases: Iterable[Case], sizes: Sizes) -> tuple[list[Row], dict[str, Any], bool]:
    spark = start_spark()
    try:
        return contest(spark, cases, sizes)
    finally:
        spark.stop()


def contest(
    spark: SparkSession, cases: Iterable[Case], sizes: Sizes
) -> tuple[list[Row], dict[str, Any], bool]:
    """Rows, summary, and whether all matches are equal."""
    _warm_up(spark, sizes)
    rows = [row for case in cases for row in compare(spark, case, sizes)]
    return rows, summary(rows), all(row["equal_matches"] for row in rows)


def _warm_up(spark: SparkSession, sizes: Sizes) -> None:
    """All engines once: the JVM compiles what is in use, workers get memory."""
    few = replace(sizes, tree=replace(sizes.tree, files=1), repetitions=1)
    compare(spark, random_case(10, 100_000, seed=0), few)


def compare(spark: SparkSession, case: Case, sizes: Sizes) -> list[Row]:
    """Every engine in turns."""
    asked, count = asked_of(case), len(case.fences)
    outcomes: dict[str, list[Outcome]] = {}
    with scratch() as directory:
        fences = directory / "fences.parquet"
        forms.write_fences(case, fences)
        for given in (sizes.ours, sizes.udf):
            write_input(_files(directory, given), rows_of(case), given)
        for _ in range(sizes.repetitions if count <= sizes.repeated else 1):
            for name in (OURS, *_FORMS):
                given = sizes.input_of(name)
                if name == OURS:
                    start = penstock(spark, asked, given, in_reader=True)
                else:
                    start = native(spark, asked, given, partial(_FORMS[name], fences), {})
                outcome = run(_files(directory, given), given, sizes.limit_s, start)
                outcomes.setdefault(name, []).append(outcome)
                rate = f"{outcome.rows_per_s:,.0f} points/s, {outcome.cpu_s} s of processors"
                _say(f"{count:,} {case.data} polygons, {name}: {rate}")
    expected = expected_pairs(case, sizes.ours.rows)
    return [_row(case, name, runs, expected) for name, runs in outcomes.items()]


def _files(directory: Path, given: Input) -> Path:
    return directory / f"files-{given.rows_per_file}"


def asked_of(case: Case) -> Asked:
    predicates = [_predicate(fence) for fence in case.fences]
    return Asked(_COLUMNS, predicates, _predicate(case.more[0]))


def _predicate(fence: Geometry) -> str:
    text = shapely.to_wkt(fence, rounding_precision=-1)  # all digits
    return f"ST_Within(ST_Point(x, y), ST_GeomFromText('{text}'))"


def rows_of(case: Case) -> Rows:
    """Points by their ids, again from the first after the last."""

    def rows(ids: range) -> pa.RecordBatch:
        places = np.array(ids) % case.xs.size
        columns = [pa.array(case.xs[places]), pa.array(case.ys[places])]
        return pa.RecordBatch.from_arrays(columns, names=["x", "y"])

    return rows


def expected_pairs(case: Case, count: int) -> Ints:
    """What the kernel finds, which is checked against shapely elsewhere: id · polygons + fence."""
    fences = Fences(case.domain)
    fences.change(dict(enumerate(case.fences)))
    points = rows_of(case)(range(count))
    located = fences.locate(*(column.to_numpy() for column in points.columns))
    pairs: Ints = np.sort(located.rows * len(case.fences) + located.fences)
    return pairs


def _row(case: Case, engine: str, runs: list[Outcome], expected: Ints) -> Row:
    """The fastest run."""
    one, count = max(runs, key=lambda run: run.rows_per_s), len(case.fences)
    return {
        "data": case.data,
        "polygons": count,
        "engine": engine,
        "points": one.rows,
        "seconds": one.seconds if one.rows else None,
        "points_per_s": one.rows_per_s or None,
        "cpu_s": one.cpu_s,
        "start_s": one.start_s,
        "register_s": one.register_s,
        "add_query_ms": one.add_query_ms,
        "equal_matches": all(same_matches(count, r.rows, r.pairs, expected) for r in runs),
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Points per second and ratios by number of polygons; real ones with their name."""
    rates: dict[str, dict[str, float]] = {}
    for row in rows:
        random = row["data"] == "random"
        case = str(row["polygons"]) if random else f"{row['data']} {row['polygons']}"
        if row["points_per_s"] is not None:
            rates.setdefault(case, {})[str(row["engine"])] = float(row["points_per_s"])
    return {
        "spark_points_per_s": {case: found[OURS] for case, found in rates.items()},
        "vs_udf": _ratios(rates, UDF),
        "vs_strtree": _ratios(rates, TREE),
        "vs_strtree_prepared": _ratios(rates, BOXES),
    }


def _ratios(rates: dict[str, dict[str, float]], rival: str) -> dict[str, float]:
    return {case: found[OURS] / found[rival] for case, found in rates.items() if rival in found}


def _say(text: str) -> None:
    print(f"geofence on Spark: {text}", file=sys.stderr, flush=True)


def main(polygons: Sequence[int]) -> int:
    cases = (random_case(count, 1_000_000, seed=count) for count in polygons)
    rows, figures, agrees = measure(cases, QUICK)
    Report("geofence on Spark", True, rows, figures, agrees).show()
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main([int(count) for count in sys.argv[1:]]))
