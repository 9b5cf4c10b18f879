"""Batches of a queue with their positions, from its log and from the backup server."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.exchange.backup import BackupStore
from penstock.exchange.failures import BackupGone
from penstock.exchange.frames import Frame
from penstock.exchange.queue import Queue


def read_batches(
    queue: Queue, backup: BackupStore | None, start: int, end: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Positions [start, end) in order; what goes to the backup meanwhile is read from there."""
    while start < end:
        before = start
        for first, frame in _frames(queue, backup, start, end):
            if first > start:
                break
            for position, batch in enumerate(_batches(frame, queue.spec.schema), first):
                if start <= position < end:
                    yield position, batch
                    start = position + 1
        if start == before:
            raise BackupGone(
                f"the backup of queue {queue.spec.name} lacks position {start}",
                "if its directory is lost, roll the upstream back to its last safe batch",
            )


def _frames(
    queue: Queue, backup: BackupStore | None, start: int, end: int
) -> Iterator[tuple[int, Frame]]:
    if (found := queue.frame_at(start)) is not None:
        yield found
        return
    if backup is None:
        raise BackupGone(f"queue {queue.spec.name} was backed up, but has no backup server now")
    for frame in backup.fetch(queue.spec.id, start, end):
        yield frame.header["first"], frame


def _batches(frame: Frame, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    rest = frame.payload
    for length in frame.header["lengths"]:
        yield pa.ipc.read_record_batch(pa.py_buffer(rest[:length]), schema)
        rest = rest[length:]
