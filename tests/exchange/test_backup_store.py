"""Backups in directories: what is missing is told, what is not theirs stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from penstock.exchange.backup import Chunk, DirectoryBackup
from penstock.exchange.failures import BackupGone, BatchTooLarge, Refused
from penstock.exchange.frames import encode_frame
from penstock.exchange.object_backup import ObjectBackup
from penstock.exchange.queue import Queue
from penstock.exchange.reading import read_batches
from penstock.exchange.remote_backup import backup_at
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


@pytest.fixture
def objects(tmp_path: Path) -> ObjectBackup:
    return ObjectBackup(fs.LocalFileSystem(), str(tmp_path / "bucket"), 2000)


def test_an_object_store_gives_back_what_it_took_until_it_is_trimmed(objects: ObjectBackup) -> None:
    for first in (0, 2, 4):
        objects.store("q-1", chunk(first, first + 2))
    objects.store("q-1", chunk(2, 4))  # handed over again
    assert [frame.header["first"] for frame in objects.fetch("q-1", 1, 4)] == [0, 2]
    before = objects.total_bytes
    assert objects.trim("q-1", 3) == objects.total_bytes < before
    assert [frame.header["first"] for frame in objects.fetch("q-1", 0, 9)] == [2, 4]
    assert objects.trim("q-1", 6) == objects.total_bytes == 0
    assert list(objects.fetch("q-1", 0, 9)) == []


def test_an_object_store_is_full_and_known_again_after_a_restart(
    objects: ObjectBackup, tmp_path: Path
) -> None:
    size = chunk(0, 2).nbytes
    for first in range(0, 2 * (2000 // size), 2):
        objects.store("q-1", chunk(first, first + 2))
    with pytest.raises(BatchTooLarge, match="is full"):
        objects.store("q-1", chunk(100, 102))
    again = ObjectBackup(fs.LocalFileSystem(), str(tmp_path / "bucket"), 2000)
    with pytest.raises(BatchTooLarge, match="is full"):
        again.store("q-2", chunk(0, 2))
    assert again.total_bytes == objects.total_bytes


def test_a_torn_object_is_written_anew_and_passed_over(
    objects: ObjectBackup, tmp_path: Path
) -> None:
    objects.store("q-1", chunk(0, 2))
    [whole] = (tmp_path / "bucket" / "q-1").iterdir()
    content = whole.read_bytes()
    for name in (whole.name, whole.name.replace("02.chunk", "01.chunk")):
        (whole.parent / name).write_bytes(content[:-7])
    assert list(objects.fetch("q-1", 0, 2)) == []
    objects.store("q-1", chunk(0, 2))
    assert [frame.header["first"] for frame in objects.fetch("q-1", 0, 2)] == [0]


def test_what_cannot_be_reached_is_gone_and_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    inside = ObjectBackup(fs.LocalFileSystem(), str(tmp_path / "file" / "bucket"), 2000)
    with pytest.raises(BackupGone, match="cannot be used"):
        inside.store("q-1", chunk(0, 2))
    with pytest.raises(Refused, match="ftp://x is not a backup server"):
        backup_at("ftp://x", "token", 1)
