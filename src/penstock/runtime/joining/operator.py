"""The stateful operator of JOIN rings, one call for each micro-batch and lane of buckets.

Tuples arrive as Arrow blobs and are appended to the bucket's state as they are, so state is written
once and seldom rewritten. The tables that find combinations stay in the worker between
micro-batches (`tables`); they are made again from the chunks when a task has moved or a worker has
died. `turn` decides, `worker` does it.

Spark makes an operator in a process of its own just to ask for its state: what only tasks need is
imported there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.runtime.packing import PACKED

if TYPE_CHECKING:
    from penstock.runtime.joining.worker import JoinWorker


class JoinOperator(StatefulProcessor):
    def __init__(self, config_text: str) -> None:
        self._config_text = config_text

    def init(self, handle: StatefulProcessorHandle) -> None:
        key = "bucket int, number bigint"
        self._chunks = handle.getMapState("chunks", key, "tuples binary")
        self._books = handle.getMapState("books", "bucket int", "text string")
        self._worker: JoinWorker | None = None

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        if self._worker is None:
            from penstock.runtime.joining.worker import JoinWorker

            self._worker = JoinWorker(self._config_text, self._chunks, self._books)
        for blob in self._worker.results(rows):
            yield Row(**{PACKED: blob})

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In mapInArrow: the rows inside the blobs."""
    for batch in batches:
        for blob in batch.column(PACKED):
            yield from pa.ipc.open_stream(blob.as_buffer())
