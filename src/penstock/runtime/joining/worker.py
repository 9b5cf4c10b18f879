"""What the operator of a JOIN ring does in a task; Spark's state is all that it gets of Spark."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import MapState

from penstock.errors import PenstockError
from penstock.kernels.join_bucket import Combinations, TooManyCombinations
from penstock.plan.codec import composition_from, stream_from
from penstock.runtime.config import StageConfig
from penstock.runtime.joining.book import Book
from penstock.runtime.joining.input_stage import BUCKET, INPUT, PUNCTUATION, ROUND, VERSION
from penstock.runtime.joining.monitor import BucketFigures, as_message
from penstock.runtime.joining.results import Results
from penstock.runtime.joining.shape import chunk_schema
from penstock.runtime.joining.slots import slots_for
from penstock.runtime.joining.tables import WarmTables
from penstock.runtime.joining.turn import Arrived, Turn
from penstock.runtime.packing import PACKED, blobs_of
from penstock.runtime.service import ask

_warm = WarmTables()
_NAMED = 5  # queries of a ring in an error


class JoinWorker:
    """Takes the lanes of one task one after the other, the buckets of a lane side by side."""

    def __init__(self, config_text: str, chunks: MapState, books: MapState) -> None:
        self._state = _State(chunks, books)
        self._config = StageConfig(**json.loads(config_text))
        self._composition = composition_from(self._config.composition)
        self._streams = [stream_from(text) for text in json.loads(self._config.stream)]
        self._seen: dict[int, BucketFigures] = {}
        _warm.most_bytes = self._config.join_memory

    def results(self, rows: Iterator[Row]) -> Iterator[bytes]:
        arrived: dict[int, list[Row]] = {}
        for row in rows:
            arrived.setdefault(row[BUCKET], []).append(row)
        with ThreadPoolExecutor(len(arrived)) as threads:
            found = [threads.submit(self._turn, b, arrived[b]) for b in sorted(arrived)]
            for each in found:
                yield from each.result()
        self._state.finish()

    def _turn(self, bucket: int, rows: list[Row]) -> list[bytes]:
        """One bucket's turn; its results, when its state is on the way.

        A micro-batch with too many combinations has never been delivered, so queries that have been
        dropped since it was decided are left out, and the others go on.
        """
        known = self._state.book(bucket)
        try:
            return self._run(bucket, known, rows, None)
        except TooManyCombinations as error:
            message = {"ring": self._config.ring}
            living = {
                int(s): name for s, name in ask(self._config.address, "living", message).items()
            }
            try:
                return self._run(bucket, known, rows, living)
            except TooManyCombinations:
                raise _told(error, living) from None

    def _run(
        self, bucket: int, known: str | None, rows: list[Row], living: Collection[int] | None
    ) -> list[bytes]:
        join = self._composition.join
        assert join is not None
        book = Book.empty(len(join.inputs)) if known is None else Book.loads(known)
        arrived = [
            Arrived(row[INPUT], row[VERSION], row[PUNCTUATION], bytes(row[PACKED]))
            for row in rows
            if row[INPUT] != ROUND
        ]
        book.version = max([book.version, *(a.version for a in arrived)])
        slots = slots_for(self._config, len(join.inputs), book.version)
        if living is not None:
            slots = slots.only(living)
        results = Results(self._composition, self._streams, slots.specs)
        turn = Turn(
            (self._config.ring, bucket),
            list(map(chunk_schema, join.inputs, self._streams)),
            self._composition.kind == "window",
            book,
            _Chunks(self._state, bucket),
            _warm,
        )

        def pack(combinations: Combinations) -> Iterator[bytes]:
            for rows in results.rows(combinations):
                yield from blobs_of(rows)

        in_round = len(arrived) < len(rows)
        found = list(turn.run(arrived, in_round, slots.windows, pack))
        self._seen[bucket] = turn.figures()
        if book.next:
            self._state.keep_book(bucket, book.dumps())
        return found

    def close(self) -> None:
        self._state.close()
        ask(self._config.address, "joined", as_message(self._config.ring, self._seen))


def _told(error: TooManyCombinations, names: Mapping[int, str]) -> PenstockError:
    """What is said of a ring that stops; in one line, as the states of queries have it."""
    wanted = [names[slot] for slot in error.slots if slot in names] or sorted(names.values())
    some = ", ".join(wanted[:_NAMED]) + (", …" if len(wanted) > _NAMED else "")
    return PenstockError(
        f"{error.message}, for {some}: DROP it, then RESUME QUERY of another query in this ring;"
        f" with {error.fewer} or more conditions on single streams it can come again"
    )


class _State:
    """Spark's state behind one thread: there is one connection to it, and what is written goes its
    way while the others work on."""

    def __init__(self, chunks: MapState, books: MapState) -> None:
        self._chunks, self._books = chunks, books
        self._thread = ThreadPoolExecutor(1)
        self._sent: deque[Future[None]] = deque()

    def book(self, bucket: int) -> str | None:
        found = self._thread.submit(self._books.getValue, (bucket,)).result()
        return None if found is None else str(found[0])

    def keep_book(self, bucket: int, text: str) -> None:
        self._send(self._books.updateValue, (bucket,), (text,))

    def chunk(self, bucket: int, number: int) -> bytes:
        found = self._thread.submit(self._chunks.getValue, (bucket, number)).result()
        assert found is not None
        return bytes(found[0])

    def keep_chunk(self, bucket: int, number: int, tuples: bytes) -> None:
        self._send(self._chunks.updateValue, (bucket, number), (tuples,))

    def forget_chunk(self, bucket: int, number: int) -> None:
        self._send(self._chunks.removeKey, (bucket, number))

    def _send(self, call: Callable[..., None], *arguments: Any) -> None:
        self._sent.append(self._thread.submit(call, *arguments))

    def finish(self) -> None:
        """Wait until all is in the state; raise what went wrong."""
        while self._sent:
            self._sent.popleft().result()

    def close(self) -> None:
        self._thread.shutdown()


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The chunks of one bucket."""

    state: _State
    bucket: int

    def get(self, number: int) -> bytes:
        return self.state.chunk(self.bucket, number)

    def put(self, number: int, tuples: bytes) -> None:
        self.state.keep_chunk(self.bucket, number, tuples)

    def remove(self, number: int) -> None:
        self.state.forget_chunk(self.bucket, number)
