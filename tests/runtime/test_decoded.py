"""Text that several rings read: the same records, decoded once, within a limit."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from penstock.runtime.sources import decoded
from penstock.runtime.sources.chunks import Chunk
from penstock.runtime.sources.decoded import read_shared
from penstock.runtime.sources.files import FileOptions, FilePiece, read_pieces
from penstock.schema import Schema

SCHEMA = Schema.of("id INT, name STRING")
ROWS = 1000


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def _write(path: Path, rows: int, more: str = "") -> FilePiece:
    lines = [f'{{"id": {n}, "name": "n{n}"}}' for n in range(rows)]
    path.write_text("\n".join([*lines, more]))
    return FilePiece(str(path))


def _read(piece: FilePiece, kept: Path) -> list[Chunk]:
    options = FileOptions.from_options({"path": piece.path, "format": "json"})
    return list(read_shared(piece, options, SCHEMA, 300, kept))


def test_the_second_reader_gets_the_same_without_the_text(tmp_path: Path, kept: Path) -> None:
    piece = _write(tmp_path / "a.json", ROWS)
    options = FileOptions.from_options({"path": piece.path, "format": "json"})
    plain = list(read_pieces([piece], options, SCHEMA, None, 300))
    before = os.stat(piece.path)
    assert _read(piece, kept) == plain
    Path(piece.path).write_bytes(b" " * before.st_size)  # as long and as old, but nothing in it
    os.utime(piece.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _read(piece, kept) == plain
    assert [chunk.batch.num_rows for chunk in plain] == [300, 300, 300, 100]


def test_a_file_that_is_another_by_now_is_read_again(tmp_path: Path, kept: Path) -> None:
    piece = _write(tmp_path / "a.json", ROWS)
    _read(piece, kept)
    _write(tmp_path / "a.json", 10)
    assert [chunk.batch.num_rows for chunk in _read(piece, kept)] == [10]


def test_bad_records_are_told_every_time(tmp_path: Path, kept: Path) -> None:
    piece = _write(tmp_path / "a.json", ROWS, more='{"id": "x"}')
    for _ in range(2):
        chunks = _read(piece, kept)
        assert sum(c.bad.num_rows for c in chunks if c.bad is not None) == 1
        assert sum(c.batch.num_rows for c in chunks) == ROWS
    assert not list(kept.glob("*.arrow"))


def test_readers_that_come_at_once_wait_for_the_first(tmp_path: Path, kept: Path) -> None:
    piece = _write(tmp_path / "a.json", ROWS)
    read, begun = [], threading.Barrier(4)

    def reader() -> None:
        begun.wait()
        read.append(_read(piece, kept))

    with pytest.MonkeyPatch.context() as patch:
        decoded_by = []

        def counted(*given):
            decoded_by.append(threading.get_ident())
            time.sleep(0.2)  # as long as a large piece takes
            yield from read_pieces(*given)

        patch.setattr(decoded, "read_pieces", counted)
        threads = [threading.Thread(target=reader) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(decoded_by) == 1
    assert read == [read[0]] * 4


def test_the_oldest_make_room(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [_write(tmp_path / f"{n}.json", ROWS) for n in range(6)]
    one = sum(chunk.batch.nbytes for chunk in _read(pieces[0], tmp_path / "other"))
    monkeypatch.setattr(decoded, "LIMIT_BYTES", 4 * one)
    ages: dict[Path, int] = {}
    for age, piece in enumerate(pieces):
        _read(piece, kept)
        for path in set(kept.glob("*.arrow")) - ages.keys():
            ages[path] = age
            os.utime(path, (age, age))
    left = list(kept.glob("*.arrow"))
    assert sorted(ages[path] for path in left)[-2:] == [4, 5]
    assert sum(path.stat().st_size for path in left) < 5 * one


def test_a_piece_that_is_too_large_is_not_kept(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoded, "_LARGEST", 100)
    piece = _write(tmp_path / "a.json", ROWS)
    for _ in range(2):
        assert sum(chunk.batch.num_rows for chunk in _read(piece, kept)) == ROWS
    assert not list(kept.glob("*.arrow"))


def test_no_room_on_the_disk_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    piece = _write(tmp_path / "a.json", ROWS)
    assert len(_read(piece, tmp_path / "file")) == 4


def test_a_storage_that_fails_is_no_end_of_the_file(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = _write(tmp_path / "a.json", ROWS)

    def failing(*given):
        yield next(read_pieces(*given))
        raise OSError("the storage went away")

    with monkeypatch.context() as patch:
        patch.setattr(decoded, "read_pieces", failing)
        with pytest.raises(OSError, match="went away"):
            _read(piece, kept)
    assert sum(chunk.batch.num_rows for chunk in _read(piece, kept)) == ROWS


def test_nobody_waits_for_ever(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "PATIENCE_S", 0.05)
    piece = _write(tmp_path / "a.json", ROWS)
    kept.mkdir()
    held = [open(kept / f"lock-{digit}", "w") for digit in "0123456789abcdef"]  # noqa: SIM115
    try:
        for lock in held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        assert sum(chunk.batch.num_rows for chunk in _read(piece, kept)) == ROWS
    finally:
        for lock in held:
            lock.close()
    assert not list(kept.glob("*.arrow"))
