"""The rows of a task's pieces, whatever source of penstock's own they come from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.plan.catalog import Stream
from penstock.plan.codec import stream_from
from penstock.runtime.config import StageConfig
from penstock.runtime.derived.source import read_queue
from penstock.runtime.sources.beside import Beside
from penstock.runtime.sources.decoded import decoded_directory, read_shared
from penstock.runtime.sources.files import FileOptions, FilePiece, read_pieces
from penstock.runtime.sources.generator import GeneratorOptions, batches_in_ticks

BATCH_ROWS = 131_072

_stream = lru_cache(maxsize=64)(stream_from)


def file_options(stream: Stream) -> FileOptions:
    """A file stream's options without those that every stream may have."""
    return FileOptions.from_options(dict(stream.options))


def open_pieces(
    config: StageConfig,
    pieces: list[Any],
    names: list[str] | None,
    beside: Beside,
    shared: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Batches of the named columns (None: all); what else there is goes into `beside`.

    shared: other rings read the same pieces.
    """
    stream = _stream(config.stream)
    wanted = list(stream.schema.names) if names is None else names
    if stream.source == "generator":
        generator = GeneratorOptions.from_options(dict(stream.options))
        times = (stream.event_time, stream.arrival_time)
        for piece in pieces:
            ticks = (piece["first"], piece["end"])
            yield from batches_in_ticks(
                generator, stream.schema, *times, *ticks, wanted, BATCH_ROWS
            )
        return
    if stream.source == "derived":
        yield from read_queue(stream, pieces, wanted, beside)
        return
    options = file_options(stream)
    # a record is bad or not whatever a query reads of it, so text is always parsed whole
    is_text = options.format not in ("parquet", "arrow")
    for piece in pieces:
        part = FilePiece.from_json(piece)
        if is_text and shared:
            kept = decoded_directory(config.token)
            chunks = read_shared(part, options, stream.schema, BATCH_ROWS, kept)
        else:
            read = None if is_text else wanted
            chunks = read_pieces([part], options, stream.schema, read, BATCH_ROWS)
        for chunk in chunks:
            if chunk.bad is not None and chunk.bad.num_rows:
                beside.bad.setdefault(f"{part.path}#{part.first}", []).append(chunk.bad)
            if chunk.batch.num_rows:
                yield chunk.batch.select(wanted)
