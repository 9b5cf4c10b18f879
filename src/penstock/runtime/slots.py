"""Queries as slots of rings: taken with a registration, given back when queries go."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import NamedTuple

from penstock.errors import EngineError
from penstock.plan.codec import dump_columns, dumps
from penstock.runtime.derived.definition import made_by
from penstock.runtime.planning import Plan
from penstock.runtime.registry import ALONE, REPLAY, QueryRow, Registry, RingRow
from penstock.runtime.rings.manager import RingManager
from penstock.runtime.sinks.outlets import QueryOutlets
from penstock.runtime.sinks.spec import STREAM, Callback, SinkSpec
from penstock.runtime.statements import same_statement


class Taken(NamedTuple):
    """A query in its ring; notes: what its user should know."""

    slot: int
    name: str
    notes: tuple[str, ...] = ()


class Slots:
    """guard: the engine's. check: refuses plans for what the catalog does not hold any more."""

    def __init__(
        self,
        registry: Registry,
        sinks: QueryOutlets,
        manager: RingManager,
        guard: RLock,
        check: Callable[[Plan], None],
    ) -> None:
        self._registry = registry
        self._sinks = sinks
        self._manager = manager
        self._rings = manager.running
        self._guard = guard
        self._check = check

    def take(
        self, plan: Plan, text: str, name: str | None, spec: SinkSpec, given: object, start: str
    ) -> Taken:
        """allocate → publish, and start the ring; an error if Spark does not start it."""
        function = given if callable(given) else None
        with self._guard, self._rings.guard:
            name = name or self._free_name()
            if made_by(name) is not None and spec.kind != STREAM:
                raise EngineError(f"{name!r} is the name of a stream's own query", "choose another")
            if (known := self._registry.query(name)) is not None:
                if function is not None and same_statement(known.text, text):
                    return self._reattach(known, function)
                raise EngineError(f"query {name} exists already", f"DROP QUERY {name} first")
            self._check(plan)
            own = REPLAY if start == "earliest" else ALONE if spec.kind == STREAM else 0
            slot, ring = self._publish(plan, text, name, spec, function, own)
            seen = self._manager.has_seen_tuples(ring.id)
            self._open(ring, slot)
        self._rings.start_pending(of=ring.id)
        if (refusal := self._rings.refusal(ring.id, slot)) is not None:
            self.drop(slot)
            raise EngineError(f"Spark does not start this query: {refusal}")
        return Taken(slot, name, plan.notes(behind=seen and start == "latest"))

    def _publish(
        self,
        plan: Plan,
        text: str,
        name: str,
        spec: SinkSpec,
        function: Callback | None,
        own: int,
    ) -> tuple[int, RingRow]:
        """A slot in a ring of the query's composition, for the epochs from now on."""
        with self._registry.change():
            ring = self._manager.allocate(plan.composed.composition, plan.ring_outputs, own)
            columns = dump_columns(plan.composed.columns)
            slot = self._registry.add_query(name, text, ring.id, spec.dumps(), columns)
            if function is not None:
                self._sinks.functions[slot] = function
            # before the commit: no epoch may carry a slot whose results have no way out
            self._rings.attach(ring.id, self._registry.query_by_slot(slot))
            body = plan.slot(slot)
            self._rings.expect(ring.id, body)
            self._registry.publish(slot, dumps(body))
        return slot, ring

    def _open(self, ring: RingRow, slot: int) -> None:
        try:
            self._rings.open(ring)
        except BaseException:
            self.drop(slot)
            self._rings.retire(ring.id, if_idle=True)  # it is not open: nobody has to be waited for
            raise

    def _reattach(self, known: QueryRow, function: Callback) -> Taken:
        self._sinks.functions[known.slot] = function
        self._rings.attach(known.ring, known, behind=True)
        return Taken(known.slot, known.name)

    def _free_name(self) -> str:
        number = self._registry.next_slot()
        while self._registry.query(f"query_{number}") is not None:
            number += 1
        return f"query_{number}"

    def drop(self, slot: int) -> None:
        """Take a query out, and what was kept for it; again, if it went by itself."""
        with self._guard:
            with self._rings.guard:  # nobody moves it meanwhile, or has since somebody read of it
                query = self._registry.query_by_slot(slot)
                if query.dropped is None:
                    self._registry.drop_query(slot)
                self._rings.forget_slot(query.ring, slot)
            self._rings.retire_failed(query.ring)
