"""Geofences as a user of Structured Streaming would write them, with shapely at its best.

Each form makes of a stream a DataFrame of its matches: (id, `__slots`). The fences come from a file
of WKB that each worker reads once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.bench.geofence.data import Case
from penstock.kernels.jit import Doubles, Ints

_MATCHES = "id BIGINT, __slots ARRAY<INT>"
Finds = Callable[[str, Doubles, Doubles], tuple[Ints, Ints]]  # rows and fences, by row


def write_fences(case: Case, path: Path) -> None:
    pq.write_table(pa.table({"geometry": shapely.to_wkb(case.fences)}), path)


def in_tree(fences: Path, stream: DataFrame) -> list[DataFrame]:
    """One query of an STRtree for a batch of points, with its predicate."""
    return [stream.mapInArrow(partial(_match, str(fences), find_in_tree), _MATCHES)]


def in_boxes(fences: Path, stream: DataFrame) -> list[DataFrame]:
    """The boxes of an STRtree, and then a test of prepared polygons: faster for large polygons."""
    return [stream.mapInArrow(partial(_match, str(fences), find_in_boxes), _MATCHES)]


def row_by_row(fences: Path, stream: DataFrame) -> list[DataFrame]:
    """A function that is called for each point."""
    path = str(fences)
    find = F.udf(lambda x, y: find_for_row(path, x, y), "ARRAY<INT>")
    matches = stream.select("id", find("x", "y").alias("__slots"))
    return [matches.where("size(__slots) > 0")]


@cache
def _polygons(fences: str) -> np.ndarray:
    polygons: np.ndarray = shapely.from_wkb(pq.read_table(fences).column("geometry").to_numpy())
    shapely.prepare(polygons)
    return polygons


@cache
def _tree(fences: str) -> shapely.STRtree:
    return shapely.STRtree(_polygons(fences))


@cache
def _boxes(fences: str) -> tuple[Doubles, ...]:
    return tuple(shapely.bounds(_polygons(fences)).T.copy())


def find_in_tree(fences: str, xs: Doubles, ys: Doubles) -> tuple[Ints, Ints]:
    rows, numbers = _tree(fences).query(shapely.points(xs, ys), predicate="within")
    return rows, numbers


def find_in_boxes(fences: str, xs: Doubles, ys: Doubles) -> tuple[Ints, Ints]:
    rows, numbers = _tree(fences).query(shapely.points(xs, ys))
    holds = shapely.contains_xy(_polygons(fences)[numbers], xs[rows], ys[rows])
    return rows[holds], numbers[holds]


def find_for_row(fences: str, x: float, y: float) -> list[int]:
    """Boxes first, all at once: faster than one after the other from about 300 polygons on."""
    left, bottom, right, top = _boxes(fences)
    polygons = _polygons(fences)
    near = np.flatnonzero((left <= x) & (x <= right) & (bottom <= y) & (y <= top)).tolist()
    return [number for number in near if shapely.contains_xy(polygons[number], x, y)]


def _match(fences: str, find: Finds, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        xs, ys = (batch.column(name).to_numpy() for name in ("x", "y"))
        rows, numbers = find(fences, xs, ys)
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        offsets = pa.array(np.append(starts, rows.size).astype(np.int32))
        lists = pa.ListArray.from_arrays(offsets, pa.array(numbers.astype(np.int32)))
        ids = batch.column("id").take(pa.array(rows[starts]))
        yield pa.RecordBatch.from_arrays([ids, lists], names=["id", "__slots"])
