"""The stateful operator of JOIN rings, one call for each bucket and micro-batch.

Tuples arrive as Arrow blobs and are appended to the bucket's state as they are, so state is written
once and never rewritten. The tables that find combinations stay in the worker between micro-batches
(`tables`); they are made again from the chunks when a task has moved or a worker has died.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.kernels.join_bucket import TIME, JoinBucket
from penstock.plan.codec import composition_from, stream_from
from penstock.runtime.config import StageConfig
from penstock.runtime.joining.book import Book, Chunk
from penstock.runtime.joining.input_stage import INPUT, PUNCTUATION, VERSION
from penstock.runtime.joining.results import Results
from penstock.runtime.joining.shape import chunk_schema
from penstock.runtime.joining.slots import slots_for
from penstock.runtime.joining.tables import Warm, WarmTables
from penstock.runtime.packing import PACKED, blobs_of, from_ipc, to_ipc

_warm = WarmTables()


class JoinOperator(StatefulProcessor):
    def __init__(self, config_text: str) -> None:
        self._config_text = config_text

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._chunks = handle.getMapState("chunks", "number bigint", "tuples binary")
        self._book = handle.getValueState("book", "text string")
        self._config = StageConfig(**json.loads(self._config_text))
        self._composition = composition_from(self._config.composition)
        self._streams = [stream_from(text) for text in json.loads(self._config.stream)]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        bucket: int = key[0]
        arrived = list(rows)
        join = self._composition.join
        assert join is not None
        known = self._book.get()
        book = Book.empty(len(join.inputs)) if known is None else Book.loads(known[0])
        version = max(row[VERSION] for row in arrived)
        slots = slots_for(self._config, len(join.inputs), version)
        windows = slots.windows
        results = Results(self._composition, self._streams, slots.specs)
        ring = self._config.ring
        tables = self._tables(_warm.take(ring, bucket), book)  # back when all is well
        tables.expire(np.array(book.limits_us))
        for input_ in sorted({row[INPUT] for row in arrived}):
            blobs = [bytes(row[PACKED]) for row in arrived if row[INPUT] == input_]
            tuples, blob = _together(blobs)
            chunk = book.add(input_, tuples.num_rows, int(tuples.column(TIME).to_numpy().max()))
            self._chunks.updateValue((chunk.number,), (blob,))
            for combinations in tables.add(input_, tuples, windows):
                for blob in blobs_of(results.rows(combinations)):
                    yield Row(**{PACKED: blob})
        punctuation_us = min(row[PUNCTUATION] for row in arrived)
        book.advance(punctuation_us, windows.longest_us.tolist())
        for dead in book.take_dead():
            self._chunks.removeKey((dead.number,))
        token = secrets.token_hex(8)
        book.sign(token)
        self._book.update((book.dumps(),))
        _warm.put(ring, bucket, token, tables)

    def _tables(self, warm: Warm | None, book: Book) -> JoinBucket:
        """The bucket's tables as the state says."""
        missing = None if warm is None else book.missing_since(warm.token)
        if warm is None or missing is None:
            join = self._composition.join
            assert join is not None
            shapes = map(chunk_schema, join.inputs, self._streams)
            return self._loaded(JoinBucket(list(shapes)), book.chunks)
        return self._loaded(warm.bucket, missing)

    def _loaded(self, bucket: JoinBucket, chunks: list[Chunk]) -> JoinBucket:
        for chunk in chunks:
            found = self._chunks.getValue((chunk.number,))
            assert found is not None
            bucket.load(chunk.input, from_ipc(bytes(found[0])))
        return bucket

    def close(self) -> None:
        pass


def _together(blobs: list[bytes]) -> tuple[pa.RecordBatch, bytes]:
    """Tuples of one input, and the blob that keeps them."""
    batches = [from_ipc(blob) for blob in blobs]
    if len(batches) == 1:
        return batches[0], blobs[0]
    whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    return whole, to_ipc(whole)


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In mapInArrow: the rows inside the blobs."""
    for batch in batches:
        for blob in batch.column(PACKED):
            yield from pa.ipc.open_stream(blob.as_buffer())
