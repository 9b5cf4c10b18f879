"""Backups in directories: what is missing is told, what is not theirs stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.exchange.backup import Chunk, DirectoryBackup
from penstock.exchange.failures import BackupGone
from penstock.exchange.frames import encode_frame
from penstock.exchange.queue import Queue
from penstock.exchange.reading import read_batches
from penstock.exchange.spec import QueueSpec, make_directory
from penstock.exchange.state import first_record

SCHEMA = pa.schema([("n", pa.int64())])


def chunk(first: int, end: int) -> Chunk:
    batches = [pa.record_batch([pa.array([n])], schema=SCHEMA) for n in range(first, end)]
    payload = [memoryview(batch.serialize()) for batch in batches]
    parts = encode_frame({"first": first, "lengths": [len(part) for part in payload]}, payload)
    return Chunk(first, end, (b"".join(parts),))


def test_a_gap_is_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "frame_at", lambda *_: None)  # all of it is at the backup server
    spec = make_directory(tmp_path, QueueSpec("q", SCHEMA), first_record(0, {}))
    backup = DirectoryBackup(tmp_path / "backup", 1 << 20)
    backup.store(spec.id, chunk(0, 2))
    backup.store(spec.id, chunk(4, 6))
    queue = Queue(tmp_path / "q", spec)
    try:
        found = read_batches(queue, backup, 0, 6)
        assert [next(found)[0], next(found)[0]] == [0, 1]
        with pytest.raises(BackupGone, match="lacks position 2"):
            next(found)
    finally:
        queue.close()


def test_trimming_leaves_foreign_files_alone(tmp_path: Path) -> None:
    backup = DirectoryBackup(tmp_path, 1 << 20)
    backup.store("q-1", chunk(0, 2))
    foreign = tmp_path / "q-1" / "photo.jpg"
    foreign.write_text("mine")
    assert backup.trim("q-1", 2) == 0
    assert [path.name for path in foreign.parent.iterdir()] == ["photo.jpg"]
    foreign.unlink()
    backup.trim("q-1", 2)
    assert not foreign.parent.exists()
