"""What is remembered of the delays, and the realised drop ratio."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.profile import (
    LONG,
    MEDIUM,
    RECENT_TUPLES,
    SHORT,
    Profile,
    Tally,
)
from penstock.kernels.delays import DelayFacts
from penstock.kernels.jit import Ints
from penstock.kernels.sketch import BUCKETS, EDGES, bucket_of

SECOND = 1_000_000
RATIO = 0.01


def facts_of(*delays_us: int, count: int = 1) -> DelayFacts:
    """Facts of `count` tuples with each of these delays."""
    delays: Ints = np.zeros(BUCKETS, np.int64)
    for delay in delays_us:
        delays[bucket_of(delay)] += count
    return DelayFacts(rows=len(delays_us) * count, delays=delays)


def profile_of(*delays_us: int, count: int, times: int = 1) -> Profile:
    profile = Profile(RATIO)
    for _ in range(times):
        profile.observe(facts_of(*delays_us, count=count))
    return profile


# the tally


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 9_000), st.floats(0, 1)), max_size=60))
def test_the_recent_ratio_is_that_of_the_last_tuples(epochs: list[tuple[int, float]]) -> None:
    counts = [(rows, int(rows * share)) for rows, share in epochs]
    tally, block = Tally(), RECENT_TUPLES // 50 + 9_000
    for rows, below in counts:
        tally.count(rows, below)
    assert (tally.rows, tally.below) == tuple(map(sum, zip((0, 0), *counts, strict=True)))
    candidates, seen, late = [], 0, 0
    for rows, below in reversed(counts):
        seen, late = seen + rows, late + below
        if RECENT_TUPLES <= seen <= RECENT_TUPLES + block or seen == tally.rows <= RECENT_TUPLES:
            candidates.append(late / seen if seen else None)
    assert tally.recent_ratio in (candidates or [None])


def test_a_tally_of_nothing_has_no_ratio() -> None:
    tally = Tally()
    tally.count(0, 0)
    assert tally.ratio is None
    assert tally.recent_ratio is None


def test_the_tally_forgets_in_blocks_but_not_in_all() -> None:
    tally = Tally()
    tally.count(1_000_000, 500_000)
    assert tally.recent_ratio == 0.5
    for _ in range(1_000):
        tally.count(100, 0)
    assert tally.recent_ratio == 0.0
    assert tally.ratio == 500_000 / 1_100_000
    assert len(tally.blocks) <= 51


# the profile


def test_each_sketch_remembers_its_number_of_expected_losses() -> None:
    profile = profile_of(SECOND, count=100, times=5_000)
    for sketch, losses in ((profile.long, LONG), (profile.medium, MEDIUM), (profile.short, SHORT)):
        assert sketch.sum() == pytest.approx(losses / RATIO, rel=0.11)
    assert profile.seen == 500_000


def test_a_young_profile_forgets_its_beginning() -> None:
    profile = profile_of(10 * SECOND, count=100, times=10)
    for _ in range(90):
        profile.observe(facts_of(SECOND, count=100))
    old = profile.long[bucket_of(10 * SECOND)]
    assert old < 0.05 * profile.long.sum()  # of the tuples it was a tenth


@given(st.lists(st.lists(st.integers(0, 2**50), max_size=5), max_size=30))
def test_a_sketch_is_a_sum_of_tuples_that_fade(epochs: list[list[int]]) -> None:
    profile, expected, seen = Profile(RATIO), np.zeros(BUCKETS), 0
    for i, delays in enumerate(epochs):
        profile.observe(facts_of(*delays))
        seen += len(delays)
        later = sum(map(len, epochs[i + 1 :]))
        for delay in delays:
            expected[bucket_of(delay)] += math.exp(-later / (MEDIUM / RATIO))
    np.testing.assert_allclose(profile.medium, expected)
    assert profile.seen == seen


def test_the_largest_delay_is_recent_for_about_five_expected_losses() -> None:
    profile = profile_of(60 * SECOND, SECOND, count=1)
    bucket = bucket_of(60 * SECOND)
    assert profile.recent_max() == EDGES[bucket + 1]
    profile.observe(facts_of(SECOND, count=400))
    assert profile.recent_max() == EDGES[bucket + 1]
    profile.observe(facts_of(SECOND, count=100))
    assert profile.recent_max() == EDGES[bucket_of(SECOND) + 1]
    assert Profile(RATIO).recent_max() == 0.0


def test_a_change_is_told_from_accident() -> None:
    profile = profile_of(SECOND, count=99, times=100)
    assert profile.differs(2 * SECOND, 0.0, RATIO, 2.8) == -1  # none exceeds it
    assert profile.differs(0.5 * SECOND, 0.0, RATIO, 2.8) == 1  # all exceed it
    some = Profile(RATIO)
    for _ in range(100):
        some.observe(facts_of(*[SECOND] * 99, 10 * SECOND))
    assert some.differs(5 * SECOND, 0.0, RATIO, 2.8) == 0
    assert not some.surges(5 * SECOND, 0.0, RATIO, 4.0)


def test_a_surge_is_seen_within_few_tuples_and_passes() -> None:
    profile = profile_of(SECOND, count=100, times=100)
    profile.observe(facts_of(30 * SECOND, count=5))
    assert not profile.surges(5 * SECOND, 0.0, RATIO, 4.0)
    profile.observe(facts_of(30 * SECOND, count=20))
    assert profile.surges(5 * SECOND, 0.0, RATIO, 4.0)
    profile.observe(facts_of(SECOND, count=1_000))
    assert not profile.surges(5 * SECOND, 0.0, RATIO, 4.0)


def test_a_faded_tuple_leaves_its_bucket_empty() -> None:
    profile = profile_of(60 * SECOND, count=1)
    profile.observe(facts_of(SECOND, count=int(10 * SHORT / RATIO)))
    assert np.flatnonzero(profile.short).tolist() == [bucket_of(SECOND)]
    assert profile.medium[bucket_of(60 * SECOND)] > 0


def test_forgetting_leaves_what_the_medium_sketch_remembers() -> None:
    profile = profile_of(SECOND, count=100, times=1_000)
    before = profile.medium.copy()
    profile.forget()
    assert (profile.long == before).all()
    profile.observe(facts_of(SECOND))
    assert profile.long is not profile.medium


@given(st.lists(st.lists(st.integers(0, 2**50), max_size=5), max_size=30))
def test_a_profile_goes_on_from_its_state(epochs: list[list[int]]) -> None:
    profile, other = Profile(RATIO), Profile(RATIO)
    for delays in epochs:
        profile.observe(facts_of(*delays))
    other.restore(json.loads(json.dumps(profile.state())))
    assert other.seen == profile.seen
    for name in ("long", "medium", "short"):
        assert (getattr(other, name) == getattr(profile, name)).all()
    other.observe(facts_of(SECOND))
    profile.observe(facts_of(SECOND))
    assert other.state() == profile.state()
