from itertools import combinations

import numpy as np
import pytest

from penstock.bench.select.experiments import made_queries
from penstock.bench.select.orders import admits
from penstock.bench.select.queries import (
    CENSUS,
    DROPPING,
    ORDERS,
    Predicate,
    Query,
    Shape,
    slots,
    where,
)
from penstock.plan.specs import Interval


def minimum_covers(queries: list[Query]) -> list[tuple[str, ...]]:
    uses = [{predicate.attribute for predicate in query} for query in queries]
    names = sorted(set().union(*uses))
    for size in range(1, len(names) + 1):
        if found := [
            c for c in combinations(names, size) if all(not u.isdisjoint(c) for u in uses)
        ]:
            return found
    raise AssertionError("all attributes are a cover")


@pytest.mark.parametrize("shape", [ORDERS, CENSUS, DROPPING])
def test_a_query_set_has_the_numbers_that_the_paper_states(shape: Shape) -> None:
    queries = made_queries(shape, seed=0)
    covers = minimum_covers(queries)
    assert len(queries) == shape.queries
    assert len({p.attribute for query in queries for p in query}) == shape.attributes
    assert sum(p.comparisons for query in queries for p in query) == shape.predicates
    assert (len(covers), len(covers[0])) == (shape.covers, shape.cover)


def test_a_query_set_is_the_same_for_the_same_seed_only() -> None:
    assert made_queries(ORDERS, 3) == made_queries(ORDERS, 3)
    assert made_queries(ORDERS, 3) != made_queries(ORDERS, 4)


def test_no_predicate_admits_all_values_or_none() -> None:
    values = np.arange(100)
    for query in made_queries(DROPPING, 1):
        for predicate in query:
            assert 0 < admits(predicate, values).sum() <= 30


@pytest.mark.parametrize(
    ("predicate", "text", "comparisons", "interval"),
    [
        (Predicate("a", 3, 3), "a = 3", 1, Interval(3, True, 3, True)),
        (Predicate("a", 3, None), "a >= 3", 1, Interval(3, True, None, False)),
        (Predicate("a", None, 9), "a <= 9", 1, Interval(None, False, 9, True)),
        (Predicate("a", 3, 9), "a BETWEEN 3 AND 9", 2, Interval(3, True, 9, True)),
    ],
)
def test_a_predicate_is_a_text_and_an_interval(predicate, text, comparisons, interval) -> None:
    assert predicate.text == text
    assert predicate.comparisons == comparisons
    assert predicate.values.intervals == (interval,)
    assert not predicate.values.null


def test_a_query_is_a_conjunction() -> None:
    query = (Predicate("a", 3, 3), Predicate("b", None, 9))
    (slot,) = slots([query])
    assert where(query) == "a = 3 AND b <= 9"
    assert [name for name, _ in slot.terms[0].sets] == ["a", "b"]
