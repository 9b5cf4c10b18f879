"""A derived stream as a source: what a ring reads next, and how its tasks get it.

Positions of the queue are the offsets; a micro-batch reads whole micro-batches of the maker. What
is planned is acknowledged as received (level 0). Spark asks for what comes after a micro-batch only
when that one is in its commit log: then all before is acknowledged as done with (level 1), unless
the ring feeds a stream itself. In that case it is done with what went into micro-batches that its
own consumers are done with, so that it can be rolled back if its queue is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa

from penstock.exchange.client import NodeClient
from penstock.exchange.wire import NodeAddress, QueueRef
from penstock.plan.catalog import Stream
from penstock.runtime.derived.feed import punctuation_in
from penstock.runtime.sources.beside import Beside
from penstock.runtime.sources.planner import Backlog, Horizon, Work

_MOST_POSITIONS = 256  # of a micro-batch; a position holds about 1 MB at most
_TASK_POSITIONS = 4


class QueuePlanner:
    """Reads on where the last micro-batch ended; `start` is where a new consumer begins."""

    remembers_items = False

    def __init__(
        self,
        client: NodeClient,
        queue: QueueRef,
        consumer: str,
        start: str,
        needed_from: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._client = client
        self._queue = queue
        self._consumer = consumer
        self._start = start
        self._needed_from = needed_from
        self._begin: int | None = None
        self._released = 0

    def prepare(self) -> int:
        """Have tuples kept from now on; where reading begins."""
        if self._begin is None:
            known = self._client.register(self._queue, self._consumer, self._start)
            self._begin = self._released = known.safe
        return self._begin

    def keep_for(self, consumer: str) -> None:
        """Have all that is kept here kept for a copy of the consumer, too."""
        self.prepare()
        self._client.register(self._queue, consumer, self._released)

    def backlog(self, done: dict[str, Any], consumed: set[str]) -> Backlog | None:
        """Nothing: whoever asks must not wait for a node. SHOW EXCHANGE tells."""
        return None

    def next_work(
        self,
        done: dict[str, Any],
        consumed: set[str],
        parallelism: int,
        horizon: Horizon | None = None,
    ) -> Work | None:
        first = max(int(done.get("through", 0)), self.prepare())
        most = _MOST_POSITIONS if horizon is None else horizon.through - first
        if most <= 0:
            return None
        end = self._client.next_end(self._queue, first, min(most, _MOST_POSITIONS))
        self._release(min(first, end))
        if end <= first:
            return None
        self._client.acknowledge(self._queue, self._consumer, end, 0)
        tasks = max(1, min(parallelism, (end - first) // _TASK_POSITIONS))
        cuts = [first + (end - first) * i // tasks for i in range(tasks + 1)]
        pieces = [[{"first": a, "end": b}] for a, b in pairwise(cuts)]
        return Work({"pieces": pieces, "through": end}, [], end - first >= _MOST_POSITIONS)

    def is_near(self, done: dict[str, Any], consumed: set[str], horizon: Horizon) -> bool:
        return horizon.through - int(done.get("through", 0)) <= _MOST_POSITIONS

    def _release(self, position: int) -> None:
        needed = self._needed_from()
        position = position if needed is None else min(position, needed)
        if position > self._released:
            self._client.acknowledge(self._queue, self._consumer, position, 1)
            self._released = position


@lru_cache(maxsize=16)
def _client(address: NodeAddress) -> NodeClient:
    return NodeClient(address)


def read_queue(
    stream: Stream, pieces: list[Any], names: list[str], beside: Beside
) -> Iterator[pa.RecordBatch]:
    """Tuples of a task's pieces; the stream's options say where its queue is."""
    where = dict(stream.options)
    client = _client(NodeAddress(str(where["uri"]), str(where["token"])))
    queue = QueueRef(str(where["queue"]), str(where["incarnation"]))
    for piece in pieces:
        for _, batch in client.fetch(queue, piece["first"], piece["end"]):
            punctuation_us = punctuation_in(batch)
            if punctuation_us is None:
                yield batch.select(names)
            else:
                beside.punctuation_us = max(beside.punctuation_us, punctuation_us)
