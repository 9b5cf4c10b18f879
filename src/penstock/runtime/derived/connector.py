"""`penstock_queue`: queues of a node as a source and a sink of any other Spark application.

    spark.dataSource.register(penstock.QueueSource)

Both carry Arrow record batches. The source's offsets are positions; what is planned is acknowledged
as received (level 0), what Spark has committed as done with (level 1). Tasks of the sink put their
partitions under (writer, micro-batch, partition), and the driver commits the micro-batch: one that
is run again, or replayed after a crash, replaces itself. Punctuation is not for other applications,
and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from penstock.control.backup import MODES, Mode
from penstock.errors import PenstockError
from penstock.exchange.client import NodeClient
from penstock.exchange.spec import DEFAULT_CAPACITY
from penstock.exchange.token import read_token
from penstock.exchange.wire import NodeAddress, QueueRef
from penstock.runtime.derived.definition import PUNCTUATION
from penstock.runtime.sources.options import bytes_option, choice_option

_MOST_POSITIONS = 256  # of a micro-batch; a position holds about 1 MB at most
_TASK_POSITIONS = 4


class QueueSource(DataSource):
    """Options: node, token_file, queue; consumer and start of a source; writer of a sink, and mode,
    capacity and backup of a queue that it makes."""

    @classmethod
    def name(cls) -> str:
        return "penstock_queue"

    def schema(self) -> StructType:
        schema = _client(self._address()).schema_of(_needed(self.options, "queue"))
        kept = [field for field in schema if field.name != PUNCTUATION]
        return from_arrow_schema(pa.schema(kept))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        consumer, start = _needed(self.options, "consumer"), self.options.get("start", "earliest")
        return QueueReader(self._address(), _needed(self.options, "queue"), consumer, start)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise PenstockError("a queue is only appended to", "use output mode append")
        arrow = to_arrow_schema(schema, timezone="UTC")
        queue = _client(self._address()).create(
            _needed(self.options, "queue"),
            arrow,
            cast(Mode, choice_option(self.options, "mode", MODES, "adaptive")),
            bytes_option(self.options, "capacity", DEFAULT_CAPACITY),
            entry=True,
            backup=self.options.get("backup", ""),
        )
        return QueueWriter(self._address(), queue, _needed(self.options, "writer"), arrow)

    def _address(self) -> NodeAddress:
        token = read_token(Path(_needed(self.options, "token_file")), make=False)
        return NodeAddress(_needed(self.options, "node"), token)


def _needed(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        raise PenstockError(f"option {name} is missing", f'add .option("{name}", …)')
    return options[name]


class QueueReader(DataSourceStreamReader):
    def __init__(self, address: NodeAddress, queue: str, consumer: str, start: str) -> None:
        self._address = address
        self._queue = _client(address).open(queue)
        self._consumer = consumer
        self._start = start

    def initialOffset(self) -> dict[str, Any]:
        known = _client(self._address).register(self._queue, self._consumer, self._start)
        return {"position": known.safe}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        client, begin = _client(self._address), start["position"]
        end = client.next_end(self._queue, begin, _MOST_POSITIONS)
        if end <= begin:
            return start
        client.acknowledge(self._queue, self._consumer, end, 0)
        return {"position": end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = start["position"], end["position"]
        return [
            InputPartition((at, min(at + _TASK_POSITIONS, last)))
            for at in range(first, last, _TASK_POSITIONS)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        first, end = partition.value
        for _, batch in _client(self._address).fetch(self._queue, first, end):
            if PUNCTUATION not in batch.schema.names:
                yield batch
            elif batch.column(PUNCTUATION).null_count == batch.num_rows:
                yield batch.drop_columns([PUNCTUATION])

    def commit(self, end: dict[str, Any]) -> None:
        _client(self._address).acknowledge(self._queue, self._consumer, end["position"], 1)


@dataclass
class Put(WriterCommitMessage):
    rows: int


class QueueWriter(DataSourceStreamArrowWriter):
    def __init__(
        self, address: NodeAddress, queue: QueueRef, writer: str, schema: pa.Schema
    ) -> None:
        self._address = address
        self._queue = queue
        self._writer = writer
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Put:
        context = TaskContext.get()
        assert context is not None
        batch = int(str(context.getLocalProperty("streaming.sql.batchId")))
        place = self._writer, batch, context.partitionId(), self._schema
        tuples = (batch.cast(self._schema) for batch in iterator)
        return Put(_client(self._address).put(self._queue, *place, tuples))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _client(self._address).commit(self._queue, self._writer, batchId, len(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was put stays, unseen, until the micro-batch is run again and replaces it."""


@lru_cache(maxsize=16)
def _client(address: NodeAddress) -> NodeClient:
    return NodeClient(address)
