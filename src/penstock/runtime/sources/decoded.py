"""Text that several rings read is decoded once: who comes first keeps the columns for the others.

Decoding JSON costs a ring more than all that follows, and every ring of a stream reads the same
pieces at about the same time. So the records of a piece are kept as an Arrow file in a directory of
the machine's temporary one, which is the engine's own; whoever reads the piece next, or waits for
it, maps it. A piece is known by its file, that file's size and time, and by how it is to be read.
The oldest go when all are too large.

Pieces that are too large by themselves, or have bad records, which have to be told for each ring,
are not kept: whoever finds that out leaves a mark, so that nobody waits for another in vain.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pyarrow as pa

from penstock.runtime.sources.chunks import Chunk
from penstock.runtime.sources.files import FileOptions, FilePiece, read_pieces
from penstock.runtime.sources.listing import file_system
from penstock.schema import Schema

LIMIT_BYTES = 512 * 2**20
_LARGEST = LIMIT_BYTES // 8  # of a piece: it is in memory until it is written
_MOST_FILES = 4096
PATIENCE_S = 30.0  # with another reader, before a piece is decoded once more
_LOOK_S = 0.005


def decoded_directory(token: str) -> Path:
    """Where the workers of an engine keep what they have decoded."""
    name = hashlib.sha256(token.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"penstock-decoded-{name}"


def forget_decoded(token: str) -> None:
    shutil.rmtree(decoded_directory(token), ignore_errors=True)


def read_shared(
    piece: FilePiece, options: FileOptions, schema: Schema, batch_rows: int, directory: Path
) -> Iterator[Chunk]:
    """The records of a piece of text with all columns, as `read_pieces` gives them."""
    kept = directory / f"{_known_by(piece, options, schema, batch_rows)}.arrow"
    chunks = read_pieces([piece], options, schema, None, batch_rows)
    if (turn := _turn(kept)) is not None:
        with turn:
            if first := _read(kept):
                chunks = iter(())
            else:
                first = _decode(chunks, kept)
        yield from first
    yield from chunks  # all, or what is left of those that are not kept


def _known_by(piece: FilePiece, options: FileOptions, schema: Schema, batch_rows: int) -> str:
    file = file_system(options).get_file_info(piece.path)
    about = (piece, file.size, file.mtime_ns, options, schema, batch_rows)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]


def _apart(kept: Path) -> Path:
    """The mark of a piece that is not kept."""
    return kept.with_suffix(".apart")


def _turn(kept: Path) -> IO[str] | None:
    """One reader of a piece at a time, until this is closed; None if there is nothing to wait for.

    The system ends the turn of a process that dies.
    """
    try:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        if _apart(kept).exists():
            return None
        lock = open(kept.with_name(f"lock-{kept.name[0]}"), "w")  # noqa: SIM115 (held by the reader)
    except OSError:  # no room to keep anything is no harm
        return None
    if _locked(lock):
        return lock
    lock.close()
    return None


def _locked(lock: IO[str]) -> bool:
    """Whether the turn came in time: whoever has it may hang in a file system."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        except OSError:  # a file system without locks
            return False
        else:
            return True


def _read(kept: Path) -> list[Chunk]:
    """What another reader has kept; nothing if there was none."""
    try:
        with pa.memory_map(str(kept)) as source:
            file = pa.ipc.open_file(source)
            batches = [file.get_batch(number) for number in range(file.num_record_batches)]
        os.utime(kept)  # in use: not yet among the oldest
    except (OSError, pa.ArrowInvalid):
        return []
    return list(map(Chunk, batches))


def _decode(chunks: Iterator[Chunk], kept: Path) -> list[Chunk]:
    """Decode all and keep it; or less, if it is not to be kept."""
    found: list[Chunk] = []
    size = 0
    for chunk in chunks:
        found.append(chunk)
        size += chunk.batch.nbytes
        if chunk.bad is not None or size > _LARGEST:
            with suppress(OSError):
                _apart(kept).touch()
            return found
    if found:
        with suppress(OSError):
            _keep(kept, [chunk.batch for chunk in found], size)
    return found


def _keep(kept: Path, batches: list[pa.RecordBatch], size: int) -> None:
    _make_room(kept.parent, LIMIT_BYTES - size)
    half = kept.with_name(f"{kept.stem}.{os.getpid()}")
    try:
        with pa.ipc.new_file(str(half), batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        os.replace(half, kept)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _make_room(directory: Path, limit: int) -> None:
    found = []
    for path in (*directory.glob("*.arrow"), *directory.glob("*.apart")):
        with suppress(FileNotFoundError):  # another worker makes room, too
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for number, (_, size, path) in enumerate(sorted(found)):
        if total <= limit and len(found) - number < _MOST_FILES:
            return
        path.unlink(missing_ok=True)
        total -= size
