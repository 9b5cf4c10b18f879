"""Where queries go: shared, reused, created; whose ring starts next."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.rings import (
    Create,
    Limits,
    QueryFacts,
    Reuse,
    RingFacts,
    Share,
    SlotFacts,
    Waiting,
    apportioned,
    expected_cost,
    next_starts,
    place,
)

LIMITS = Limits(minimum=0.3, maximum=0.8)


def ring(id_: str, *costs: float, composition: str = "x", **facts) -> RingFacts:
    slots = tuple(SlotFacts(number, cost) for number, cost in enumerate(costs))
    return RingFacts(id_, composition, slots, **facts)


def test_the_first_query_of_a_composition_gets_a_new_ring() -> None:
    assert place(QueryFacts("x", 0.1), [], LIMITS) == Create("x")
    assert place(QueryFacts("x", 0.1), [ring("a", 0.1, composition="y")], LIMITS) == Create("x")


def test_a_query_shares_a_ring_up_to_the_maximum() -> None:
    assert place(QueryFacts("x", 0.5), [ring("a", 0.25)], LIMITS) == Share("a")
    assert place(QueryFacts("x", 0.6), [ring("a", 0.25)], LIMITS) == Create("x")


def test_of_several_rings_the_fullest_with_room_is_shared() -> None:
    rings = [ring("a", 0.1), ring("b", 0.5), ring("c", 0.7)]
    assert place(QueryFacts("x", 0.2), rings, LIMITS) == Share("b")


def test_what_was_measured_counts_and_what_has_just_come_too() -> None:
    measured = ring("a", 0.1, measured=0.75)
    assert measured.capacity == 0.75
    assert place(QueryFacts("x", 0.1), [measured], LIMITS) == Create("x")
    many = ring("a", *[0.1] * 8, measured=0.1)
    assert place(QueryFacts("x", 0.1), [many], LIMITS) == Create("x")


def test_a_ring_that_falls_behind_takes_nobody() -> None:
    assert place(QueryFacts("x", 0.1), [ring("a", 0.1, backlog_per_s=5)], LIMITS) == Create("x")


def test_a_warm_ring_is_reused_the_last_one_first() -> None:
    rings = [ring("a", idle_s=20), ring("b", idle_s=10), ring("c", idle_s=1, state="starting")]
    assert place(QueryFacts("x", 0.1), rings, LIMITS) == Reuse("b")
    assert place(QueryFacts("x", 5.0), rings, LIMITS) == Reuse("b")  # it has to run somewhere
    assert place(QueryFacts("x"), [ring("a", state="failed")], LIMITS) == Create("x")


def test_a_new_query_is_expected_to_cost_what_others_do() -> None:
    rings = [ring("a", 0.1, 0.3), ring("b", 0.2), ring("c", 9.0, composition="y")]
    assert expected_cost("x", rings) == pytest.approx(0.2)
    assert expected_cost("z", rings) == 0.0


@given(st.floats(0, 2), st.floats(0, 2), st.dictionaries(st.integers(0, 9), st.floats(0, 9)))
def test_costs_of_slots_add_up_to_what_was_measured(busy, fixed, weights) -> None:
    costs = apportioned(busy, fixed, weights)
    assert [c.slot for c in costs] == list(weights)
    if sum(weights.values()):
        assert sum(c.cost for c in costs) == pytest.approx(max(0.0, busy - fixed), abs=1e-9)


@pytest.mark.parametrize(
    "wrong", [{"minimum": 0.9}, {"minimum": 0.0}, {"pool": -1}, {"starting": 0}]
)
def test_limits_that_contradict_each_other_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"minimum|pool"):
        Limits(**wrong)  # type: ignore[arg-type]


def test_rings_start_in_turn_and_few_at_once() -> None:
    waiting = [Waiting(id_, id_[0]) for id_ in ("a1", "a2", "a3", "b1", "c1", "b2")]
    two = Limits(starting=2)
    assert next_starts(waiting, 0, two, {}) == ["a1", "b1"]
    assert next_starts(waiting, 1, two, {}) == ["a1"]
    assert next_starts(waiting, 2, two, {}) == []
    assert next_starts(waiting, 0, two, {"a": 1}) == ["b1", "c1"]
    assert next_starts(waiting, 0, two, {"a": 2, "b": 1}) == ["c1", "b1"]
    assert next_starts(waiting, 0, Limits(starting=9), {}) == ["a1", "b1", "c1", "a2", "b2", "a3"]


@given(st.lists(st.sampled_from("abcd"), max_size=20), st.integers(1, 3))
def test_every_ring_starts_once_and_no_composition_gets_ahead(kinds, at_once) -> None:
    waiting = [Waiting(f"{kind}{n}", kind) for n, kind in enumerate(kinds)]
    order: list[str] = []
    while waiting:
        chosen = next_starts(waiting, 0, Limits(starting=at_once), Counter(id_[0] for id_ in order))
        assert 0 < len(chosen) <= at_once
        order += chosen
        waiting = [w for w in waiting if w.ring not in chosen]
    assert Counter(id_[0] for id_ in order) == Counter(kinds)
    left, had = Counter(kinds), Counter[str]()
    for id_ in order:
        others = [kind for kind in left if left[kind] and kind != id_[0]]
        assert all(had[id_[0]] <= had[kind] for kind in others)
        had[id_[0]] += 1
        left[id_[0]] -= 1
