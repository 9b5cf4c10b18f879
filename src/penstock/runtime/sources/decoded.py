"""Text that several rings read is decoded once: who comes first keeps the columns for the others.

Decoding JSON costs a ring more than all that follows, and every ring of a stream reads the same
pieces at about the same time. So the records of a piece are kept as an Arrow file in a directory of
the machine's temporary one, which is the engine's own; whoever reads the piece next maps it. A
piece is known by its file, that file's size and time, and by how it is to be read. Two rings that
begin at once both decode it: nobody waits for another. The oldest go when all are too large.

Pieces with bad records are not kept: these have to be told for each ring.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from penstock.runtime.sources.chunks import Chunk
from penstock.runtime.sources.files import FileOptions, FilePiece, read_pieces
from penstock.runtime.sources.listing import file_system
from penstock.schema import Schema

LIMIT_BYTES = 512 * 2**20
_LARGEST = LIMIT_BYTES // 8  # of a piece: it is in memory until it is written


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
    try:
        batches = _read(kept)
    except (OSError, pa.ArrowInvalid):  # nobody was here yet, or it has just gone
        yield from _decode(read_pieces([piece], options, schema, None, batch_rows), kept)
    else:
        yield from map(Chunk, batches)


def _known_by(piece: FilePiece, options: FileOptions, schema: Schema, batch_rows: int) -> str:
    file = file_system(options).get_file_info(piece.path)
    about = (piece, file.size, file.mtime_ns, options, schema, batch_rows)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]


def _read(kept: Path) -> list[pa.RecordBatch]:
    with pa.memory_map(str(kept)) as source:
        file = pa.ipc.open_file(source)
        batches = [file.get_batch(number) for number in range(file.num_record_batches)]
    os.utime(kept)  # in use: not yet among the oldest
    return batches


def _decode(chunks: Iterator[Chunk], kept: Path) -> Iterator[Chunk]:
    """Pass chunks on, and keep them if there is nothing but good records, and room."""
    batches: list[pa.RecordBatch] = []
    size, keeps = 0, True
    for chunk in chunks:
        size += chunk.batch.nbytes
        keeps = keeps and chunk.bad is None and size <= _LARGEST
        batches = [*batches, chunk.batch] if keeps else []
        yield chunk
    if batches:
        with suppress(OSError):  # no room is no harm
            _keep(kept, batches, size)


def _keep(kept: Path, batches: list[pa.RecordBatch], size: int) -> None:
    kept.parent.mkdir(mode=0o700, exist_ok=True)
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
    for path in directory.iterdir():
        with suppress(FileNotFoundError):  # another worker makes room, too
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        path.unlink(missing_ok=True)
        total -= size
