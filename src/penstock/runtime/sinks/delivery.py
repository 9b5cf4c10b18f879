"""Calls of sinks with the rows of one micro-batch: each query's own, or of those that share a sink.

A call has a key: the same sink of the same queries is the same key, in every micro-batch, also when
rows that were kept for it are delivered later.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol, TypeGuard

import pyarrow as pa

from penstock.plan.codec import dump_columns
from penstock.plan.specs import Shown
from penstock.runtime.derived.feed import Feed
from penstock.runtime.sinks.matched import (
    Matched,
    only,
    picked_rows,
    rows_by_slot,
    shown_rows,
    typed_rows,
    with_queries,
)

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
    """A Python function; what it has taken it is not given again by this process.

    last: the last micro-batch whose call went well, even if nobody waited for it any more.
    """

    function: Callable[[pa.Table], Any]
    pooled: bool = True
    last: int = -1

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        if batch > self.last:
            self.function(rows)
            self.last = batch


@dataclass(frozen=True, slots=True)
class Share:
    """A query's part in a sink that takes the rows of a ring's queries together, each row once."""

    sink: Sink  # equal ones are one
    query: str


@dataclass(frozen=True, slots=True)
class Missing:
    """A sink that has still to be handed over: its rows wait for it."""


Outlet = Sink | Share | Feed | Missing | None  # None: the log


@dataclass(frozen=True, slots=True)
class Delivery:
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


def is_own(sink: Outlet) -> TypeGuard[Sink]:
    return sink is not None and not isinstance(sink, Share | Feed | Missing)


def delivery_key(ring: str, slot: int, sink: Outlet, columns: Columns) -> Hashable:
    """What a query's calls are known by; None if none are made for it."""
    if isinstance(sink, Share):
        return (ring, sink.sink, columns)
    return (slot, id(sink)) if is_own(sink) else None  # another sink has another key


def slots_of(key: Hashable) -> tuple[int, ...]:
    """The only query of a key; empty if several may share it."""
    return key[:1] if isinstance(key, tuple) and isinstance(key[0], int) else ()


def deliveries_of(
    ring: str, matched: Matched, sinks: Mapping[int, Outlet], columns: Mapping[int, Columns]
) -> dict[Hashable, Delivery]:
    """The calls to make, by their keys: for each query with a sink of its own, for each sink that
    queries share and each kind of rows that they show there."""
    found: dict[Hashable, Delivery] = {}
    sharing: dict[Hashable, dict[int, Share]] = defaultdict(dict)
    rows = own_rows(matched, columns, any(map(is_own, sinks.values())))
    for slot, sink in sinks.items():
        key = delivery_key(ring, slot, sink, columns[slot])
        if is_own(sink):
            found[key] = Delivery((slot,), sink, partial(rows, slot), ring)
        elif isinstance(sink, Share):
            sharing[key][slot] = sink
    for key, shares in sharing.items():
        slots = tuple(shares)
        names = {slot: share.query for slot, share in shares.items()}
        shown = columns[slots[0]]
        gather = partial(_rows_of_many, matched, names, shown)
        found[key] = Delivery(slots, shares[slots[0]].sink, gather, _source(ring, shown))
    return found


def own_rows(
    matched: Matched, columns: Mapping[int, Columns], wanted: object = True
) -> Callable[[int], pa.Table]:
    """A query's rows as it shows them, by slot; made ready for all queries at once if wanted."""
    picked = cache(partial(picked_rows, matched.rows))  # queries of a kind show the same
    rows_of = rows_by_slot(matched.slots) if wanted else {}

    def rows(slot: int) -> pa.Table:
        own = columns[slot]
        return typed_rows(picked(own).take(pa.array(rows_of[slot])), own)

    return rows


def _rows_of_many(matched: Matched, names: Mapping[int, str], columns: Columns) -> pa.Table:
    some = only(matched, names)
    return with_queries(Matched(shown_rows(some.rows, columns), some.slots), names)


def _source(ring: str, columns: Columns) -> str:
    """What rows of a ring are known by: those of other columns by another name."""
    if columns is None:
        return ring
    return f"{ring}-{hashlib.sha256(dump_columns(columns).encode()).hexdigest()[:8]}"
