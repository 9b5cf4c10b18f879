"""Which plan a ring runs now, and when another one has to take over.

A slot that the running plan cannot serve (it needs an attribute that the plan does not derive, or
the plan is made of other queries' conditions) waits, held back from the epochs, until the ring has
gone on with a plan that can.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from penstock.control.mode import ModeFacts, becomes_native, is_native
from penstock.plan.catalog import Stream
from penstock.plan.explain import Place
from penstock.plan.specs import Attribute, Composition, SlotSpec
from penstock.runtime.compile import Generation, runs_in_reader
from penstock.runtime.epochs import EpochKeeper
from penstock.runtime.registry import QueryRow, Registry
from penstock.runtime.ring import Ring
from penstock.runtime.settings import Settings

# The WHERE of a query as Spark SQL over its stream's columns; None without one.
ConditionOf = Callable[[QueryRow], str | None]


class Generations:
    def __init__(
        self,
        registry: Registry,
        epochs: EpochKeeper,
        settings: Callable[[], Settings],
        condition_of: ConditionOf,
        is_stateless: Callable[[Stream], bool],
    ) -> None:
        self._registry = registry
        self._epochs = epochs
        self._settings = settings
        self._condition_of = condition_of
        self._is_stateless = is_stateless
        self._changed: dict[str, float] = {}  # when the last query came
        self._left: Counter[str] = Counter()  # how often Spark's own code was left
        self._outdated: set[str] = set()

    def expect(self, ring: Ring, slot: SlotSpec) -> None:
        """A slot is about to be published in a ring: hold it back if the plan cannot serve it."""
        self._changed[ring.id] = time.monotonic()
        if ring.planned is not None and not ring.planned.serves(slot):
            self._epochs.freeze(ring.id)
            self._outdated.add(ring.id)
            self._left[ring.id] += ring.planned.native is not None

    def is_due(self, ring: Ring) -> bool:
        """Whether queries wait for another plan."""
        return ring.id in self._outdated

    def may_settle(self, ring: Ring) -> bool:
        """Whether a ring's queries are few and have been the same for long enough."""
        if ring.place != "stage" or ring.composition.kind != "select" or ring.composition.join:
            return False  # without counting, for this is asked all the time
        return becomes_native(self._facts_of(ring))

    def plan(self, ring: Ring) -> Generation:
        """The plan to start a ring with, for all slots of now; later ones are held to it."""
        derived = [Attribute(**found) for found in self._registry.derived_of(ring.id)]
        facts = self._facts_of(ring)
        as_before = ring.generation.native is not None and not self.is_due(ring)
        native = is_native(facts) if as_before or not ring.started else becomes_native(facts)
        self._outdated.discard(ring.id)
        conditions = self._conditions(ring) if native else None
        ring.planned = Generation(tuple(derived), conditions, ring.guarded)
        return ring.planned

    def first_place(self, composition: Composition, stream: Stream) -> Place:
        """Where the predicates of a new ring's only query are evaluated."""
        if runs_in_reader(composition, stream):
            return "reader"
        return "spark" if is_native(self._facts(composition, stream, 1)) else "stage"

    def started(self, ring: Ring) -> None:
        """The ring runs the plan it was given; whoever came since then waits for the next."""
        if not self.is_due(ring):
            self._epochs.thaw(ring.id)

    def refuse_waiting(self, ring: Ring) -> list[int]:
        """The plan that slots waited for cannot be: drop them, and go on as before."""
        waiting = self._registry.slots_since(ring.id, self._epochs.frozen_at(ring.id))
        for slot in waiting:
            self._registry.drop_query(slot)
        self._outdated.discard(ring.id)
        ring.planned = ring.generation
        self._epochs.thaw(ring.id)
        return waiting

    def forget(self, ring: str) -> None:
        self._outdated.discard(ring)
        self._changed.pop(ring, None)
        self._left.pop(ring, None)

    def _facts_of(self, ring: Ring) -> ModeFacts:
        count = self._registry.count_queries(ring.id)
        facts = self._facts(ring.composition, ring.stream, count, ring.id)
        # Spark's own code sees nothing of the disorder that a derived stream goes by
        return replace(facts, able=facts.able and not ring.inputs[0].config.watches)

    def _facts(
        self, composition: Composition, stream: Stream, queries: int, ring: str = ""
    ) -> ModeFacts:
        return ModeFacts(
            composition.kind == "select"
            and composition.join is None
            and not composition.fenced
            and not runs_in_reader(composition, stream)
            and self._is_stateless(stream),
            queries,
            self._settings().native_queries,
            time.monotonic() - self._changed.get(ring, 0.0),
            self._left[ring],
        )

    def _conditions(self, ring: Ring) -> tuple[tuple[int, str], ...]:
        rows = self._registry.queries(ring.id)
        return tuple((row.slot, self._condition_of(row) or "true") for row in rows)
