"""Results of one ring's micro-batch to the sinks of its queries; one Spark job for all of them.

Sinks that may take their time are called by the engine's pool, several at once, and the micro-batch
ends when all have answered: what it made is lost only if it is done again. A sink that fails, or is
slower than the user's patience, concerns its queries only: they are put *aside*, which means that
a log of its own takes their results until the quarantine has delivered what is there. A query whose
own expression has no value for a tuple is *closed*: it gets no results until the user says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pyspark.sql import DataFrame

from penstock.runtime.derived.feed import Feed
from penstock.runtime.packing import unpacked
from penstock.runtime.rings.guarding import Blame
from penstock.runtime.sinks.delivery import (
    Columns,
    Delivery,
    Missing,
    Outlet,
    deliveries_of,
    delivery_key,
    own_rows,
    slots_of,
)
from penstock.runtime.sinks.live import Subscribers
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import Matched, counts_by_slot, matched_rows, only
from penstock.runtime.sinks.pool import SinkPool
from penstock.runtime.unlogged import errors_unlogged


@dataclass(frozen=True, slots=True)
class Outlets:
    """What the rings of an engine have in common on the way out."""

    pool: SinkPool
    subscribers: Subscribers


class Keeper(Protocol):
    """Who looks after queries that are kept from their sinks; called within a micro-batch."""

    def put_aside(
        self, ring: Dispatcher, failed: Mapping[Hashable, BaseException | None], batch: int
    ) -> None:
        """Calls failed in a micro-batch, by key; None: those of a sink before this one."""
        ...

    def close(self, slot: int, error: str) -> None:
        """An expression of a query has no value for one of its tuples."""
        ...

    def count_cut(self, slots: Collection[int], cut: Mapping[int, Mapping[int, int]]) -> None:
        """The log had no more room: rows by slot of micro-batches that went; `slots` are aside."""
        ...


@dataclass(slots=True)
class Dispatcher:
    """`foreachBatch` function of a ring."""

    ring: str
    names: tuple[str, ...]  # the ring's own result columns, of which queries show some
    log: ResultLog  # of queries without a sink
    waiting: ResultLog  # rows that are still to be delivered
    keeper: Keeper
    finish: Callable[[int, dict[int, int]], None]  # batch, rows by slot
    outlets: Outlets
    sinks: dict[int, Outlet] = field(default_factory=dict)
    columns: dict[int, Columns] = field(default_factory=dict)
    aside: set[Hashable] = field(default_factory=set)  # keys whose rows wait
    closed: set[int] = field(default_factory=set)
    after: dict[int, int] = field(default_factory=dict)  # micro-batches that others delivered
    blame: Blame = field(default_factory=Blame)
    guard: threading.Lock = field(default_factory=threading.Lock)
    routing: threading.Lock = field(default_factory=threading.Lock)  # from sinks to logs
    stopping: threading.Event = field(default_factory=threading.Event)
    turn: threading.Lock = field(default_factory=threading.Lock)  # of a micro-batch, or of a stop
    batches: int = 0
    delivered: int = -1  # the last micro-batch of this process

    def attach(
        self,
        slot: int,
        sink: Outlet,
        columns: Columns = None,
        behind: bool = False,
        after: int | None = None,
    ) -> Hashable:
        """Give a query's results a way out. behind: rows that wait come first; after: only those of
        later micro-batches. Returns what its calls are known by."""
        with self.guard:
            before = self._key(slot)
            if after is not None:
                self.after[slot] = after
            self.sinks[slot] = sink
            self.columns[slot] = columns
            self._leave(before)
            key = self._key(slot)
            if behind and key is not None:
                self.aside.add(key)
            return key

    def detach(self, slot: int) -> None:
        with self.guard:
            key = self._key(slot)
            self.sinks.pop(slot, None)
            self.columns.pop(slot, None)
            self.closed.discard(slot)
            self.after.pop(slot, None)
            self._leave(key)

    def _leave(self, key: Hashable) -> None:
        """A query's calls have this key no more; maybe those of others have."""
        if key in self.aside and all(self._key(other) != key for other in self.sinks):
            self.aside.discard(key)

    def close(self, slot: int) -> None:
        """Let a query have no results until it is opened."""
        with self.guard:
            self.closed.add(slot)

    def open(self, slot: int) -> None:
        """Let a closed query have results again."""
        with self.guard:
            self.closed.discard(slot)

    def served_by(self, key: Hashable) -> tuple[dict[int, Outlet], dict[int, Columns]]:
        """The sinks and columns of the queries whose calls have a key, by slot."""
        with self.guard:
            slots = slots_of(key) or self.sinks
            sinks = {slot: self.sinks[slot] for slot in slots if self._key(slot) == key}
            return sinks, {slot: self.columns[slot] for slot in sinks}

    def key_of(self, slot: int) -> Hashable:
        """What a query's calls are known by; None if none are made for it."""
        with self.guard:
            return self._key(slot)

    def _key(self, slot: int) -> Hashable:
        if slot not in self.sinks:
            return None
        return delivery_key(self.ring, slot, self.sinks[slot], self.columns[slot])

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if not self.turn.acquire(blocking=False):
            raise InterruptedError("the ring stops")  # it runs again
        try:
            with self.guard:
                feeds = [(slot, s) for slot, s in self.sinks.items() if isinstance(s, Feed)]
            counts: dict[int, int] = {}
            if feeds:
                counts = self._feed(*feeds[0], frame, batch)
            else:
                with errors_unlogged():
                    found = frame.toArrow()
                results, failing = self.blame.sort_out(unpacked(found))
                if results.num_rows:
                    with self.routing:
                        counts = self._dispatch(matched_rows(results, self.names), batch)
                self._close(failing)  # after its other rows, which would never come again
            self.batches += 1
            self.finish(batch, counts)
            self.delivered = batch
        finally:
            self.turn.release()

    @contextmanager
    def between_batches(self, patience_s: float) -> Iterator[bool]:
        """Let no micro-batch begin to be delivered, once the one that is has ended.

        After so long it is not waited for (False): its results come again.
        """
        self.stopping.set()
        held = self.turn.acquire(timeout=patience_s)
        try:
            yield held
        finally:
            if held:
                self.turn.release()

    def _close(self, failing: Mapping[int, str]) -> None:
        """Close queries with a tuple for which an expression has no value. One that is not here
        (any more) may come back, from the ring that has it now."""
        for slot, error in failing.items():
            with self.guard:
                known = slot in self.sinks and slot not in self.closed
                if known:
                    self.closed.add(slot)
            if known:
                self.keeper.close(slot, error)

    def _feed(self, slot: int, feed: Feed, frame: DataFrame, batch: int) -> dict[int, int]:
        """Pass on what a derived stream's ring makes, for its only query; or that it made nothing.

        An error ends the micro-batch: the ring stops, and runs it again.
        """
        heard = slot in self.outlets.subscribers.slots()
        columns = self.columns[slot]
        fed = feed.pass_on(frame, self.names, columns, self.ring, batch, self.stopping, heard)
        if fed.tuples is not None and fed.rows:
            self.outlets.subscribers.publish(slot, fed.tuples, batch, self.ring)
        return {slot: fed.rows} if fed.rows else {}

    def _dispatch(self, matched: Matched, batch: int) -> dict[int, int]:
        counts = counts_by_slot(matched.slots)
        with self.guard:
            wanted = (counts.keys() & self.sinks.keys()) - self.closed
            sinks = {
                s: self.sinks[s] for s in counts if s in wanted and batch > self.after.get(s, -1)
            }
            columns = {slot: self.columns[slot] for slot in sinks}
            logged = {slot for slot, sink in sinks.items() if sink is None}
            waiting = self._waiting_of(sinks)
        if heard := self.outlets.subscribers.slots() & sinks.keys():
            rows = own_rows(matched, columns)
            for slot in heard:
                self.outlets.subscribers.publish(slot, rows(slot), batch, self.ring)
        called = {slot: sink for slot, sink in sinks.items() if slot not in logged | waiting}
        deliveries = deliveries_of(self.ring, matched, called, columns)
        if errors := self._deliver(deliveries, batch):
            waiting |= self._put_aside(errors, deliveries, batch)
        if logged:
            every = len(logged) == len(counts)  # as nearly always: then nothing is to be looked for
            self.log.append(batch, matched if every else only(matched, logged))
        if waiting:
            self._keep(only(matched, waiting), batch)
        else:
            self.forget_delivered()
        return {slot: counts[slot] for slot in sinks}

    def _deliver(
        self, deliveries: Mapping[Hashable, Delivery], batch: int
    ) -> dict[Hashable, BaseException]:
        """Call all sinks; the errors of those that failed."""
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
        return errors

    def _put_aside(
        self,
        errors: Mapping[Hashable, BaseException],
        deliveries: Mapping[Hashable, Delivery],
        batch: int,
    ) -> set[int]:
        """Let rows wait of queries whose calls failed, if they are still there; their slots.

        One that has another sink by now gets what the first one refused.
        """
        with self.guard:
            slots = {s for key in errors for s in deliveries[key].slots if s in self.sinks}
            failed = {key: errors.get(key) for key in map(self._key, slots) if key is not None}
            self.aside |= failed.keys()
        self.keeper.put_aside(self, failed, batch)
        return slots

    def _waiting_of(self, sinks: Mapping[int, Outlet]) -> set[int]:
        """Queries whose rows wait; in the guard."""
        missing = {slot for slot, sink in sinks.items() if isinstance(sink, Missing)}
        if not self.aside:  # as a rule
            return missing
        return missing | {slot for slot in sinks if self._key(slot) in self.aside}

    def _keep(self, matched: Matched, batch: int) -> None:
        cut = self.waiting.append(batch, matched, counted=True)
        if cut:
            with self.guard:
                slots = self._waiting_of(self.sinks)
            self.keeper.count_cut(slots, cut)

    def movable(self, slots: Collection[int]) -> list[int]:
        """Those of the slots that another ring may have: what waits for a query stays here."""
        with self.guard:
            stay = self._waiting_of(
                {slot: self.sinks[slot] for slot in slots if slot in self.sinks}
            )
            return [s for s in slots if s in self.sinks and s not in stay | self.closed]

    def forget_delivered(self) -> None:
        """Make room when no row waits any more; called while nothing is routed."""
        if self.waiting.batches():
            with self.guard:
                waits = self._waiting_of(self.sinks)
            if not waits:
                self.waiting.clear()
