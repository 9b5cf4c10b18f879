"""Results of a derived stream's ring into its queue, by the tasks that make them.

Each task puts the rows of its partition, under (ring, micro-batch, partition), at the node that
holds the queue; nothing of them passes the driver, which commits when all are there. A task that
runs again replaces what it put. How many record batches its rows become follows from the rows
alone, in whatever order a shuffle brings them: so a replay into a new queue has the same positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from penstock.errors import EngineError
from penstock.exchange.client import NodeClient
from penstock.exchange.failures import NodeBusy, QueueFull
from penstock.exchange.wire import LARGEST_PUT, NodeAddress, QueueRef
from penstock.kernels.tuple_store import row_sizes
from penstock.plan.specs import Shown
from penstock.runtime.packing import from_ipc, to_ipc, unpacked
from penstock.runtime.service import Address, ask
from penstock.runtime.sinks.matched import matched_rows, shown_rows

FAILED_READERS = "failed_readers"  # call of the epoch service
UNCUT_BYTES = LARGEST_PUT // 2  # `Shape` cuts, by what makes no difference to a replay
_BATCH_BYTES = 1 << 20  # of a record batch, in the mean
_BLOBS = pa.list_(pa.binary())
_WAIT_S = 1.0
_PATIENCE_S = 5.0  # of one attempt; then the engine is asked whether to go on waiting


@dataclass(frozen=True, slots=True)
class Shape:
    """Which of a ring's result columns make the tuples of its stream; schema: of the queue."""

    names: tuple[str, ...]
    columns: tuple[Shown, ...] | None
    schema: pa.Schema

    def tuples(self, results: pa.Table) -> list[pa.RecordBatch]:
        results = unpacked(results)
        if not results.num_rows:
            return []
        rows = shown_rows(matched_rows(results, self.names).rows, self.columns)
        nothing = pa.nulls(rows.num_rows, pa.int64())
        columns = [
            column.cast(wanted.type)
            for column, wanted in zip(rows.columns, self.schema, strict=False)
        ]
        table = pa.Table.from_arrays([*columns, nothing], schema=self.schema)
        [whole] = table.combine_chunks().to_batches()
        count = -(-int(row_sizes(whole).sum()) // _BATCH_BYTES)
        size = -(-whole.num_rows // max(1, count))
        return [whole.slice(start, size) for start in range(0, whole.num_rows, size)]


@dataclass(frozen=True, slots=True)
class Putting:
    """All that a task needs to put its partition.

    engine: whom to ask while the queue is full. heard: somebody watches, so rows go to the driver,
    too.
    """

    node: NodeAddress
    queue: QueueRef
    stream: str
    ring: str
    batch: int
    shape: Shape
    engine: Address
    heard: bool = False

    def __call__(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As a `mapInArrow` function: how many rows the partition has, and these if wanted."""
        context, found = TaskContext.get(), list(results)
        assert context is not None
        tuples = self.shape.tuples(pa.Table.from_batches(found)) if found else []
        put_while_full(
            lambda: _client(self.node).put(
                self.queue,
                self.ring,
                self.batch,
                context.partitionId(),
                self.shape.schema,
                tuples,
                UNCUT_BYTES,
            ),
            lambda: ask(self.engine, FAILED_READERS, {"stream": self.stream}),
        )
        blobs = [to_ipc(batch) for batch in tuples] if self.heard else []
        told = [sum(batch.num_rows for batch in tuples)], [blobs]
        arrays = [pa.array(v, t) for v, t in zip(told, (pa.int64(), _BLOBS), strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=["rows", "tuples"])


def put_by_tasks(frame: DataFrame, putting: Putting) -> tuple[list[int], list[pa.RecordBatch]]:
    """Run a micro-batch and have it put; rows of each partition, and all tuples if heard."""
    told = frame.mapInArrow(putting, "rows long, tuples array<binary>").toArrow()
    blobs = [blob for some in told.column("tuples").to_pylist() for blob in some]
    return told.column("rows").to_pylist(), [from_ipc(blob) for blob in blobs]


def put_while_full(
    put: Callable[[], object],
    failed_readers: Callable[[], list[str]],
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Wait while the queue is full, unless a ring that reads it has failed; `pause` says true to
    give up. A task waits until Spark ends it."""
    while True:
        try:
            put()
            return
        except (QueueFull, NodeBusy) as error:
            if failed := failed_readers():
                raise EngineError(
                    f"{error.message}, and ring {failed[0]} that reads it has failed",
                    "drop its queries, or start the engine again",
                ) from None
            if pause(_WAIT_S):
                raise


@lru_cache(maxsize=16)
def _client(address: NodeAddress) -> NodeClient:
    return NodeClient(address, patience_s=_PATIENCE_S)
