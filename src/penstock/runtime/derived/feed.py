"""Results of a ring into the queue of its derived stream, once per micro-batch.

A micro-batch is one batch of the queue, known by ring and number: a replayed one changes nothing.
After its tuples comes the punctuation that holds from then on, as a row of its own; always, so that
into a queue that was lost the same rows go with the same positions. A micro-batch whose results
cannot be passed on has failed: they must not go anywhere else.

Tasks put their partitions themselves (`putting`). Only results of DataFrames that users bring go
through the driver, as one partition: how Spark cuts those may be another matter after a restart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.exchange.client import NodeClient, SafePoint
from penstock.exchange.wire import NodeAddress, QueueRef
from penstock.plan.specs import Shown
from penstock.runtime.derived.definition import PUNCTUATION
from penstock.runtime.derived.putting import (
    UNCUT_BYTES,
    Putting,
    Shape,
    put_by_tasks,
    put_while_full,
)
from penstock.runtime.service import Address
from penstock.runtime.unlogged import errors_unlogged


@dataclass(frozen=True, slots=True)
class Fed:
    """A micro-batch in the queue; tuples: if somebody watches."""

    rows: int
    tuples: pa.Table | None


@dataclass(slots=True)
class Feed:
    """complete_us: up to where results are complete after a micro-batch of the ring.

    note: takes each micro-batch that is in the queue, and the last one that all are done with.
    failed_readers: rings for which it makes no sense to wait. engine: what tasks ask; None if the
    driver puts everything itself.
    """

    client: NodeClient
    node: NodeAddress
    queue: QueueRef
    stream: str
    schema: pa.Schema
    complete_us: Callable[[int], int]
    note: Callable[[int, SafePoint | None], None]
    failed_readers: Callable[[], list[str]]
    engine: Address | None = None

    def pass_on(
        self,
        frame: DataFrame,
        names: tuple[str, ...],
        columns: tuple[Shown, ...] | None,
        ring: str,
        batch: int,
        stopping: threading.Event,
        heard: bool,
    ) -> Fed:
        """Deliver a micro-batch; wait while the queue is full, until the ring is stopped."""
        shape = Shape(names, columns, self.schema)
        if self.engine is not None:
            place = self.node, self.queue, self.stream, ring, batch
            with errors_unlogged():
                counts, tuples = put_by_tasks(frame, Putting(*place, shape, self.engine, heard))
        else:
            with errors_unlogged():
                found = frame.toArrow()
            tuples = shape.tuples(found)
            self._put(tuples, ring, batch, 0, stopping)
            counts = [sum(part.num_rows for part in tuples)]
        # only now: what the tasks saw may be part of what is complete
        punctuation = self._punctuation(self.complete_us(batch))
        self._put([punctuation], ring, batch, len(counts), stopping)
        self.note(batch, self.client.commit(self.queue, ring, batch, len(counts) + 1).safe)
        seen = pa.Table.from_batches(tuples, self.schema) if heard else None
        return Fed(sum(counts), None if seen is None else seen.drop_columns([PUNCTUATION]))

    def _put(
        self,
        batches: list[pa.RecordBatch],
        ring: str,
        batch: int,
        partition: int,
        stopping: threading.Event,
    ) -> None:
        def put() -> None:
            place = self.queue, ring, batch, partition
            self.client.put(*place, self.schema, batches, UNCUT_BYTES)

        put_while_full(put, self.failed_readers, stopping.wait)

    def _punctuation(self, complete_us: int) -> pa.RecordBatch:
        columns = [pa.nulls(1, column.type) for column in self.schema]
        columns[-1] = pa.array([complete_us], pa.int64())
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def punctuation_in(batch: pa.RecordBatch) -> int | None:
    """The punctuation that a batch of a queue is; None if it holds tuples."""
    column = batch.column(batch.schema.get_field_index(PUNCTUATION))
    return None if column.null_count == len(column) else int(column[0].as_py())
