"""Queries that are kept from their sinks: tried again by policy, given what was kept, let go.

A sink that failed is tried beside the ring, by threads and a pool of its own, so that nobody waits
for it: with the rows that wait for it in a log of the ring, micro-batch by micro-batch in their
order, by the names they would have had. When nothing is left, the ring's next micro-batch goes to
the sink itself. That is decided while the ring routes nothing (`Dispatcher.routing`), so nothing
comes in between, is left out or overtakes.

How far delivery has come is in the catalog: after a kill it goes on there, and a sink that replaces
what it knows shows nothing twice. Tries begin anew when the engine starts, and when the user asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from penstock.control.quarantine import (
    WELL,
    Failure,
    Health,
    Patience,
    after_failure,
    after_success,
    in_words,
    resumed,
    route,
)
from penstock.errors import EngineError
from penstock.plan.codec import slot_from
from penstock.runtime.dispatch import Dispatcher
from penstock.runtime.registry import Registry
from penstock.runtime.rings.kept import KeptBook
from penstock.runtime.sinks.delivery import CallbackSink, Outlet, deliveries_of
from penstock.runtime.sinks.matched import Matched, only
from penstock.runtime.sinks.pool import SinkPool

THREADS = 4
_LOOK_EVERY_S = 0.1
_SLICE_S = 1.0  # that a sink with much to catch up on may have before others get their turn
_MOST_ROWS = 65_536  # of several micro-batches in one call of a function


@dataclass(frozen=True, slots=True)
class Care:
    """What users are told beside a query's error.

    cut: rows that went from the log before they could be delivered. told: what happens next.
    given_up: nothing, before the user says so.
    """

    cut: int = 0
    told: str = ""
    given_up: bool = False


@dataclass(slots=True, eq=False)
class Detained:
    """The queries of one key, whose results the log takes.

    next_batch: up to there the log has been looked through. busy: a thread sees to it now.
    """

    ring: Dispatcher
    key: Hashable
    health: Health
    next_batch: int
    busy: bool = False


@dataclass(slots=True)
class _Rows:
    """What is delivered in one call: rows of one micro-batch, or of several up to `batch`."""

    parts: list[Matched] = field(default_factory=list)
    batch: int = -1

    @property
    def count(self) -> int:
        return sum(part.rows.num_rows for part in self.parts)

    def matched(self) -> Matched:
        if len(self.parts) == 1:
            return self.parts[0]
        # a column is NULL, without a type, where no query showed it
        rows = pa.concat_tables((part.rows for part in self.parts), promote_options="default")
        return Matched(rows, pa.concat_arrays([part.slots for part in self.parts]))


class Quarantine:
    """All detained queries of an engine; `Keeper` of its rings."""

    def __init__(
        self,
        registry: Registry,
        patience: Callable[[], Patience],
        sink_patience_s: Callable[[], float],
        clock_us: Callable[[], int],
        is_stuck: Callable[[Hashable], bool],
    ) -> None:
        self.book = KeptBook(registry)
        self._registry = registry
        self._patience = patience
        self._clock_us = clock_us
        self._is_stuck = is_stuck  # in the pool of the rings
        self._pool = SinkPool(sink_patience_s, THREADS)
        self._changed = threading.Condition()
        self._detained: dict[Hashable, Detained] = {}
        self._threads = 0
        self._stopped = False

    # who comes in

    def put_aside(
        self, ring: Dispatcher, failed: Mapping[Hashable, BaseException | None], batch: int
    ) -> None:
        """The sinks of some keys failed; None: one of before it did, this one is tried at once."""
        with self._registry.change():  # one write for all: a full disk fails a thousand files
            for key, error in failed.items():
                slots = ring.served_by(key)[0]
                self.book.begin(slots, batch)
                with self._changed:  # it is not to be tried before the failure is known
                    detained = self._detain(ring, key, batch)
                    if error is not None:
                        self._note_failure(detained, slots, error)

    def take_up(self, ring: Dispatcher, slot: int, key: Hashable) -> None:
        """A query's sink may not have got all it should have: what is kept comes first."""
        if self.book.is_closed(slot):
            ring.close(slot)
        if key is None:  # no sink, or none yet
            if slot not in ring.closed:
                self._registry.set_query_state(slot, "running", None)
            return
        self._detain(ring, key, self.book.firsts([slot])[slot])

    def close(self, slot: int, error: str) -> None:
        """An expression of a query has no value for one of its tuples."""
        self.book.close(slot)
        for role, column in slot_from(self._registry.spec(slot)).roles:
            error = error.replace(role, column)
        self._registry.set_query_state(slot, "quarantined", error)

    def moved(self, ring: Dispatcher, slots: Collection[int]) -> None:
        """Queries for whom nothing waits are in another ring now, with micro-batches of its own."""
        self.book.set_first(slots, max(ring.waiting.batches(), default=-1) + 1)

    def forget(self, slot: int) -> None:
        """A query is gone."""
        self.book.forget(slot)

    def count_cut(self, slots: Collection[int], cut: Mapping[int, Mapping[int, int]]) -> None:
        """Rows that were to be delivered had to go from the log."""
        self.book.count_cut(slots, cut)

    def _detain(self, ring: Dispatcher, key: Hashable, first: int) -> Detained:
        with self._changed:
            known = self._detained.setdefault(key, Detained(ring, key, WELL, first))
            known.ring, known.next_batch = ring, min(first, known.next_batch)
            self._start_thread(1)
            self._changed.notify()
            return known

    def _start_thread(self, most: int) -> None:
        if self._threads < most and not self._stopped:
            self._threads += 1
            threading.Thread(target=self._work, name="penstock-retries", daemon=True).start()

    def _note_failure(
        self, detained: Detained, slots: Collection[int], error: BaseException
    ) -> None:
        kind: Failure = "blocked" if isinstance(error, TimeoutError) else "raised"
        now_s = self._clock_us() / 1e6
        with self._changed:
            detained.health = after_failure(detained.health, kind, now_s, self._patience())
        message = f"{type(error).__name__}: {error}".split("\n")[0]
        for slot in slots:
            self._registry.set_query_state(slot, "quarantined", message)

    # what users ask

    def resume(self, ring: Dispatcher, slot: int) -> None:
        """Try a query's sink now, whatever the policy says; let a closed query have results."""
        ring.open(slot)
        self.book.open(slot)
        with self._changed:
            known = self._detained.get(ring.key_of(slot))
            if known is not None:
                known.health = resumed(known.health, self._clock_us() / 1e6)
                self._changed.notify()
                return
        self._registry.set_query_state(slot, "running", None)

    def care(self, ring: Dispatcher, slot: int) -> Care:
        """What is done about a quarantined query."""
        cut = self.book.cut(slot)
        with self._changed:
            known = self._detained.get(ring.key_of(slot))
            if known is None:
                return Care(cut, "RESUME QUERY lets it go on", given_up=True)
            if self._stuck(known.key):
                return Care(cut, "its call has not returned yet")
            if known.health == WELL:
                return Care(cut, "what was kept is being delivered")
            words = in_words(known.health, self._clock_us() / 1e6)
        return Care(cut, words, known.health.given_up)

    def try_all(self) -> None:
        """A last chance for all, at once."""
        with self._changed:
            for known in self._detained.values():
                known.health = resumed(known.health, self._clock_us() / 1e6)
            self._changed.notify_all()

    def settle(self, deadline: float) -> None:
        """Wait until nothing that can be delivered now is still kept."""
        with self._changed:
            while any(d.busy or self._is_due(d) for d in self._detained.values()):
                if self._stopped:
                    return
                if time.monotonic() > deadline:
                    hint = "give await_idle a longer timeout"
                    raise EngineError("kept results are still being delivered", hint)
                self._changed.wait(_LOOK_EVERY_S)

    def stop(self) -> None:
        """End the threads; one that waits for a sink is left alone."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._threads, timeout=2.0)

    # trying

    def _stuck(self, key: Hashable) -> bool:
        return self._is_stuck(key) or self._pool.is_stuck(key)

    def _is_due(self, detained: Detained) -> bool:
        now_s = self._clock_us() / 1e6
        return route(detained.health, now_s, self._stuck(detained.key)) == "try"

    def _work(self) -> None:
        while (detained := self._next()) is not None:
            try:
                self._catch_up(detained)
            except Exception as error:  # of the log or the catalog: told like one of the sink
                if not self._stopped:
                    slots = detained.ring.served_by(detained.key)[0]
                    self._note_failure(detained, slots, error)
            finally:
                with self._changed:
                    detained.busy = False
                    self._changed.notify_all()

    def _next(self) -> Detained | None:
        """Somebody who may be tried; None if the thread is one too many."""
        with self._changed:
            while self._detained and not self._stopped:
                for gone in [d for d in self._detained.values() if d.key not in d.ring.aside]:
                    del self._detained[gone.key]  # dropped, or it has another sink
                waiting = [d for d in self._detained.values() if not d.busy]
                if due := [d for d in waiting if self._is_due(d)]:
                    first = due[0]
                    first.busy = True
                    self._detained[first.key] = self._detained.pop(first.key)  # next time: last
                    self._start_thread(min(THREADS, len(due)))
                    return first
                if self._threads > 1:
                    break
                idle = all(d.health.given_up for d in waiting)
                self._changed.wait(None if idle else _LOOK_EVERY_S)
            self._threads -= 1
            self._changed.notify_all()
            return None

    def _catch_up(self, detained: Detained) -> None:
        """Deliver what is kept until nothing is, the sink fails, or others should have a turn."""
        ring, key = detained.ring, detained.key
        until = time.monotonic() + _SLICE_S
        while time.monotonic() < until and not self._stopped:
            sinks, columns = ring.served_by(key)
            with ExitStack() as held:
                rows = self._kept(detained, sinks, held)
                if not rows.parts:
                    if self._let_go(detained):
                        return
                    continue
                calls = deliveries_of(ring.ring, rows.matched(), sinks, columns)
                errors = self._pool.run(
                    {key: partial(call.make, rows.batch) for key, call in calls.items()}
                )
            if errors:
                self._note_failure(detained, sinks, errors[key])
                return
            self.book.begin(sinks, rows.batch + 1)
            with self._changed:
                detained.health = after_success(detained.health)
                detained.next_batch = rows.batch + 1

    def _kept(self, detained: Detained, sinks: Mapping[int, Outlet], held: ExitStack) -> _Rows:
        """The next rows to deliver; a function may have those of several micro-batches at once."""
        log, firsts = detained.ring.waiting, self.book.firsts(sinks)
        functions = {s: sink for s, sink in sinks.items() if isinstance(sink, CallbackSink)}
        for slot, sink in functions.items():  # a call may have gone well when nobody waited for it
            firsts[slot] = max(firsts[slot], sink.last + 1)
        found = _Rows()
        for batch in log.batches(detained.next_batch):
            with ExitStack() as hold:
                matched = hold.enter_context(log.in_hand(batch))
                wanted = [slot for slot, first in firsts.items() if first <= batch]
                some = None if matched is None else only(matched, wanted)
                if some is not None and some.rows.num_rows:
                    found.parts.append(some)
                    found.batch = batch
                    held.push(hold.pop_all())
            if not found.parts:
                detained.next_batch = batch + 1
            elif not functions or found.count > _MOST_ROWS:
                break
        return found

    def _let_go(self, detained: Detained) -> bool:
        """Let the ring call the sink again, unless more has come or nobody is there any more."""
        ring, key = detained.ring, detained.key
        with ring.routing:
            slots = ring.served_by(key)[0]
            if slots and ring.waiting.batches(detained.next_batch):
                return False
            with ring.guard:
                ring.aside.discard(key)
            ring.forget_delivered()
            for slot in slots:
                if slot not in ring.closed:
                    self._registry.set_query_state(slot, "running", None)
            with self._changed:
                self._detained.pop(key, None)
        return True
