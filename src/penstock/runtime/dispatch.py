"""Results of one ring's micro-batch to the sinks of its queries; one Spark job for all of them.

Sinks that may take their time are called by the engine's pool, several at once, and the micro-batch
ends when all have answered: what it made is lost only if it is done again. A sink that fails, or is
slower than the user's patience, closes its query only: the query is quarantined with the error, its
results go on into the workspace, and the other queries never notice.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol, TypeGuard

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.plan.codec import dump_columns
from penstock.plan.specs import Shown
from penstock.runtime.derived.feed import Feed
from penstock.runtime.packing import unpacked
from penstock.runtime.sinks.live import Subscribers
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import (
    Matched,
    counts_by_slot,
    matched_rows,
    only,
    rows_by_slot,
    shown_rows,
    with_queries,
)
from penstock.runtime.sinks.pool import SinkPool

Columns = tuple[Shown, ...] | None  # that a query shows; None: all of its ring

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


Outlet = Sink | Share | Feed | None  # None: the log


@dataclass(frozen=True, slots=True)
class Outlets:
    """What the rings of an engine have in common on the way out."""

    pool: SinkPool
    subscribers: Subscribers


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One call of one sink; its rows are gathered when its turn comes.

    `source` and the number of the micro-batch tell what was delivered before.
    """

    slots: tuple[int, ...]
    sink: Sink
    rows: Callable[[], pa.Table]
    source: str

    def make(self, batch: int) -> None:
        _here.delivering = True
        try:
            self.sink.deliver(self.rows(), self.source, batch)
        finally:
            _here.delivering = False


@dataclass(slots=True)
class Dispatcher:
    """`foreachBatch` function of a ring."""

    ring: str
    names: tuple[str, ...]  # the ring's own result columns, of which queries show some
    log: ResultLog
    quarantine: Callable[[int, BaseException], None]
    finish: Callable[[int, dict[int, int]], None]  # batch, rows by slot
    outlets: Outlets
    sinks: dict[int, Outlet] = field(default_factory=dict)
    columns: dict[int, Columns] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)  # micro-batches that others delivered
    guard: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)
    turn: threading.Lock = field(default_factory=threading.Lock)  # of a micro-batch, or of a stop
    batches: int = 0
    delivered: int = -1  # the last micro-batch of this process

    def attach(
        self, slot: int, sink: Outlet, columns: Columns = None, after: int | None = None
    ) -> None:
        """Give a slot's results a way out; `after`: of later micro-batches only."""
        with self.guard:
            self.sinks[slot] = sink
            self.columns[slot] = columns
            if after is not None:
                self.after[slot] = after

    def detach(self, slot: int) -> None:
        with self.guard:
            self.sinks.pop(slot, None)
            self.columns.pop(slot, None)
            self.after.pop(slot, None)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if not self.turn.acquire(blocking=False):
            raise InterruptedError("the ring stops")  # it runs again
        try:
            results = unpacked(frame.toArrow())
            self._feed(results, batch)
            self.batches += 1
            self.finish(batch, self._dispatch(results, batch) if results.num_rows else {})
            self.delivered = batch
        finally:
            self.turn.release()

    @contextmanager
    def between_batches(self, patience_s: float) -> Iterator[None]:
        """Let no micro-batch begin to be delivered, once the one that is has ended.

        After so long it is not waited for: its results come again.
        """
        self.stopping.set()
        held = self.turn.acquire(timeout=patience_s)
        try:
            yield
        finally:
            if held:
                self.turn.release()

    def _feed(self, results: pa.Table, batch: int) -> None:
        """Pass on what a derived stream's ring makes, for its only query; or that it made nothing.

        An error ends the micro-batch: the ring stops, and runs it again.
        """
        with self.guard:
            feeds = [(s, self.columns[n]) for n, s in self.sinks.items() if isinstance(s, Feed)]
        for feed, columns in feeds:
            rows = None
            if results.num_rows:
                rows = shown_rows(matched_rows(results, self.names).rows, columns)
            feed.pass_on(rows, self.ring, batch, self.stopping)

    def _dispatch(self, results: pa.Table, batch: int) -> dict[int, int]:
        matched = matched_rows(results, self.names)
        counts = counts_by_slot(matched.slots)
        with self.guard:
            sinks = {
                slot: self.sinks[slot]
                for slot in counts
                if slot in self.sinks and batch > self.after.get(slot, -1)
            }
            columns = {slot: self.columns[slot] for slot in sinks}
        shown = cache(partial(shown_rows, matched.rows))  # queries of a kind show the same
        heard = self.outlets.subscribers.slots() & sinks.keys()
        apart = heard or any(map(_is_own, sinks.values()))  # the log takes rows as they are
        rows_of = rows_by_slot(matched.slots) if apart else {}

        def rows(slot: int) -> pa.Table:
            return shown(columns[slot]).take(pa.array(rows_of[slot]))

        for slot in heard:
            self.outlets.subscribers.publish(slot, rows(slot), batch)
        logged = {slot for slot, sink in sinks.items() if sink is None}
        deliveries = _own_deliveries(self.ring, rows, sinks)
        deliveries |= _shared_deliveries(self.ring, matched, sinks, columns)
        for slot, error in self._deliver(deliveries, batch):
            self._close(slot, sinks[slot], error)
            logged.add(slot)
        if logged:
            every = len(logged) == len(counts)  # as nearly always: then nothing is to be looked for
            self.log.append(batch, matched if every else only(matched, logged))
        return {slot: counts[slot] for slot in sinks}

    def _deliver(
        self, deliveries: Mapping[Hashable, _Delivery], batch: int
    ) -> list[tuple[int, BaseException]]:
        """Call all sinks; the slots of those that failed."""
        pooled = {
            key: partial(delivery.make, batch)
            for key, delivery in deliveries.items()
            if delivery.sink.pooled
        }
        errors = self.outlets.pool.run(pooled)
        for key, delivery in deliveries.items():
            if delivery.sink.pooled:
                continue
            try:
                delivery.make(batch)
            except Exception as error:  # whatever a sink does must stay with its query
                errors[key] = error
        return [(slot, error) for key, error in errors.items() for slot in deliveries[key].slots]

    def _close(self, slot: int, sink: Outlet, error: BaseException) -> None:
        """Let the log take over, unless the query has another sink by now or is gone."""
        with self.guard:
            if self.sinks.get(slot) is not sink:
                return
            self.sinks[slot] = None
        self.quarantine(slot, error)


def _own_deliveries(
    ring: str, rows: Callable[[int], pa.Table], sinks: Mapping[int, Outlet]
) -> dict[Hashable, _Delivery]:
    """One for each query with a sink of its own."""
    return {  # another sink of the query has another key
        (slot, id(sink)): _Delivery((slot,), sink, partial(rows, slot), ring)
        for slot, sink in sinks.items()
        if _is_own(sink)
    }


def _is_own(sink: Outlet) -> TypeGuard[Sink]:
    return sink is not None and not isinstance(sink, Share | Feed)


def _shared_deliveries(
    ring: str,
    matched: Matched,
    sinks: Mapping[int, Outlet],
    columns: Mapping[int, Columns],
) -> dict[Hashable, _Delivery]:
    """One for each sink that queries share, and for each kind of rows that they show there."""
    sharing: dict[tuple[Sink, Columns], dict[int, str]] = defaultdict(dict)
    for slot, sink in sinks.items():
        if isinstance(sink, Share):
            sharing[sink.sink, columns[slot]][slot] = sink.query
    return {
        (ring, *kind): _Delivery(
            tuple(names),
            kind[0],
            partial(_rows_of_many, matched, names, kind[1]),
            _source(ring, kind[1]),
        )
        for kind, names in sharing.items()
    }


def _rows_of_many(matched: Matched, names: Mapping[int, str], columns: Columns) -> pa.Table:
    some = only(matched, names)
    return with_queries(Matched(shown_rows(some.rows, columns), some.slots), names)


def _source(ring: str, columns: Columns) -> str:
    """What rows of a ring are known by: those of other columns by another name."""
    if columns is None:
        return ring
    return f"{ring}-{hashlib.sha256(dump_columns(columns).encode()).hexdigest()[:8]}"
