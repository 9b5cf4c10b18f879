"""Rings and the derived streams between them: who reads what, who has to run, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from penstock.control.flow import RingFlow, wanted, waves
from penstock.exchange.failures import ExchangeError, QueueLost
from penstock.plan.catalog import Stream
from penstock.runtime.compile import Input
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.derived.restoring import Restorer
from penstock.runtime.derived.source import QueuePlanner
from penstock.runtime.registry import REPLAY, Registry, RingRow
from penstock.runtime.rings.ring import Ring
from penstock.runtime.sinks.spec import STREAM, SinkSpec


@dataclass(frozen=True, slots=True)
class Pipelines:
    registry: Registry
    exchange: Exchange
    restorer: Restorer
    find_stream: Callable[[str], Stream | None]

    def fed_by(self, row: RingRow) -> Stream | None:
        """The derived stream that a ring feeds; such a ring is shared with nobody."""
        for query in self.registry.queries(row.id) if row.replay else ():
            sink = SinkSpec.loads(query.sink)
            if sink.kind == STREAM:
                return self.find_stream(str(sink.path))
        return None

    def planner(self, given: Input, row: RingRow, fed: Stream | None) -> QueuePlanner:
        """What reads a derived stream for a ring."""
        stream, consumer = self.find_stream(given.stream.name), given.config.ring
        assert stream is not None
        start = "earliest" if row.replay == REPLAY else "latest"
        if fed is None:
            return self.exchange.planner(stream, consumer, start)
        needed_from = partial(self.restorer.needed_from, consumer, fed)
        return self.exchange.planner(stream, consumer, start, needed_from)

    def wanted(self, rings: Iterable[Ring]) -> list[Ring]:
        """The rings that have to run: those that feed streams only if somebody reads them."""
        known = list(rings)
        if not any(ring.feeds for ring in known):
            return known
        needed = wanted(map(_flow, known), [ring.id for ring in known if self._has_begun(ring)])
        return [ring for ring in known if ring.id in needed]

    def _has_begun(self, ring: Ring) -> bool:
        return ring.feeds is not None and any(map(self.registry.has_begun, ring.parts))

    def waves(self, rings: Iterable[Ring]) -> list[list[Ring]]:
        """The rings that have to run, in the order in which tuples go through them."""
        known = {ring.id: ring for ring in self.wanted(rings)}
        return [[known[id_] for id_ in wave] for wave in waves(map(_flow, known.values()))]

    def prepare(self, ring: Ring, planner: QueuePlanner, restore: Callable[[Ring], None]) -> None:
        """Have tuples kept for a ring that is about to start."""
        try:
            planner.prepare()
        except QueueLost:
            restore(ring)
            planner.prepare()

    def unregister(self, stream: str, consumer: str) -> None:
        """Have nothing kept for a ring, or an input of one, that is gone."""
        found = self.find_stream(stream)
        if found is not None and found.source == "derived":
            with suppress(ExchangeError):  # a node that is gone keeps nothing either
                self.exchange.unregister(found, consumer)

    def streams_of(self, ring: Ring) -> list[Stream]:
        """What a ring reads and feeds."""
        found = [self.find_stream(given.stream.name) for given in ring.inputs]
        return [stream for stream in (*found, ring.feeds) if stream is not None]


def _flow(ring: Ring) -> RingFlow:
    reads = frozenset(name.lower() for name in ring.composition.streams)
    return RingFlow(ring.id, reads, None if ring.feeds is None else ring.feeds.name.lower())
