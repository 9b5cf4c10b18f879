from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.select import queries
from penstock.bench.select.experiments import (
    METHODS,
    NEVER,
    adapting,
    compare_orders,
    dropping,
    made_queries,
    made_stream,
)
from penstock.bench.select.orders import (
    Stream,
    best_and_worst,
    count_visits,
    follow,
    know_usage,
    route_by_tickets,
    see_stream,
)
from penstock.bench.select.queries import ORDERS, Predicate, Query
from penstock.control.ordering import OrderRules
from penstock.kernels.selection import build_selection, select

MADE = ("D1", "D2", "D3")


def stream_of(name: str, tuples: int, seed: int = 0) -> tuple[Stream, list[Query]]:
    asked = made_queries(ORDERS, seed)
    return made_stream(name, asked, tuples, seed), asked


@given(
    name=st.sampled_from(MADE), seed=st.integers(0, 9), shuffle=st.randoms(use_true_random=False)
)
def test_visits_are_those_of_the_kernel_in_any_order(name, seed, shuffle) -> None:
    stream, asked = stream_of(name, 300, seed)
    order = list(stream.names)
    shuffle.shuffle(order)
    selection = build_selection(queries.slots(asked), queries.types(stream.names), order)
    assert select(selection, stream.batch(), together=1).visits == count_visits(stream, order)


@pytest.mark.parametrize("name", MADE)
def test_macssas_is_near_the_best_random_order_and_ahead_of_tickets(name: str) -> None:
    stream, asked = stream_of(name, 50_000)
    costs, same = compare_orders(stream, asked, orders=300, seed=0)
    assert same
    assert costs["macssas"].visits <= 1.1 * costs["best"].visits
    assert costs["macssas"].visits < costs["ticket, by queries"].visits < costs["ticket"].visits
    assert costs["best"].visits < costs["worst"].visits < costs["delayed"].visits


@pytest.fixture
def three() -> Stream:
    """Attribute c ends nearly every query, b some, a none."""
    random = np.random.default_rng(1)
    asked: list[Query] = [
        (Predicate("a", 0, None), Predicate("b", None, 4), Predicate("c", number, number))
        for number in range(3)
    ]
    return see_stream(["a", "unused", "b", "c"], random.integers(0, 10, (4, 4000)), asked)


def test_attributes_that_no_query_uses_are_left_out(three: Stream) -> None:
    assert three.names == ("a", "b", "c")
    assert three.usage == {frozenset("abc"): 3}


def test_the_best_and_the_worst_order_are_those_of_all(three: Stream) -> None:
    by_cost = sorted(permutations("abc"), key=lambda order: count_visits(three, order))
    best, worst = best_and_worst(three, orders=100, seed=0)
    assert count_visits(three, best) == count_visits(three, by_cost[0])
    assert count_visits(three, worst) == count_visits(three, by_cost[-1])
    assert best[0] == "c"


def test_an_order_that_adapts_finds_the_attribute_that_ends_most_queries(three: Stream) -> None:
    ordering = know_usage(three, OrderRules("sas", period=500))
    visits = follow(three, ordering, 500)
    assert ordering.order[0] == "c"
    assert visits.size == 8
    assert visits[-1] < visits[0]


def test_tickets_go_to_the_attribute_that_ends_most_queries(three: Stream) -> None:
    at_random = np.mean([count_visits(three, order) for order in permutations("abc")])
    for by_queries in (False, True):
        visits = route_by_tickets(three, by_queries, seed=0)
        assert visits == route_by_tickets(three, by_queries, seed=0)
        assert count_visits(three, ("c", "b", "a")) < visits < at_random


@pytest.mark.parametrize("method", METHODS)
def test_a_replay_is_the_same_every_time(method) -> None:
    stream, _ = stream_of("D3", 5000)
    replays = [follow(stream, know_usage(stream, OrderRules(method, 500)), 500) for _ in range(2)]
    assert np.array_equal(*replays)


def test_dropping_at_once_saves_more_with_more_attributes() -> None:
    few, many = (dropping(attributes, 20_000, seed=0) for attributes in (4, 20))
    assert 1 < float(few["delayed_vs_immediate"]) < float(many["delayed_vs_immediate"])


def test_the_cost_comes_back_after_a_change_if_the_order_may_change() -> None:
    rows, series = adapting("D3 repeated", (0.05, NEVER), 40_000, 3200, 100, seeds=2)
    adaptive, fixed = rows
    assert float(adaptive["changed_vs_best"]) > float(adaptive["settled_vs_best"]) + 0.05
    assert float(adaptive["settled_vs_best"]) < float(fixed["settled_vs_best"]) - 0.05
    assert float(adaptive["reorders"]) > float(fixed["reorders"]) == 1
    assert [row["tuples"] for row in series[:2]] == [800, 1600]
    assert len(series) == 4 * 50
