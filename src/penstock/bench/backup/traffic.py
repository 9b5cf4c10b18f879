"""Tuples through a queue: a paced upstream, consumers with their own pace, and what arrived.

A tuple has a number, a place and a text, 44 bytes in all. Numbers are consecutive, so that what a
consumer got tells what was lost and what came twice.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.exchange.client import NodeClient
from penstock.exchange.failures import ExchangeError
from penstock.exchange.wire import QueueRef

RING = "ring"
SCHEMA = pa.schema(
    [("n", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("road", pa.binary(20))]
)
TUPLE_BYTES = 44
_ROAD = b"r" * 20
_LOOK_S = 0.005


def tuples(first: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    road = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(20), count, [None, pa.py_buffer(_ROAD * count)]
    )
    columns = [pa.array(numbers), pa.array(numbers * 0.5), pa.array(numbers * 0.25), road]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@dataclass(slots=True)
class Sent:
    tuples: int = 0
    seconds: float = 0.0

    @property
    def per_s(self) -> float:
        return self.tuples / self.seconds if self.seconds else 0.0


def send(
    client: NodeClient, queue: QueueRef, rate: int, seconds: float, pause_s: float = 0.05
) -> Sent:
    """A micro-batch every `pause_s` with what the rate wants; some delay is made up for."""
    began, sent, batch = time.perf_counter(), Sent(), 0
    while (now := time.perf_counter() - began) < seconds:
        due = min(int(rate * now) - sent.tuples, int(rate * 4 * pause_s))
        if due <= 0:
            time.sleep(pause_s / 4)
            continue
        client.put(queue, RING, batch, 0, SCHEMA, [tuples(sent.tuples, due)])
        client.commit(queue, RING, batch, 1)
        sent.tuples += due
        batch += 1
        rest = batch * pause_s - (time.perf_counter() - began)
        time.sleep(max(0.0, rest))
    sent.seconds = time.perf_counter() - began
    return sent


@dataclass(slots=True)
class Consumer:
    """Takes what comes; a slow one at most so many tuples per second. Ends when told to drain."""

    client: NodeClient
    queue: QueueRef
    name: str
    most_per_s: float | None = None
    numbers: list[np.ndarray] = field(default_factory=list)
    received: int = 0
    _drain: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failure: ExchangeError | None = None

    def start(self) -> Consumer:
        self.client.register(self.queue, self.name)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def finish(self) -> Consumer:
        """Take the rest, at full speed, and end."""
        self._drain.set()
        assert self._thread is not None
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self

    def _run(self) -> None:
        try:
            self._consume()
        except ExchangeError as error:
            self._failure = error

    def _consume(self) -> None:
        began, position = time.perf_counter(), 0
        while True:
            draining = self._drain.is_set()
            end = self.client.latest(self.queue)
            if end == position:
                if draining:
                    return
                time.sleep(_LOOK_S)
                continue
            for at, batch in self.client.fetch(self.queue, position, end):
                self.client.acknowledge(self.queue, self.name, at + 1, 0)
                self.numbers.append(batch.column(0).to_numpy())
                self.received += batch.num_rows
                if self.most_per_s is not None:
                    due_s = began + self.received / self.most_per_s
                    self._drain.wait(max(0.0, due_s - time.perf_counter()))
                self.client.acknowledge(self.queue, self.name, at + 1, 1)
            position = end

    def lost(self, sent: int) -> int:
        return sent - np.unique(self._all()).size

    def duplicated(self) -> int:
        return self._all().size - np.unique(self._all()).size

    def _all(self) -> np.ndarray:
        return np.concatenate(self.numbers) if self.numbers else np.empty(0, np.int64)
