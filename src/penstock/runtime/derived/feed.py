"""Results of a ring into the queue of its derived stream, once per micro-batch.

A micro-batch is one batch of the queue, known by ring and number: a replayed one changes nothing.
After its tuples comes the punctuation that holds from then on, as a row of its own; always, so that
into a queue that was lost the same rows go with the same positions. A micro-batch whose results
cannot be passed on has failed: they must not go anywhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import EngineError
from penstock.exchange.client import NodeClient, SafePoint
from penstock.exchange.failures import NodeBusy, QueueFull
from penstock.exchange.wire import QueueRef
from penstock.runtime.derived.definition import PUNCTUATION

_WAIT_S = 1.0


@dataclass(slots=True)
class Feed:
    """complete_us: up to where results are complete after a micro-batch of the ring.

    note: takes each micro-batch that is in the queue, and the last one that all are done with.
    failed_readers: rings for which it makes no sense to wait.
    """

    client: NodeClient
    queue: QueueRef
    schema: pa.Schema
    complete_us: Callable[[int], int]
    note: Callable[[int, SafePoint | None], None]
    failed_readers: Callable[[], list[str]]

    def pass_on(
        self, rows: pa.Table | None, ring: str, batch: int, stopping: threading.Event
    ) -> None:
        """Deliver a micro-batch; wait while the queue is full, until the ring is stopped."""
        tuples = [] if rows is None else self._tuples(rows)
        punctuation = self._punctuation(self.complete_us(batch))
        self._put([*tuples, punctuation], ring, batch, stopping)
        self.note(batch, self.client.commit(self.queue, ring, batch, 1).safe)

    def _put(
        self, batches: list[pa.RecordBatch], ring: str, batch: int, stopping: threading.Event
    ) -> None:
        while True:
            try:
                self.client.put(self.queue, ring, batch, 0, self.schema, batches)
                return
            except (QueueFull, NodeBusy) as error:
                if failed := self.failed_readers():
                    raise EngineError(
                        f"{error.message}, and ring {failed[0]} that reads it has failed",
                        "drop its queries, or start the engine again",
                    ) from None
                if stopping.wait(_WAIT_S):
                    raise

    def _tuples(self, rows: pa.Table) -> list[pa.RecordBatch]:
        """One record batch, so that the same rows always have as many positions."""
        nothing = pa.nulls(rows.num_rows, pa.int64())
        columns = [
            column.cast(wanted.type)
            for column, wanted in zip(rows.columns, self.schema, strict=False)
        ]
        table = pa.Table.from_arrays([*columns, nothing], schema=self.schema)
        batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
        return batches

    def _punctuation(self, complete_us: int) -> pa.RecordBatch:
        columns = [pa.nulls(1, column.type) for column in self.schema]
        columns[-1] = pa.array([complete_us], pa.int64())
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def punctuation_in(batch: pa.RecordBatch) -> int | None:
    """The punctuation that a batch of a queue is; None if it holds tuples."""
    column = batch.column(batch.schema.get_field_index(PUNCTUATION))
    return None if column.null_count == len(column) else int(column[0].as_py())
