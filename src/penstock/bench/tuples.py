"""The Parquet files that benchmarks read: event times out of order, none later than SLACK.

The first file is small: a query warms up on it. The last file holds tuples of hours later, one for
each value of `w`: they carry every watermark past all windows before them, so a query of either
engine delivers them all without being stopped.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
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

    @property
    def rows(self) -> int:
        return self.files * self.rows_per_file


def write_tuples(directory: Path, tuples: Tuples) -> None:
    directory.mkdir(parents=True)
    random = np.random.default_rng(tuples.seed)
    per_file_us = tuples.minutes * 60_000_000 // tuples.files
    _write_random(
        directory, 0, random, _FIRST_ROWS, tuples.groups, _START_US - per_file_us, per_file_us
    )
    for number in range(tuples.files):
        begin_us = _START_US + number * per_file_us
        rows = tuples.rows_per_file
        _write_random(directory, number + 1, random, rows, tuples.groups, begin_us, per_file_us)
    key, last = np.zeros(WEIGHTS, np.int32), np.arange(WEIGHTS)
    later_us = np.full(WEIGHTS, _START_US + tuples.minutes * 60_000_000 + _LATER_US)
    _write(directory, tuples.files + 1, key, later_us, np.zeros(WEIGHTS), last)


def _write_random(
    directory: Path,
    number: int,
    random: np.random.Generator,
    rows: int,
    groups: int,
    begin_us: int,
    length_us: int,
) -> None:
    at_us = begin_us + np.arange(rows) * length_us // rows
    ts_us = at_us - random.integers(0, _DISORDER_US, rows)
    key = random.integers(0, groups, rows, np.int32)
    _write(
        directory, number, key, ts_us, random.normal(20, 5, rows), random.integers(0, WEIGHTS, rows)
    )


def _write(
    directory: Path, number: int, key: np.ndarray, ts_us: np.ndarray, v: np.ndarray, w: np.ndarray
) -> None:
    ts = pa.array(ts_us).cast(pa.timestamp("us", tz="UTC"))
    path = directory / f"part-{number:05d}.parquet"
    pq.write_table(pa.table({"key": key, "ts": ts, "v": v, "w": w}), path)
    seconds = 1_700_000_000 + number  # both engines read the oldest file first
    os.utime(path, (seconds, seconds))
