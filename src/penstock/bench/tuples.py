"""The files that benchmarks read: event times out of order, none later than SLACK.

The first file is small: a query warms up on it. The last file holds tuples of hours later, one for
each value of `w`: they carry every watermark past all windows before them, so a query of either
engine delivers them all without being stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

COLUMNS = "key INT, ts TIMESTAMP, v DOUBLE, w BIGINT"
SLACK = "10 seconds"
WEIGHTS = 1000  # w is one of 0 … 999
_START_US = 1_704_067_200_000_000
_LATER_US = 43_200_000_000  # less than what a stream's clock trusts
_DISORDER_US = 8_000_000
_FIRST_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Tuples:
    """`files` files of `rows_per_file` tuples over `minutes` of event time, `groups` keys."""

    files: int
    rows_per_file: int
    minutes: int
    groups: int = 100
    seed: int = 1
    format: str = "parquet"  # or json

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_file


def write_tuples(directory: Path, tuples: Tuples) -> None:
    directory.mkdir(parents=True)
    for number, table in enumerate(tables(tuples)):
        _write(directory / f"part-{number:05d}.{tuples.format}", number, table)


def tables(tuples: Tuples) -> Iterator[pa.Table]:
    """What is in the files."""
    random = np.random.default_rng(tuples.seed)
    per_file_us = tuples.minutes * 60_000_000 // tuples.files
    first_us, groups = _START_US - per_file_us, tuples.groups
    yield _random(random, _FIRST_ROWS, groups, first_us, per_file_us)
    for number in range(tuples.files):
        begin_us = _START_US + number * per_file_us
        yield _random(random, tuples.rows_per_file, groups, begin_us, per_file_us)
    key, last = np.zeros(WEIGHTS, np.int32), np.arange(WEIGHTS)
    later_us = np.full(WEIGHTS, _START_US + tuples.minutes * 60_000_000 + _LATER_US)
    yield _table(key, later_us, np.zeros(WEIGHTS), last)


def _random(
    random: np.random.Generator, rows: int, groups: int, begin_us: int, length_us: int
) -> pa.Table:
    at_us = begin_us + np.arange(rows) * length_us // rows
    ts_us = at_us - random.integers(0, _DISORDER_US, rows)
    key = random.integers(0, groups, rows, np.int32)
    return _table(key, ts_us, random.normal(20, 5, rows), random.integers(0, WEIGHTS, rows))


def _table(key: np.ndarray, ts_us: np.ndarray, v: np.ndarray, w: np.ndarray) -> pa.Table:
    ts = pa.array(ts_us).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"key": key, "ts": ts, "v": v, "w": w})


def _write(path: Path, number: int, table: pa.Table) -> None:
    if path.suffix == ".json":
        path.write_text("\n".join([*_json_lines(table), ""]))
    else:
        pq.write_table(table, path)
    seconds = 1_700_000_000 + number  # both engines read the oldest file first
    os.utime(path, (seconds, seconds))


def _json_lines(table: pa.Table) -> list[str]:
    """
    >>> _json_lines(_table(np.array([7]), np.array([1_500_000]), np.array([0.5]), np.array([3])))
    ['{"key": 7, "ts": "1970-01-01T00:00:01.500000Z", "v": 0.5, "w": 3}']
    """
    values: list[Any] = []
    for name in table.schema.names:
        column, quote = table.column(name), '"' if name == "ts" else ""
        if name == "ts":
            column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
        values += [f'{", " if values else "{"}"{name}": {quote}', column.cast(pa.string()), quote]
    return pc.binary_join_element_wise(*values, "}", "").to_pylist()
