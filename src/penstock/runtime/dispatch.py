"""Results of one ring's micro-batch to the sinks of its queries; one Spark job for all of them.

Sinks that may take their time are called by the engine's pool, several at once, and the micro-batch
ends when all have answered: what it made is lost only if it is done again. A sink that fails, or is
slower than the user's patience, closes its query only: the query is quarantined with the error, its
results go on into the workspace, and the other queries never notice.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.runtime.packing import unpacked
from penstock.runtime.sinks.live import Subscribers
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import (
    Matched,
    matched_rows,
    only,
    rows_by_slot,
    with_queries,
)
from penstock.runtime.sinks.pool import SinkPool

_here = threading.local()


def is_delivering() -> bool:
    """Whether this thread is in a sink that a micro-batch waits for: it must not wait for that."""
    return getattr(_here, "delivering", False)


class Sink(Protocol):
    @property
    def pooled(self) -> bool:
        """Called by the pool, with patience; else by the micro-batch, which waits for it."""
        ...

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        """Take the rows of one micro-batch; a replayed one must not show twice."""
        ...


@dataclass(slots=True)
class CallbackSink:
    """A Python function; called again only for a micro-batch that another process began."""

    function: Callable[[pa.Table], Any]
    pooled: bool = True
    last: int = -1

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        if batch > self.last:
            self.last = batch
            self.function(rows)


@dataclass(frozen=True, slots=True)
class Share:
    """A query's part in a sink that takes the rows of a ring's queries together, each row once."""

    sink: Sink  # equal ones are one
    query: str


@dataclass(frozen=True, slots=True)
class Outlets:
    """What the rings of an engine have in common on the way out."""

    pool: SinkPool
    subscribers: Subscribers


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One call of one sink; its rows are gathered when its turn comes."""

    slots: tuple[int, ...]
    sink: Sink
    rows: Callable[[], pa.Table]

    def make(self, ring: str, batch: int) -> None:
        _here.delivering = True
        try:
            self.sink.deliver(self.rows(), ring, batch)
        finally:
            _here.delivering = False


@dataclass(slots=True)
class Dispatcher:
    """`foreachBatch` function of a ring."""

    ring: str
    names: tuple[str, ...]  # result columns as the users named them
    log: ResultLog
    quarantine: Callable[[int, BaseException], None]
    finish: Callable[[int, dict[int, int]], None]  # batch, rows by slot
    outlets: Outlets
    sinks: dict[int, Sink | Share | None] = field(default_factory=dict)  # None: the log
    guard: threading.Lock = field(default_factory=threading.Lock)
    batches: int = 0

    def attach(self, slot: int, sink: Sink | Share | None) -> None:
        with self.guard:
            self.sinks[slot] = sink

    def detach(self, slot: int) -> None:
        with self.guard:
            self.sinks.pop(slot, None)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        results = unpacked(frame.toArrow())
        self.batches += 1
        self.finish(batch, self._dispatch(results, batch) if results.num_rows else {})

    def _dispatch(self, results: pa.Table, batch: int) -> dict[int, int]:
        matched = matched_rows(results, self.names)
        rows_of = rows_by_slot(matched.slots)
        with self.guard:
            sinks = {slot: self.sinks[slot] for slot in rows_of if slot in self.sinks}
        for slot in self.outlets.subscribers.slots() & sinks.keys():
            self.outlets.subscribers.publish(slot, _taken(matched.rows, rows_of[slot]), batch)
        logged = {slot for slot, sink in sinks.items() if sink is None}
        for slot, error in self._deliver(_deliveries(self.ring, matched, rows_of, sinks), batch):
            self._close(slot, sinks[slot], error)
            logged.add(slot)
        if logged:
            self.log.append(batch, only(matched, logged))
        return {slot: len(rows_of[slot]) for slot in sinks}

    def _deliver(
        self, deliveries: Mapping[Hashable, _Delivery], batch: int
    ) -> list[tuple[int, BaseException]]:
        """Call all sinks; the slots of those that failed."""
        pooled = {
            key: partial(delivery.make, self.ring, batch)
            for key, delivery in deliveries.items()
            if delivery.sink.pooled
        }
        errors = self.outlets.pool.run(pooled)
        for key, delivery in deliveries.items():
            if delivery.sink.pooled:
                continue
            try:
                delivery.make(self.ring, batch)
            except Exception as error:  # whatever a sink does must stay with its query
                errors[key] = error
        return [(slot, error) for key, error in errors.items() for slot in deliveries[key].slots]

    def _close(self, slot: int, sink: Sink | Share | None, error: BaseException) -> None:
        """Let the log take over, unless the query has another sink by now or is gone."""
        with self.guard:
            if self.sinks.get(slot) is not sink:
                return
            self.sinks[slot] = None
        self.quarantine(slot, error)


def _deliveries(
    ring: str,
    matched: Matched,
    rows_of: Mapping[int, np.ndarray],
    sinks: Mapping[int, Sink | Share | None],
) -> dict[Hashable, _Delivery]:
    """One for each query with a sink of its own, one for each sink that queries share."""
    deliveries: dict[Hashable, _Delivery] = {}
    sharing: dict[Sink, dict[int, str]] = defaultdict(dict)
    for slot, sink in sinks.items():
        if isinstance(sink, Share):
            sharing[sink.sink][slot] = sink.query
        elif sink is not None:
            rows = partial(_taken, matched.rows, rows_of[slot])
            deliveries[slot, id(sink)] = _Delivery((slot,), sink, rows)  # another one, another key
    for shared, names in sharing.items():
        deliveries[ring, shared] = _Delivery(
            tuple(names), shared, partial(_rows_of_many, matched, names)
        )
    return deliveries


def _taken(rows: pa.Table, numbers: np.ndarray) -> pa.Table:
    return rows.take(pa.array(numbers))


def _rows_of_many(matched: Matched, names: Mapping[int, str]) -> pa.Table:
    return with_queries(only(matched, names), names)
