"""The Parquet files that benchmarks read: event times out of order, none later than SLACK.

The last file holds tuples of a far later day, one for each value of `w`: they carry every watermark
past all windows before them, so a query of either engine has delivered them without being stopped.
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
_DAY_US = 86_400_000_000
_DISORDER_US = 8_000_000


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
    step_us = tuples.minutes * 60_000_000 / tuples.rows
    for number in range(tuples.files):
        n = tuples.rows_per_file
        at_us = ((number * n + np.arange(n)) * step_us).astype(np.int64)
        ts_us = _START_US + at_us - random.integers(0, _DISORDER_US, n)
        key = random.integers(0, tuples.groups, n, np.int32)
        _write(directory, number, key, ts_us, random.normal(20, 5, n), random.integers(0, WEIGHTS, n))
    last = np.arange(WEIGHTS)
    later_us = np.full(WEIGHTS, _START_US + tuples.minutes * 60_000_000 + _DAY_US)
    _write(directory, tuples.files, np.zeros(WEIGHTS, np.int32), later_us, np.zeros(WEIGHTS), last)


def _write(
    directory: Path, number: int, key: np.ndarray, ts_us: np.ndarray, v: np.ndarray, w: np.ndarray
) -> None:
    ts = pa.array(ts_us).cast(pa.timestamp("us", tz="UTC"))
    path = directory / f"part-{number:05d}.parquet"
    pq.write_table(pa.table({"key": key, "ts": ts, "v": v, "w": w}), path)
    seconds = 1_700_000_000 + number  # both engines read the oldest file first
    os.utime(path, (seconds, seconds))
