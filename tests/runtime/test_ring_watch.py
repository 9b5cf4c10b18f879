"""Rings as facts for decisions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.control.ring_load import Seen
from penstock.control.rings import Limits, QueryFacts, RingFacts, Share, expected_cost, place
from penstock.runtime.rings.watch import RingWatch


def facts(slots: Any) -> RingFacts:
    """Of a ring that is busy for half of the time, a tenth of it with reading."""
    now = iter([0.0, 100.0, 100.0])
    watch = RingWatch(cast(Any, None), clock=lambda: next(now))
    loads = watch._of("r").loads
    loads.add(Seen(80.0, 0, 0.0))
    loads.add(Seen(100.0, 10, 10.0, tuples=100, read_s=2.0, run_s=8.0))
    ring = cast(Any, SimpleNamespace(id="r", active=True))
    return watch.facts(ring, "x", slots, tasks=2, settle_s=30.0, idle_s=0.0, portable=True)


@pytest.mark.parametrize("slots", [9, range(9)])
def test_one_more_query_costs_as_much_as_one_of_many(slots: Any) -> None:
    ring = facts(slots)
    assert ring.capacity == pytest.approx(0.5)
    assert expected_cost("x", [ring]) == pytest.approx(0.05)
    assert place(QueryFacts("x", expected_cost("x", [ring])), [ring], Limits()) == Share("r")


def test_one_that_is_as_large_as_all_others_needs_room_for_it() -> None:
    ring = facts(1)
    assert expected_cost("x", [ring]) == pytest.approx(0.45)
    assert place(QueryFacts("x", 0.45), [ring], Limits()) != Share("r")


def test_queries_that_come_in_a_burst_count_as_those_that_were_measured() -> None:
    clock = Clock()
    watch = RingWatch(cast(Any, SimpleNamespace(spent=None, backlog=None)), clock=clock)
    dispatcher = SimpleNamespace(batches=0)
    ring = cast(Any, SimpleNamespace(id="r", active=True, parts=(), dispatcher=dispatcher))
    for clock.now_s in range(100):
        watch.look(ring, 10)
    watch._of("r").loads.seen.clear()
    watch._of("r").loads.add(Seen(80.0, 0, 0.0))
    watch._of("r").loads.add(Seen(100.0, 10, 4.0, tuples=100, read_s=4.0, run_s=4.0))
    placed = 10
    while True:
        found = watch.facts(ring, "x", placed, 2, settle_s=30.0, idle_s=0.0, portable=True)
        cost = expected_cost("x", [found])
        assert cost == pytest.approx(0.01)
        if place(QueryFacts("x", cost), [found], Limits()) != Share("r"):
            break
        placed += 1
    assert placed in (69, 70)  # beside the tenth that reading takes
    few = watch.facts(ring, "x", 5, 2, settle_s=30.0, idle_s=0.0, portable=True)
    assert few.capacity == pytest.approx(0.2)  # that others went is not seen yet


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s
