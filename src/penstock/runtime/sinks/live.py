"""Live subscribers: results of a query as they come, to whoever asks, without holding up the ring.

A subscription keeps a bounded number of rows that its owner has not taken yet; when it is full the
oldest go and are counted. A ring therefore never waits for a subscriber.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.runtime.sinks.memory import NewestRows


class Subscription:
    """An iterator of Arrow tables; it ends with the query, the engine, or `close()`."""

    def __init__(self, limit: int, leave: Callable[[Subscription], None]) -> None:
        self._waiting = NewestRows(limit)
        self._leave = leave
        self._changed = threading.Condition()
        self._ended = False

    @property
    def missed(self) -> int:
        """Rows that were dropped because nobody took them in time."""
        return self._waiting.dropped

    @property
    def ended(self) -> bool:
        """Whether no more results come; some may still wait to be taken."""
        return self._ended

    def get(self, timeout: float | None = None) -> pa.Table | None:
        """The next results; None if none come within `timeout` seconds, or none any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting.tables or self._ended, timeout)
            return self._waiting.take() if self._waiting.tables else None

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        rows = self.get()
        if rows is None:
            raise StopIteration
        return rows

    def offer(self, rows: pa.Table, batch: int, ring: str) -> None:
        """Take the rows of one micro-batch; those of a replayed one are here already."""
        with self._changed:
            if not self._ended:
                self._waiting.add(rows, batch, ring)
                self._changed.notify()

    def end(self) -> None:
        """No more results: what waits can still be taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening and forget what waits."""
        self._leave(self)
        self.end()
        with self._changed:
            self._waiting.tables.clear()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Subscribers:
    """The subscriptions to an engine's queries, by slot."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._by_slot: dict[int, tuple[Subscription, ...]] = {}

    def subscribe(self, slot: int, limit: int) -> Subscription:
        if limit < 1:
            raise PenstockError(f"limit = {limit} is not a number of rows", "write limit = 1000")
        subscription = Subscription(limit, partial(self._remove, slot))
        with self._guard:
            self._by_slot[slot] = (*self._by_slot.get(slot, ()), subscription)
        return subscription

    def _remove(self, slot: int, subscription: Subscription) -> None:
        with self._guard:
            others = tuple(s for s in self._by_slot.pop(slot, ()) if s is not subscription)
            if others:
                self._by_slot[slot] = others

    def slots(self) -> set[int]:
        """Slots that somebody listens to."""
        with self._guard:
            return set(self._by_slot)

    def publish(self, slot: int, rows: pa.Table, batch: int, ring: str = "") -> None:
        for subscription in self._by_slot.get(slot, ()):
            subscription.offer(rows, batch, ring)

    def end(self, slot: int) -> None:
        """The query is gone."""
        with self._guard:
            ended = self._by_slot.pop(slot, ())
        for subscription in ended:
            subscription.end()

    def end_all(self) -> None:
        for slot in self.slots():
            self.end(slot)
