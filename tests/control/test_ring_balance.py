"""Rings that are split, merged, kept and retired, one by one and as they come and go all day."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.control.test_rings import ring

from penstock.control.ring_balance import (
    KeepWarm,
    Merge,
    Retire,
    Split,
    given_away,
    maintain,
)
from penstock.control.rings import (
    Create,
    Limits,
    QueryFacts,
    Reuse,
    RingFacts,
    Share,
    SlotFacts,
    place,
)

LIMITS = Limits(minimum=0.3, maximum=0.8, warm_s=60, pool=2, settle_s=30)


def test_an_overloaded_ring_gives_half_of_its_costs_to_a_new_one() -> None:
    [split] = maintain([ring("a", 0.3, 0.2, 0.25, 0.25)], LIMITS)
    assert split == Split("a", (0, 1), None)


def test_one_costly_slot_moves_instead_of_many_cheap_ones() -> None:
    [split] = maintain([ring("a", *[0.05] * 12, 0.6)], LIMITS)
    assert split == Split("a", (12,), None)


def test_slots_go_to_a_ring_with_room_the_one_with_least_to_do() -> None:
    rings = [ring("a", 0.5, 0.5), ring("b", 0.2), ring("c", 0.31)]
    assert maintain(rings, LIMITS) == [Split("a", (0,), "b")]
    assert maintain([*rings, ring("w", idle_s=5)], LIMITS) == [Split("a", (0,), "w")]


def test_slots_with_state_only_go_to_a_copy_of_their_ring() -> None:
    rings = [ring("a", 0.5, 0.5, portable=False), ring("b", 0.2, portable=False)]
    assert maintain(rings, LIMITS) == [Split("a", (0,), None)]
    small = [ring("a", 0.1, portable=False), ring("b", 0.1, portable=False)]
    assert maintain(small, LIMITS) == []


def test_slots_of_a_ring_that_is_behind_only_go_to_a_copy_which_is_where_it_is() -> None:
    """One with room would have to wait for all that the other has still to read."""
    for late in ({"backlog_per_s": 0.3}, {"behind": 2.5}):
        rings = [ring("a", 0.5, 0.5, **late), ring("b", 0.2)]
        assert maintain(rings, LIMITS) == [Split("a", (0,), None)]
        assert maintain(rings, replace(LIMITS, copies=2)) == []
    nearly = [ring("a", 0.5, 0.5, behind=2.0), ring("b", 0.2)]
    assert maintain(nearly, LIMITS) == [Split("a", (0,), "b")]


def test_a_ring_that_is_behind_gets_no_slots_and_gives_none_to_be_merged() -> None:
    assert maintain([ring("a", 0.5, 0.5), ring("b", 0.2, behind=3)], LIMITS) == [
        Split("a", (0,), None)
    ]
    assert maintain([ring("a", 0.2), ring("b", 0.01, behind=3)], LIMITS) == []


def test_there_are_no_more_copies_of_a_ring_than_allowed() -> None:
    limits = replace(LIMITS, copies=2)
    full = [ring("a", 0.5, 0.5, portable=False), ring("b", 0.5, 0.4, portable=False)]
    assert maintain(full, limits) == []
    assert place(QueryFacts("x", 0.1), full, limits) == Share("b")
    assert maintain(full[:1], limits) == [Split("a", (0,), None)]


def test_a_ring_that_has_just_changed_is_left_alone() -> None:
    assert maintain([ring("a", 0.5, 0.5, settled_s=29)], LIMITS) == []
    small = [ring("a", 0.1), ring("b", 0.1, settled_s=29)]
    assert maintain(small, LIMITS) == []


def test_what_cannot_be_parted_is_not_split() -> None:
    assert maintain([ring("a", 5.0)], LIMITS) == []
    reading = ring("a", 0.05, 0.05, fixed=1.0)
    assert maintain([reading], LIMITS) == []  # both halves would read the stream


def test_an_empty_ring_that_nobody_may_share_is_not_kept() -> None:
    own = ring("own", composition="own", shared=False)
    rings = [own, ring("a", idle_s=1), ring("b", idle_s=2, composition="y")]
    assert maintain(rings, LIMITS) == [KeepWarm("a"), KeepWarm("b"), Retire("own")]


def staying(found: RingFacts, *slots: int) -> RingFacts:
    changed = (replace(slot, stays=slot.slot in slots) for slot in found.slots)
    return replace(found, slots=tuple(changed))


def test_slots_that_cannot_move_are_not_given_away() -> None:
    full = ring("a", 0.3, 0.3, 0.3, 0.3)
    assert maintain([staying(full, 0, 1)], LIMITS) == [Split("a", (2, 3), None)]
    assert maintain([staying(full, 0, 1, 2)], LIMITS) == [Split("a", (3,), None)]
    assert maintain([staying(full, 0, 1, 2, 3)], LIMITS) == []
    assert maintain([staying(ring("a", 0.1, 0.1), 1), ring("b", 0.1)], LIMITS) == []


def test_two_rings_with_little_to_do_become_one() -> None:
    rings = [ring("a", 0.2), ring("b", 0.05, 0.02), ring("c", 0.7)]
    assert maintain(rings, LIMITS) == [Merge("b", "a", (0, 1))]
    assert maintain([ring("a", 0.2), ring("b", 0.15)], LIMITS) == []
    assert maintain([ring("a", 0.2), ring("b", 0.01, backlog_per_s=1)], LIMITS) == []


def test_what_a_merged_ring_cost_to_run_is_saved() -> None:
    rings = [ring("a", 0.05, fixed=0.15), ring("b", 0.05, fixed=0.15)]
    assert maintain(rings, LIMITS) == [Merge("a", "b", (0,))]


def test_the_pool_is_small_and_has_one_of_each_composition_first() -> None:
    rings = [
        ring("a", idle_s=10),
        ring("b", idle_s=5),
        ring("c", idle_s=20, composition="y"),
        ring("d", idle_s=61, composition="z"),
    ]
    decisions = maintain(rings, LIMITS)
    assert decisions == [KeepWarm("b"), KeepWarm("c"), Retire("d"), Retire("a")]
    assert maintain([ring("a", idle_s=1, state="failed")], LIMITS) == [Retire("a")]


COSTS = st.lists(st.floats(0.001, 1.0), min_size=1, max_size=30)


@given(COSTS)
def test_what_is_given_away_is_balanced_and_few(costs: list[float]) -> None:
    slots = [SlotFacts(number, cost) for number, cost in enumerate(costs)]
    moved = given_away(slots)
    if len(slots) < 2:
        assert moved == ()
        return
    cost, total = sum(s.cost for s in moved), sum(costs)
    assert 0 < len(moved) <= len(slots) / 2
    assert abs(cost - total / 2) <= max(costs) / 2 + 1e-9


def settle(rings: list[RingFacts], limits: Limits) -> tuple[list[RingFacts], list[object]]:
    """Decide again and again on loads that stay the same; the rings then, and what was done."""
    made, done = len(rings), []
    for _ in range(200):
        changes = [d for d in maintain(rings, limits) if not isinstance(d, KeepWarm)]
        if not changes:
            return rings, done
        done += changes
        for change in changes:
            if isinstance(change, Split) and change.to is None:
                made += 1
                source = next(r for r in rings if r.id == change.ring)
                new = RingFacts(f"n{made}", source.composition, fixed=source.fixed)
                rings, change = [*rings, new], replace(change, to=new.id)
            rings = _applied(rings, change)
    raise AssertionError(f"decisions never end: {done[-6:]}")


def _applied(rings: list[RingFacts], change: object) -> list[RingFacts]:
    by_id = {r.id: r for r in rings}
    match change:
        case Split(source, slots, target) | Merge(source, target, slots):
            moved = tuple(s for s in by_id[source].slots if s.slot in slots)
            kept = tuple(s for s in by_id[source].slots if s.slot not in slots)
            by_id[source] = replace(by_id[source], slots=kept)
            by_id[target] = replace(by_id[target], slots=by_id[target].slots + moved)
        case Retire(gone):
            del by_id[gone]
    return list(by_id.values())


@given(st.lists(COSTS, min_size=1, max_size=5), st.floats(0, 0.25))
def test_decisions_come_to_an_end_and_lose_nobody(groups: list[list[float]], fixed: float) -> None:
    number, rings = 0, []
    for name, costs in enumerate(groups):
        slots = tuple(SlotFacts(number + n, cost) for n, cost in enumerate(costs))
        number += len(costs)
        rings.append(RingFacts(f"r{name}", "x", slots, fixed=fixed))
    after, _ = settle(rings, LIMITS)
    assert sorted(s.slot for r in after for s in r.slots) == list(range(number))
    for each in after:
        alone = len(each.slots) == 1
        stuck = each.fixed + max(s.cost for s in each.slots) > 0.8 * each.load if each.slots else 0
        assert each.capacity <= LIMITS.maximum or alone or stuck


@pytest.mark.parametrize("costs", [(0.5, 0.5), (0.3, 0.3, 0.3), (0.01,) * 100])
def test_what_was_split_is_not_merged_again(costs: tuple[float, ...]) -> None:
    after, done = settle([ring("a", *costs)], LIMITS)
    assert [type(d) for d in done] == [Split]
    assert len(after) == 2


class World(RuleBasedStateMachine):
    """Queries come and go and grow; rings are decided on as an engine would."""

    def __init__(self) -> None:
        super().__init__()
        self.rings: dict[str, RingFacts] = {}
        self.live: dict[int, float] = {}
        self.next = 0
        self.made = 0

    def _new_ring(self, composition: str) -> str:
        self.made += 1
        self.rings[f"r{self.made}"] = RingFacts(f"r{self.made}", composition, fixed=0.02)
        return f"r{self.made}"

    def _set(self, ring_: str, slots: tuple[SlotFacts, ...], **facts) -> None:
        self.rings[ring_] = replace(self.rings[ring_], slots=slots, **facts)

    @rule(composition=st.sampled_from("xyz"), cost=st.floats(0.001, 1.2))
    def register(self, composition: str, cost: float) -> None:
        where = place(QueryFacts(composition, cost), self.rings.values(), LIMITS)
        match where:
            case Share(ring_):
                assert self.rings[ring_].slots
            case Reuse(ring_):
                assert not self.rings[ring_].slots
            case Create(kind):
                ring_ = self._new_ring(kind)
        assert self.rings[ring_].composition == composition
        self._set(ring_, (*self.rings[ring_].slots, SlotFacts(self.next, cost)), idle_s=0.0)
        self.live[self.next] = cost
        self.next += 1
        capacity = self.rings[ring_].capacity
        assert capacity <= LIMITS.maximum or len(self.rings[ring_].slots) == 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.live)))
        del self.live[slot]
        for ring_ in list(self.rings.values()):
            self._set(ring_.id, tuple(s for s in ring_.slots if s.slot != slot))

    @precondition(lambda self: self.live)
    @rule(data=st.data(), cost=st.floats(0.001, 0.5))
    def grow(self, data: st.DataObject, cost: float) -> None:
        slot = data.draw(st.sampled_from(sorted(self.live)))
        self.live[slot] = cost
        for ring_ in list(self.rings.values()):
            costs = (SlotFacts(s.slot, self.live[s.slot]) for s in ring_.slots)
            self._set(ring_.id, tuple(costs))

    @rule(seconds=st.floats(1, 40))
    def wait(self, seconds: float) -> None:
        for ring_ in list(self.rings.values()):
            idle_s = 0.0 if ring_.slots else ring_.idle_s + seconds
            self._set(ring_.id, ring_.slots, idle_s=idle_s, settled_s=ring_.settled_s + seconds)

    @rule()
    def look_after(self) -> None:
        before = {r.composition for r in self.rings.values()}
        parts: list[str] = []
        kept = 0
        for decision in maintain(list(self.rings.values()), LIMITS):
            parts.append(decision.ring)
            match decision:
                case Split(ring_, slots, to):
                    target = to or self._new_ring(self.rings[ring_].composition)
                    parts += [] if to is None else [to]
                    self._move(ring_, target, slots)
                case Merge(ring_, into, slots):
                    parts.append(into)
                    assert len(slots) == len(self.rings[ring_].slots)
                    self._move(ring_, into, slots)
                case KeepWarm():
                    kept += 1
                case Retire(ring_):
                    assert not self.rings[ring_].slots
                    del self.rings[ring_]
        assert len(parts) == len(set(parts))
        assert kept <= LIMITS.pool
        assert {r.composition for r in self.rings.values()} <= before

    def _move(self, source: str, target: str, slots: tuple[int, ...]) -> None:
        assert self.rings[source].composition == self.rings[target].composition
        moved = tuple(s for s in self.rings[source].slots if s.slot in slots)
        assert len(moved) == len(slots) > 0
        kept = tuple(s for s in self.rings[source].slots if s.slot not in slots)
        self._set(source, kept, settled_s=0.0, idle_s=0.0)
        self._set(target, self.rings[target].slots + moved, settled_s=0.0)

    @invariant()
    def every_query_has_exactly_one_place(self) -> None:
        placed = [s.slot for r in self.rings.values() for s in r.slots]
        assert sorted(placed) == sorted(self.live)


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
