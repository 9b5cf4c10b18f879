import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.select.experiments import KINDS, one_attribute
from penstock.bench.select.structures import grow_tree, structures

intervals = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted)
points = st.integers(0, 30).map(lambda point: [point, point])


@given(
    predicates=st.lists(intervals, min_size=1, max_size=150)
    | st.lists(points, min_size=1, max_size=150),
    values=st.lists(st.integers(0, 31), max_size=40),
)
def test_every_structure_finds_what_testing_each_predicate_finds(predicates, values) -> None:
    low, high = np.array(predicates, np.int64).T.copy()
    tuples = np.array(values, np.int64)
    expected = (low <= tuples[:, None]) & (tuples[:, None] <= high)
    for name, match in structures(low, high).items():
        bits = np.unpackbits(match(tuples).view(np.uint8), axis=1, bitorder="little")
        assert np.array_equal(bits[:, : low.size], expected), name
        assert not bits[:, low.size :].any(), name


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_tree_is_as_shallow_as_a_red_black_tree_must_be(shuffled: bool) -> None:
    low = np.arange(1000)
    if shuffled:
        np.random.default_rng(0).shuffle(low)
    left, right, _, root = grow_tree(low, low)

    def depth(node: int) -> int:
        return 0 if node == 1000 else 1 + max(depth(left[node]), depth(right[node]))

    def in_order(node: int) -> list[int]:
        return [] if node == 1000 else [*in_order(left[node]), low[node], *in_order(right[node])]

    assert in_order(root) == list(range(1000))
    assert depth(root) <= 2 * math.log2(1001)


@pytest.mark.parametrize("kind", KINDS)
def test_structures_and_our_kernel_agree_in_the_experiment(kind: str) -> None:
    row, same = one_attribute(kind, predicates=70, tuples=3000, seed=1)
    assert same
    assert all(float(row[name]) > 0 for name in ("asc", "grouped filter", "select"))
