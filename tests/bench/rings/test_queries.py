"""Queries of the rings benchmark: one shape is one composition, however it is written."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bench.rings.queries import Shape, composed, draw_shape, text_of
from penstock.bench.rings.threads import draw_workload, graph_of, is_valid, threads_of
from penstock.control.rings import Limits
from penstock.control.scheduling import Rots, State

SEEDS = st.integers(0, 2**32)


@settings(max_examples=60)
@given(SEEDS)
def test_all_texts_of_a_shape_are_of_one_composition(seed: int) -> None:
    rng = random.Random(seed)
    shape = draw_shape(rng)
    texts = [text_of(shape, rng) for _ in range(4)]
    queries = [composed(text) for text in texts]
    assert len({query.composition for query in queries}) == 1, texts
    assert all(len(query.columns) >= len(shape.results) for query in queries)


@settings(max_examples=60)
@given(SEEDS)
def test_operators_are_the_same_exactly_where_the_composition_is(seed: int) -> None:
    rng = random.Random(seed)
    shape, other = draw_shape(rng), draw_shape(rng)
    queries = [composed(text_of(each, rng)) for each in (shape, shape, other)]
    graphs = [graph_of(0, query) for query in queries]
    assert graphs[0] == graphs[1]
    same = queries[0].composition == queries[2].composition
    assert (graphs[0] == graphs[2]) == same


def test_shapes_are_of_all_kinds() -> None:
    rng = random.Random(1)
    shapes = [draw_shape(rng) for _ in range(200)]
    kinds = {(len(shape.streams), shape.aggregated) for shape in shapes}
    assert kinds == {(n, aggregated) for n in (1, 2, 3) for aggregated in (False, True)}


def test_texts_of_a_shape_differ_in_words() -> None:
    rng = random.Random(1)
    shape = Shape(("Doors", "Calls"), ("0.x", "1.y * 1.z"))
    assert len({text_of(shape, rng) for _ in range(20)}) == 20


def test_a_query_that_is_nowhere_or_a_ring_that_is_too_full_is_seen() -> None:
    workload = draw_workload(20, 2, seed=3)
    limits = Limits(minimum=8, maximum=80)
    state = threads_of(Rots(limits), workload.similar)
    assert is_valid(state, workload.similar, limits)
    assert not is_valid(state, workload.similar[1:], limits)
    assert not is_valid(state, workload.similar, Limits(minimum=8, maximum=9))
    assert not is_valid(State(state.threads, {}), workload.similar, limits)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_the_queries_is_similar(share: float) -> None:
    workload = draw_workload(10, 2, seed=0)
    mixed = workload.mixed(share)
    assert [query.id for query in mixed] == list(range(10))
    assert sum(query in workload.similar for query in mixed) == round(10 * share)
