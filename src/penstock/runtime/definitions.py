"""Streams and regions as statements change them: CREATE, ALTER and DROP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock

from penstock.errors import EngineError
from penstock.plan.catalog import RegionSet, Stream
from penstock.runtime.derived.definition import made_by, maker_of
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.planning import Plan
from penstock.runtime.query import Query
from penstock.runtime.registry import Registry
from penstock.runtime.rings.manager import RingManager
from penstock.runtime.workspace import Workspace

_DISORDER = ("estimator", "slack_us", "slack_tuples", "idle_us", "trust_us")  # of a stream


class Definitions:
    """guard: the engine's. drop_query, drop_slot: how queries go, by name and by slot."""

    def __init__(
        self,
        registry: Registry,
        workspace: Workspace,
        exchange: Exchange,
        manager: RingManager,
        guard: RLock,
        drop_query: Callable[[str], None],
        drop_slot: Callable[[int], None],
    ) -> None:
        self._registry = registry
        self._workspace = workspace
        self._exchange = exchange
        self._manager = manager
        self._guard = guard
        self._drop_query = drop_query
        self._drop_slot = drop_slot
        self._leaving: set[str] = set()  # streams and regions that are being dropped

    def check(self, plan: Plan) -> None:
        """Refuse a plan for a stream or regions that are not there any more as they were; within
        the guard, in which it is registered."""
        catalog = self._registry.catalog()
        for stream in plan.streams:
            found = catalog.get(stream.name)
            if found is None or not _reads_alike(found, stream) or self._is_leaving(stream.name):
                raise EngineError(f"stream {stream.name} was dropped or changed meanwhile")
        if (join := plan.composed.composition.region_join) is not None:
            regions = catalog.regions.get(join.regions.lower())
            if regions is None or regions.digest != join.digest or self._is_leaving(regions.name):
                raise EngineError(f"regions {join.regions} were dropped or changed meanwhile")

    def _is_leaving(self, name: str) -> bool:
        return name.lower().split(".")[0] in self._leaving  # companions go with their stream

    @contextmanager
    def _while_leaving(self, name: str) -> Iterator[None]:
        """Nobody new reads what is being dropped; outside the guard, for rings are waited for."""
        try:
            yield
        finally:
            with self._guard:
                self._leaving.discard(name.lower())

    def create_stream(self, stream: Stream) -> None:
        """Take a stream into the catalog (CREATE STREAM)."""
        with self._guard:
            self._registry.catalog().refuse_taken(stream.name)
            self._registry.put_stream(stream)

    def derive_stream(self, stream: Stream, make: Callable[[], Query]) -> Query:
        """Take in a stream that a query's results make (CREATE STREAM … AS); it flows as soon as
        somebody reads it."""
        self.create_stream(stream)
        try:
            self._exchange.create(stream)
            return make()
        except BaseException:
            self._forget_stream(stream, cascade=True)
            raise

    def change_stream(self, stream: Stream) -> None:
        """Take over another definition of disorder; running rings follow at their next epoch."""
        with self._guard:
            self._registry.put_stream(stream)
            self._manager.follow(stream)

    def drop_stream(self, name: str, cascade: bool = False) -> None:
        """Remove a stream that nobody reads, or (cascade) with all who do."""
        with self._guard:
            stream = self._registry.catalog().require(name)
            readers = self._registry.readers_of(stream.name)
            if readers and not cascade:
                raise EngineError(*in_use("stream", stream.name, readers))
            self._leaving.add(stream.name.lower())
        with self._while_leaving(stream.name):
            self._drop_readers(readers)
            self._manager.forget(stream.name)  # outside the guard: a sink's function may want it
            self._forget_stream(stream, cascade)

    def _drop_readers(self, readers: Sequence[str]) -> None:
        """Drop queries, and with those that make streams whatever hangs on them."""
        for reader in readers:
            if self._registry.query(reader) is None:
                continue  # gone with another one
            if (made := made_by(reader)) is None:
                self._drop_query(reader)
            else:
                self.drop_stream(made, cascade=True)

    def _forget_stream(self, stream: Stream, cascade: bool) -> None:
        """Remove a stream that no ring reads any more, and what makes it if it is derived."""
        if stream.source == "derived":
            if (query := self._registry.query(maker_of(stream.name))) is not None:
                self._drop_slot(query.slot)
                self._manager.running.retire(query.ring)
            self._exchange.drop(stream, cascade)
        self._registry.drop_stream(stream.name)
        self._workspace.forget_companions(stream.name)

    def create_regions(self, regions: RegionSet, body: bytes) -> None:
        """Take regions into the catalog (CREATE REGIONS); the workspace keeps what they are."""
        with self._guard:
            self._registry.catalog().refuse_taken(regions.name)
            self._registry.put_regions(regions, body)

    def drop_regions(self, name: str, cascade: bool = False) -> None:
        """Remove regions that nobody joins, or (cascade) with all who do."""
        with self._guard:
            regions = self._registry.catalog().require_regions(name)
            rings = self._registry.rings_of_regions(regions.name)
            readers = [q.name for ring in rings for q in self._registry.queries(ring)]
            if readers and not cascade:
                raise EngineError(*in_use("regions", regions.name, readers))
            self._leaving.add(regions.name.lower())
        with self._while_leaving(regions.name):
            self._drop_readers(readers)
            self._manager.forget_regions(regions.name)  # outside the guard, as for streams
            self._registry.drop_regions(regions.name)


def _reads_alike(stream: Stream, other: Stream) -> bool:
    """Whether a query on one means the same on the other; how disorder is judged may differ."""
    judged = {name: getattr(other, name) for name in _DISORDER}
    return replace(stream, **judged) == other


def in_use(what: str, name: str, readers: Sequence[str]) -> tuple[str, str]:
    """Why something cannot be dropped, and what to do."""
    names = ", ".join(readers[:5]) + (" …" if len(readers) > 5 else "")
    verb = "is" if what == "stream" else "are"
    return (
        f"{what} {name} {verb} read by {len(readers)} queries: {names}",
        f"drop them first, or DROP {what.upper()} {name} CASCADE",
    )
