"""What reading a file gives: batches of good records, and the records that could not be taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

RECORD_CHARACTERS = 10_000  # a bad record's text is cut here

BAD_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("record", pa.string()),
        ("reason", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """`position`: the line (from 1) in text, the row (from 0) in parquet and arrow; 0 with an empty
    record: the file itself."""

    position: int
    record: str
    reason: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Good records, and the bad ones met on the way (BAD_SCHEMA) or None."""

    batch: pa.RecordBatch
    bad: pa.RecordBatch | None = None


def bad_batch(file: str, records: Sequence[BadRecord]) -> pa.RecordBatch | None:
    if not records:
        return None
    return pa.RecordBatch.from_arrays(
        [
            pa.array([file] * len(records), pa.string()),
            pa.array([r.position for r in records], pa.int64()),
            pa.array([r.record[:RECORD_CHARACTERS] for r in records], pa.string()),
            pa.array([r.reason for r in records], pa.string()),
        ],
        schema=BAD_SCHEMA,
    )


def bad_file(file: str, schema: pa.Schema, reason: str) -> Chunk:
    """No records: the file as a whole, or what is left of it, cannot be read."""
    empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    return Chunk(empty, bad_batch(file, [BadRecord(0, "", reason)]))
