"""What is told of tuples that missed windows of queries, beside the tuples themselves."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.windows import LatePairs

ROW = "__row"  # the row of a batch that is late
_TIME = pa.timestamp("us", tz="UTC")


def late_columns(
    late: LatePairs, slots: np.ndarray, ts_us: np.ndarray, closed_us: int | np.ndarray
) -> pa.RecordBatch:
    """What `<stream>.late` says of each late pair, and the row that it is about."""
    punctuation_us = np.broadcast_to(closed_us, ts_us.shape)[late.rows]
    columns = {
        ROW: pa.array(late.rows),
        "_lateness_ms": pa.array((punctuation_us - ts_us[late.rows]) // 1000),
        "_slot": pa.array(slots),
        "_punctuation": pa.array(punctuation_us).cast(_TIME),
        "_missed": pa.array(late.missed),
        "_first_missed": pa.array(late.first_us).cast(_TIME),
        "_last_missed": pa.array(late.last_us).cast(_TIME),
        "_lost": pa.array(late.lost),
    }
    return pa.RecordBatch.from_pydict(columns)


def each_once(late: LatePairs, origins: np.ndarray) -> LatePairs:
    """The first of those pairs that are of one tuple and slot: they differ in the region only."""
    pairs = np.stack([origins[late.rows], late.positions])
    firsts = np.sort(np.unique(pairs, axis=1, return_index=True)[1])
    return LatePairs(*(getattr(late, f.name)[firsts] for f in fields(late)))


def moved(late: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
    """Count rows from the task's first on."""
    return late.set_column(0, ROW, pc.add(late.column(ROW), first_row))
