"""The sketch of delays: buckets against the kernel that fills them, answers against their twins."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import reference

from penstock.kernels.delays import disorder_facts
from penstock.kernels.jit import Doubles
from penstock.kernels.sketch import (
    BUCKETS,
    EDGES,
    LAST_BIT,
    bucket_of,
    delay_for,
    dense,
    mean_wait,
    quantiles,
    share_above,
    sparse,
)

ROUNDING = 1e-9

Counts = dict[int, float]

counts = st.dictionaries(st.integers(0, BUCKETS - 1), st.floats(0.01, 1000), min_size=1, max_size=5)
ratios = st.floats(0.0001, 0.9)
spreads = st.just(0.0) | st.floats(1, 1e10)


def weights_of(found: Counts) -> Doubles:
    return dense([[bucket, weight] for bucket, weight in found.items()])


def by_edges(found: Counts) -> dict[tuple[float, float], float]:
    return {(EDGES[i], EDGES[i + 1]): weight for i, weight in found.items()}


def kernel_bucket(delay_us: int) -> int:
    clock = 2**62
    facts = disorder_facts(
        np.array([clock - delay_us]), np.array([True]), None, clock, 2**63 - 1, 0
    )
    return int(np.flatnonzero(facts.delays)[0])


def test_edges_grow_by_at_most_a_64th_from_a_millisecond_to_two_years() -> None:
    assert EDGES.size == BUCKETS + 1
    assert (EDGES[0], EDGES[1], EDGES[-1]) == (0, 1024, 2**46)
    lower, upper = EDGES[1:-1], EDGES[2:]
    assert (upper > lower).all()
    assert (upper - lower <= lower / 64).all()


def test_the_kernel_and_the_edges_agree_around_every_edge_and_power_of_two() -> None:
    marks = {int(edge) for edge in EDGES} | {2**bit for bit in range(63)}
    for delay in sorted({mark + off for mark in marks for off in (-1, 0, 1)}):
        if 0 <= delay <= 2**62:
            bucket = kernel_bucket(delay)
            assert bucket == bucket_of(delay), delay
            assert EDGES[bucket] <= delay < EDGES[bucket + 1] or delay >= 2**LAST_BIT


@given(st.integers(0, 2**62))
def test_the_kernel_and_the_edges_agree_anywhere(delay: int) -> None:
    assert kernel_bucket(delay) == bucket_of(delay)


@settings(max_examples=60)
@given(counts, st.integers(0, 4), st.floats(-1, 1), spreads)
def test_shares_agree_with_their_twin(
    found: Counts, which: int, part: float, spread: float
) -> None:
    bucket = sorted(found)[which % len(found)]
    delay = max(EDGES[bucket] + part * (EDGES[bucket + 1] - EDGES[bucket]), 0.0)
    expected = float(reference.mean_share_above(by_edges(found), delay, spread))
    # an integral of up to 2^46 is exact to about 0.01 us
    tolerance = ROUNDING + (0.1 / spread if spread else 0)
    assert share_above(weights_of(found), delay, spread) == pytest.approx(expected, abs=tolerance)


@settings(max_examples=60)
@given(counts, ratios, spreads)
def test_delays_agree_with_their_twin(found: Counts, ratio: float, spread: float) -> None:
    expected = reference.delay_for(by_edges(found), ratio, spread)
    bucket = bucket_of(expected)
    # within a bucket the mean over a spread is taken as a straight line
    tolerance = EDGES[bucket + 1] - EDGES[bucket] if spread else expected * 1e-6 + 0.01
    answer = delay_for(weights_of(found), ratio, spread)
    assert answer == pytest.approx(expected, abs=tolerance)


@given(counts, ratios, ratios, spreads)
def test_a_larger_ratio_never_needs_a_longer_delay(
    found: Counts, one: float, other: float, spread: float
) -> None:
    weights, (less, more) = weights_of(found), sorted((one, other))
    assert delay_for(weights, less, spread) >= delay_for(weights, more, spread) * (1 - ROUNDING)


@given(counts, ratios)
def test_the_share_above_the_delay_for_a_ratio_is_the_ratio(found: Counts, ratio: float) -> None:
    weights = weights_of(found)
    answer = delay_for(weights, ratio, 0.0)
    assert share_above(weights, answer) == pytest.approx(ratio, abs=1e-6)


@given(counts, ratios, spreads, spreads)
def test_a_punctuation_that_stands_longer_never_needs_more_delay(
    found: Counts, ratio: float, one: float, other: float
) -> None:
    weights, (less, more) = weights_of(found), sorted((one, other))
    answer = delay_for(weights, ratio, less)
    width = EDGES[bucket_of(answer) + 1] - EDGES[bucket_of(answer)]
    assert delay_for(weights, ratio, more) <= answer + 2 * width


def test_without_tuples_every_answer_is_zero() -> None:
    nothing = np.zeros(BUCKETS)
    assert delay_for(nothing, 0.01, 0.0) == delay_for(nothing, 0.01, 1e9) == 0.0
    assert share_above(nothing, 5.0) == share_above(nothing, 5.0, 1e6) == 0.0
    assert quantiles(nothing, (0.5, 0.99)) == [0.0, 0.0]
    assert mean_wait(nothing, 1e6) == 0.0


@pytest.mark.parametrize("bucket", [0, 1, 64, 1000, BUCKETS - 1])
def test_tuples_of_one_bucket_count_as_evenly_spread(bucket: int) -> None:
    weights = weights_of({bucket: 8.0})
    low, high = EDGES[bucket], EDGES[bucket + 1]
    for ratio in (0.01, 0.25, 0.5):
        assert delay_for(weights, ratio, 0.0) == pytest.approx(high - ratio * (high - low))
    assert share_above(weights, low) == 1.0
    assert share_above(weights, high) == 0.0
    assert delay_for(weights, 0.0, 0.0) == high


def test_a_stream_without_delays_waits_for_no_more_than_spark_can_resolve() -> None:
    assert delay_for(weights_of({0: 1e6}), 0.0001, 0.0) <= 1024


def test_a_spread_beyond_all_delays_counts_as_no_tuples() -> None:
    weights = weights_of({bucket_of(1_000_000): 100.0})
    assert share_above(weights, 0.0, 4_000_000) == pytest.approx(0.25, rel=0.02)
    assert delay_for(weights, 0.25, 4_000_000) == pytest.approx(0.0, abs=20_000)
    assert delay_for(weights, 0.3, 4_000_000) == 0.0


@given(counts)
def test_quantiles_rise_with_their_share(found: Counts) -> None:
    answers = quantiles(weights_of(found), (0.0, 0.1, 0.5, 0.9, 0.99, 1.0))
    assert all(a <= b for a, b in pairwise(answers))
    assert answers[-1] == EDGES[max(found) + 1]


@given(counts, st.floats(0, 2.0**47))
def test_the_mean_wait_is_that_of_tuples_in_the_middle_of_their_buckets(
    found: Counts, lag: float
) -> None:
    waits = [max(lag - (EDGES[i] + EDGES[i + 1]) / 2, 0) * n for i, n in found.items()]
    expected = sum(waits) / sum(found.values())
    assert mean_wait(weights_of(found), lag) == pytest.approx(expected)


@given(counts)
def test_sparse_pairs_make_the_same_sketch_again(found: Counts) -> None:
    weights = weights_of(found)
    pairs = json.loads(json.dumps(sparse(weights)))
    assert len(pairs) == len(found)
    assert (dense(pairs) == weights).all()
