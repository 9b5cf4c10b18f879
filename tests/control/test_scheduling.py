"""Threads by the paper's rules: two queries as in its figures, a thousand as in its experiment."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.rings import Limits
from penstock.control.scheduling import (
    Gts,
    Hmts,
    Operator,
    Ots,
    Policy,
    QueryGraph,
    Rots,
    State,
    segments,
)

LIMITS = Limits(minimum=4, maximum=20)
POLICIES: list[Policy] = [Ots(), Gts(), Hmts(LIMITS), Rots(LIMITS)]


def query(id_: int, *does: str, cost: float = 1) -> QueryGraph:
    return QueryGraph(id_, tuple(Operator(word, cost) for word in does))


def placed(policy: Policy, queries: list[QueryGraph], state: State | None = None) -> State:
    state = state or State()
    for each in queries:
        state = state.with_query(policy.place(each, state))
    return state


@pytest.mark.parametrize(
    ("policy", "threads"), [(Ots(), 6), (Gts(), 1), (Hmts(LIMITS), 2), (Rots(LIMITS), 2)]
)
def test_threads_of_one_query(policy: Policy, threads: int) -> None:
    assert len(placed(policy, [query(1, *"abcdef")]).threads) == threads


def test_a_ring_of_the_same_operators_is_shared_and_others_are_not() -> None:
    """Figure 3: the ring is not registered yet (1), it is (2)."""
    first = query(1, "get", "select", "project")
    same = query(2, "get", "select", "project")
    other = query(3, "get", "project", "select")
    state = placed(Rots(LIMITS), [first, same])
    assert state.queries == {1: ("t0",), 2: ("t0",)}
    assert (state.threads["t0"].capacity, state.made) == (6, 1)
    assert placed(Rots(LIMITS), [other], state).queries[3] == ("t1",)


def test_a_ring_above_the_maximum_is_not_shared() -> None:
    state = placed(Rots(LIMITS), [query(n, *"abcd") for n in range(6)])  # capacity 4 each, 20 fit
    assert [len(t.slots) for t in state.threads.values()] == [5, 1]


def test_a_ring_outlives_its_queries_and_is_reused() -> None:
    for policy, kept, made in ((Rots(LIMITS), 1, 1), (Hmts(LIMITS), 0, 2)):
        state = placed(policy, [query(1, *"abc")])
        state = state.without_query(1, policy.keeps_threads)
        assert (len(state.threads), state.queries) == (kept, {})
        assert placed(policy, [query(2, *"abc")], state).made == made


@given(st.lists(st.floats(0.1, 9), min_size=1), st.floats(0.5, 9))
def test_segments_are_the_longest_within_the_threshold(costs, minimum) -> None:
    operators = [Operator(str(n), cost) for n, cost in enumerate(costs)]
    cut = segments(operators, minimum)
    assert [o for segment in cut for o in segment] == operators
    for segment, following in pairwise(cut):
        cost = sum(o.cost for o in segment)
        assert len(segment) == 1 or cost <= minimum
        assert cost + following[0].cost > minimum


@pytest.mark.parametrize("similar", [0, 250, 500, 750, 1000])
def test_a_thousand_queries_need_fewer_rings_the_more_of_them_are_alike(similar: int) -> None:
    alike = [query(n, *"abcdef") for n in range(similar)]
    others = [query(n, *(f"{word}{n}" for word in "abcdef")) for n in range(similar, 1000)]
    threads = [len(placed(policy, alike + others).threads) for policy in POLICIES]
    # two virtual operators each, of 4 and 2: 5 and 10 of them fit into a ring of 20
    rings = similar // 5 + similar // 10 + 2 * (1000 - similar)
    assert threads == [6000, 1000, 2000, rings]


GRAPHS = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=12
)


@pytest.mark.parametrize("policy", POLICIES, ids=["ots", "gts", "hmts", "rots"])
@given(graphs=GRAPHS, data=st.data())
def test_every_query_has_all_its_operators_whoever_comes_and_goes(policy, graphs, data) -> None:
    queries = [query(n, *words, cost=1.5) for n, words in enumerate(graphs)]
    state = placed(policy, queries)
    gone = data.draw(st.sets(st.sampled_from(range(len(queries)))))
    for number in gone:
        state = state.without_query(number, policy.keeps_threads)
    for each in (q for q in queries if q.id not in gone):
        does = [state.threads[t].composition for t in state.queries[each.id]]
        assert " → ".join(does) == " → ".join(o.does for o in each.operators)
    slots = [(s.slot, t.id) for t in state.threads.values() for s in t.slots]
    assert sorted(slots) == sorted((q, t) for q, own in state.queries.items() for t in own)
    for thread in state.threads.values():
        assert thread.capacity <= LIMITS.maximum or len(thread.slots) == 1
