"""The stateful operator of JOIN rings, one call for each bucket and micro-batch.

Tuples arrive as Arrow blobs and are appended to the bucket's state as they are, so state is written
once and seldom rewritten. The tables that find combinations stay in the worker between
micro-batches (`tables`); they are made again from the chunks when a task has moved or a worker has
died. `turn` decides; here is what it needs of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
)

from penstock.kernels.join_bucket import Combinations
from penstock.plan.codec import composition_from, stream_from
from penstock.runtime.config import StageConfig
from penstock.runtime.joining.book import Book
from penstock.runtime.joining.input_stage import INPUT, PUNCTUATION, ROUND, VERSION
from penstock.runtime.joining.monitor import BucketFigures, as_message
from penstock.runtime.joining.results import Results
from penstock.runtime.joining.shape import chunk_schema
from penstock.runtime.joining.slots import slots_for
from penstock.runtime.joining.tables import WarmTables
from penstock.runtime.joining.turn import Arrived, Turn
from penstock.runtime.packing import PACKED, blobs_of
from penstock.runtime.service import ask

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
        self._seen: dict[int, BucketFigures] = {}
        self._store = _Chunks(self._chunks)
        _warm.most_bytes = self._config.join_memory

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        join = self._composition.join
        assert join is not None
        known = self._book.get()
        book = Book.empty(len(join.inputs)) if known is None else Book.loads(known[0])
        arrived, in_round = [], False
        for row in rows:
            if row[INPUT] == ROUND:
                in_round = True
            else:
                packed = bytes(row[PACKED])
                arrived.append(Arrived(row[INPUT], row[VERSION], row[PUNCTUATION], packed))
        book.version = max([book.version, *(a.version for a in arrived)])
        slots = slots_for(self._config, len(join.inputs), book.version)
        results = Results(self._composition, self._streams, slots.specs)
        turn = Turn(
            (self._config.ring, key[0]),
            list(map(chunk_schema, join.inputs, self._streams)),
            self._composition.kind == "window",
            book,
            self._store,
            _warm,
        )

        def pack(combinations: Combinations) -> Iterator[bytes]:
            return blobs_of(results.rows(combinations))

        try:
            for blob in turn.run(arrived, in_round, slots.windows, pack):
                yield Row(**{PACKED: blob})
        finally:
            self._store.finish()
        self._seen[key[0]] = turn.figures()
        if book.next:
            self._book.update((book.dumps(),))

    def close(self) -> None:
        self._store.close()
        if self._seen:
            ask(self._config.address, "joined", as_message(self._config.ring, self._seen))


class _Chunks:
    """Chunks in Spark's state. What is put goes its way while the caller works on.

    There is one connection to the state: whoever else uses it calls `finish` before.
    """

    def __init__(self, state: MapState) -> None:
        self._state = state
        self._thread = ThreadPoolExecutor(1)
        self._sent: list[Future[None]] = []

    def get(self, number: int) -> bytes:
        self.finish()
        found = self._state.getValue((number,))
        assert found is not None
        return bytes(found[0])

    def put(self, number: int, tuples: bytes) -> None:
        self._sent.append(self._thread.submit(self._state.updateValue, (number,), (tuples,)))

    def remove(self, number: int) -> None:
        self.finish()
        self._state.removeKey((number,))

    def finish(self) -> None:
        """Wait until all is in the state; raise what went wrong."""
        sent, self._sent = self._sent, []
        for each in sent:
            each.result()

    def close(self) -> None:
        self._thread.shutdown()


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In mapInArrow: the rows inside the blobs."""
    for batch in batches:
        for blob in batch.column(PACKED):
            yield from pa.ipc.open_stream(blob.as_buffer())
