"""Which plan a ring runs now, and when another one has to take over.

A slot that the running plan cannot serve (it needs an attribute that the plan does not derive, or
the plan is made of other queries' conditions) waits, held back from the epochs, until the ring has
gone on with a plan that can.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.control.mode import ModeFacts, becomes_native, is_native
from penstock.plan.catalog import Stream
from penstock.plan.codec import slot_from
from penstock.plan.explain import Place
from penstock.plan.specs import Attribute, Composition, SlotSpec
from penstock.runtime.compile import Generation, runs_in_reader
from penstock.runtime.epochs import EpochKeeper
from penstock.runtime.registry import QueryRow, Registry
from penstock.runtime.rings.refusing import Group
from penstock.runtime.rings.ring import Ring
from penstock.runtime.settings import Settings


class Generations:
    def __init__(
        self,
        registry: Registry,
        epochs: EpochKeeper,
        settings: Callable[[], Settings],
        condition_of: Callable[[QueryRow], str | None],
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
        self._unsettled: set[str] = set()  # Spark refused a plan of their queries' own conditions

    def expect(self, ring: Ring, slot: SlotSpec) -> None:
        """A slot is about to be published in a ring: hold it back if the plan cannot serve it."""
        self._changed[ring.id] = time.monotonic()
        self._unsettled.discard(ring.id)
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
        return ring.id not in self._unsettled and becomes_native(self._facts_of(ring))

    def plan(self, ring: Ring) -> Generation:
        """The plan to start a ring with, for all slots of now; later ones are held to it."""
        derived = [Attribute(**found) for found in self._registry.derived_of(ring.id)]
        facts = self._facts_of(ring)
        as_before = ring.generation.native is not None and not self.is_due(ring)
        settles = becomes_native(facts) and ring.id not in self._unsettled
        native = is_native(facts) if as_before or not ring.started else settles
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

    def refused(self, ring: Ring) -> list[Group]:
        """The planned generation cannot be, the ring goes on as before: who waited for it.

        Not those whom the ring serves as it is, or who have come since and need still another.
        """
        if ring.planned is None or ring.planned.native is not None:
            self._unsettled.add(ring.id)
            return []
        groups: dict[tuple[Attribute, ...], list[int]] = {}
        for slot in self._waiting(ring):
            if ring.planned.serves(slot):
                missing = sorted(set(slot.derived) - set(ring.generation.derived), key=_by_name)
                groups.setdefault(tuple(missing), []).append(slot.slot)
        return [Group(derived, tuple(slots)) for derived, slots in groups.items()]

    def plan_with(self, ring: Ring, groups: Sequence[Group]) -> Generation:
        """The plan that runs, for some of those who wait as well."""
        derived = {a for group in groups for a in group.derived} | set(ring.generation.derived)
        ring.planned = Generation(tuple(sorted(derived, key=_by_name)), None, ring.guarded)
        return ring.planned

    def sorted_out(self, ring: Ring) -> None:
        """Whoever could not have a plan is gone; those whom the ring does not serve yet wait on."""
        ring.planned = ring.generation
        if self._waiting(ring):
            self._outdated.add(ring.id)
        else:
            self._outdated.discard(ring.id)
            self._epochs.thaw(ring.id)

    def _waiting(self, ring: Ring) -> list[SlotSpec]:
        """Slots that are held back and that the running plan does not serve."""
        texts = self._registry.live_specs_since(ring.id, self._epochs.frozen_at(ring.id))
        return [slot for slot in map(slot_from, texts) if not ring.generation.serves(slot)]

    def forget(self, ring: str) -> None:
        self._outdated.discard(ring)
        self._unsettled.discard(ring)
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


def _by_name(attribute: Attribute) -> str:
    return attribute.name
