"""What the operator of a JOIN ring does in a task; Spark's state is all that it gets of Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState, ValueState

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


class JoinWorker:
    """Takes the buckets of one task one after the other."""

    def __init__(self, config_text: str, chunks: MapState, book: ValueState) -> None:
        self._book = book
        self._chunks = _Chunks(chunks)
        self._config = StageConfig(**json.loads(config_text))
        self._composition = composition_from(self._config.composition)
        self._streams = [stream_from(text) for text in json.loads(self._config.stream)]
        self._seen: dict[int, BucketFigures] = {}
        _warm.most_bytes = self._config.join_memory

    def results(self, bucket: int, rows: Iterator[Row]) -> Iterator[bytes]:
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
            (self._config.ring, bucket),
            list(map(chunk_schema, join.inputs, self._streams)),
            self._composition.kind == "window",
            book,
            self._chunks,
            _warm,
        )

        def pack(combinations: Combinations) -> Iterator[bytes]:
            return blobs_of(results.rows(combinations))

        try:
            yield from turn.run(arrived, in_round, slots.windows, pack)
        finally:
            self._chunks.finish()
        self._seen[bucket] = turn.figures()
        if book.next:
            self._book.update((book.dumps(),))

    def close(self) -> None:
        self._chunks.close()
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
