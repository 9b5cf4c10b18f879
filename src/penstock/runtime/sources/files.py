"""Reading a file stream: pieces of files in, typed batches and bad records out.

Whatever is wrong inside a file becomes bad records, never an exception: a stream must not stop for
one damaged file. A failure of the storage itself (the bytes cannot be fetched) is raised, so that
the task is tried again instead of losing data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyarrow import fs

from penstock.errors import PenstockError
from penstock.runtime.sources.binary import read_arrow, read_parquet
from penstock.runtime.sources.chunks import BAD_SCHEMA, Chunk, bad_file
from penstock.runtime.sources.csv_lines import csv_decoder
from penstock.runtime.sources.json_lines import JsonDecoder
from penstock.runtime.sources.lines import (
    BYTE_ORDER_MARK,
    Damaged,
    Decoder,
    Unreadable,
    read_blocks,
    read_lines,
)
from penstock.runtime.sources.listing import (
    FileInfo,
    FileOptions,
    compression_of,
    file_system,
    list_files,
)
from penstock.runtime.sources.options import suggest
from penstock.runtime.sources.splitting import FilePiece, split_files
from penstock.schema import Field, Schema, arrow_type

__all__ = [
    "BAD_SCHEMA",
    "Chunk",
    "FileInfo",
    "FileOptions",
    "FilePiece",
    "check_columns",
    "list_files",
    "read_pieces",
    "split_files",
]


def check_columns(options: FileOptions, schema: Schema) -> None:
    """Refuse, when a stream is created, columns that its format cannot hold."""
    for field in schema.fields:
        if options.format == "csv" and field.type.startswith("array<"):
            raise PenstockError(
                f"column {field.name} is {field.type}, which csv files cannot hold",
                "read it as STRING, or use json, parquet or arrow files",
            )


def read_pieces(
    pieces: Iterable[FilePiece],
    options: FileOptions,
    schema: Schema,
    columns: Sequence[str] | None = None,
    batch_rows: int = 131_072,
) -> Iterator[Chunk]:
    """The records of the pieces, typed exactly as `schema` says, for `columns` (None: all)."""
    check_columns(options, schema)
    fields = _pick(schema, columns)
    system = file_system(options)
    for piece in pieces:
        for chunk in _read_piece(system, piece, options, schema, fields, batch_rows):
            if chunk.batch.num_rows <= batch_rows:
                yield chunk
                continue
            for offset in range(0, chunk.batch.num_rows, batch_rows):
                part = chunk.batch.slice(offset, batch_rows)
                yield Chunk(part, chunk.bad if offset == 0 else None)


def _pick(schema: Schema, columns: Sequence[str] | None) -> tuple[Field, ...]:
    if columns is None:
        return schema.fields
    if not columns:
        raise PenstockError("no columns are asked for", "name at least one column")
    picked = []
    for name in columns:
        field = schema.field(name)
        if field is None:
            raise PenstockError(
                f"column {name} is not in the stream", suggest(name, schema.names, "columns")
            )
        picked.append(field)
    return tuple(picked)


def _read_piece(
    system: fs.FileSystem,
    piece: FilePiece,
    options: FileOptions,
    schema: Schema,
    fields: tuple[Field, ...],
    batch_rows: int,
) -> Iterator[Chunk]:
    typed = pa.schema([(f.name, arrow_type(f.type)) for f in fields])
    try:
        if options.format in ("csv", "json"):
            codec = compression_of(piece.path, options)
            with system.open_input_stream(piece.path, compression=codec) as stream:
                yield from _read_text(piece.path, stream, options, schema, fields, typed)
        else:
            read = read_parquet if options.format == "parquet" else read_arrow
            with system.open_input_file(piece.path) as source:
                place = piece.first, piece.count, batch_rows
                yield from read(piece.path, source, fields, schema.fields, *place)
    except Unreadable as error:
        yield bad_file(piece.path, typed, str(error))
    except Damaged as error:
        _raise_if_storage_fails(system, piece.path)
        yield bad_file(piece.path, typed, str(error))
    except (FileNotFoundError, PermissionError) as error:
        yield bad_file(piece.path, typed, f"the file cannot be opened: {error}")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        _raise_if_storage_fails(system, piece.path)
        yield bad_file(piece.path, typed, f"the {options.format} file is damaged: {error}")


def _read_text(
    file: str,
    stream: pa.NativeFile,
    options: FileOptions,
    schema: Schema,
    fields: tuple[Field, ...],
    typed: pa.Schema,
) -> Iterator[Chunk]:
    blocks = read_blocks(stream)
    block = next(blocks, b"").removeprefix(BYTE_ORDER_MARK)
    number = 1
    if options.format == "json":
        decoder: Decoder = JsonDecoder(fields)
    else:
        header = None
        if options.header:
            while block and (header := _first_line(block)) == b"":
                block, number = block[block.find(b"\n") + 1 :], number + 1
            if not header:
                return
            end = block.find(b"\n") + 1
            block, number = (block[end:] if end else b""), number + 1
        decoder = csv_decoder(options, schema, fields, header)
    yield from read_lines(file, itertools.chain([block], blocks), number, decoder, typed)


def _first_line(block: bytes) -> bytes:
    end = block.find(b"\n")
    return (block if end < 0 else block[:end]).removesuffix(b"\r")


def _raise_if_storage_fails(system: fs.FileSystem, path: str) -> None:
    """Read the plain bytes once: if that works, the fault is in the file and not in the storage."""
    with system.open_input_stream(path, compression=None) as stream:
        while stream.read(1 << 20):
            pass
