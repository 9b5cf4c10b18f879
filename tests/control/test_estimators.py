"""Estimators: the worked numbers of their papers, the promise, and states that go on the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, fmean, pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.estimators import (
    Estimator,
    FixedTime,
    FixedTuples,
    Max,
    Normal,
    Quantile,
    buffer_size,
)
from penstock.control.profile import Profile
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import UNKNOWN_US, DelayFacts, disorder_facts
from penstock.kernels.jit import Ints
from penstock.kernels.sketch import delay_for

SECOND = 1_000_000
GAP = 10_000  # between two tuples of a generated stream
TRUST = 10**15
NEWEST = 10

MAKERS: dict[str, Callable[[], Estimator]] = {
    "fixed": lambda: FixedTime(3 * SECOND),
    "fixed tuples": lambda: FixedTuples(NEWEST - 1),
    "max": Max,
    "normal": lambda: Normal(0.01),
    "quantile": lambda: Quantile(0.01, Profile(0.01)),
}
every_estimator = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@dataclass
class Run:
    """An estimator on a stream: after each step what was lost in it, reached, and the lag."""

    estimator: Estimator
    clock_us: int = UNKNOWN_US
    punctuation_us: int = NEVER_US
    lost: list[int] = field(default_factory=list)
    reached: list[int | None] = field(default_factory=list)
    surging: list[bool] = field(default_factory=list)

    def step(self, event_us: Sequence[int] | Ints, arrival_us: Sequence[int] | Ints) -> None:
        event, arrival = np.array(event_us, np.int64), np.array(arrival_us, np.int64)
        valid = np.ones(event.size, np.bool_)
        facts = disorder_facts(
            event, valid, arrival, self.clock_us, TRUST, self.punctuation_us, NEWEST
        )
        self.clock_us = facts.clock_us
        self.estimator.observe(facts, facts.measured, facts.below)
        reached = self.estimator.reach(self.clock_us)
        if reached is not None:
            self.punctuation_us = max(self.punctuation_us, reached)
        self.lost.append(facts.below)
        self.reached.append(reached)
        self.surging.append(getattr(self.estimator, "surging", False))

    def steps(self, event_us: Ints, arrival_us: Ints, size: int) -> Run:
        for i in range(0, event_us.size, size):
            self.step(event_us[i : i + size], arrival_us[i : i + size])
        return self


def one_by_one(estimator: Estimator, tuples: Iterable[tuple[int, int]]) -> Run:
    run = Run(estimator)
    for event_us, arrival_us in tuples:
        run.step([event_us], [arrival_us])
    return run


def delayed(delays_us: Ints, gap_us: int = GAP) -> tuple[Ints, Ints]:
    """Tuples generated evenly, in the order in which they arrive."""
    event_us = np.arange(delays_us.size) * gap_us
    return by_arrival(event_us, event_us + delays_us.astype(np.int64))


def by_arrival(event_us: Ints, arrival_us: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(arrival_us, kind="stable")
    return event_us[order], arrival_us[order]


def exponential(seconds: float, count: int, seed: int = 1) -> Ints:
    return np.random.default_rng(seed).exponential(seconds * SECOND, count).astype(np.int64)


def quantile(ratio: float = 0.01) -> Quantile:
    return Quantile(ratio, Profile(ratio))


# fixed and max


@pytest.mark.parametrize(
    ("arrivals", "lost"),
    [
        ((2, 1, 4, 5, 3, 6), [3]),
        ((2, 4, 1, 5, 3, 6), [1, 3]),
        ((4, 5, 1, 2, 3, 6), [1, 2, 3]),
    ],
)
def test_a_slack_of_one_tuple_loses_what_aurora_loses(
    arrivals: tuple[int, ...], lost: list[int]
) -> None:
    run = one_by_one(FixedTuples(1), zip(arrivals, range(1, 7), strict=True))
    assert [t for t, below in zip(arrivals, run.lost, strict=True) if below] == lost


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, NEWEST - 1), st.integers(1, 5))
def test_all_but_the_slack_of_tuples_is_complete(events: list[int], slack: int, size: int) -> None:
    run = Run(FixedTuples(slack)).steps(np.array(events), np.arange(len(events)), size)
    for i, reached in enumerate(run.reached):
        seen = sorted(events[: (i + 1) * size], reverse=True)
        assert reached == (seen[slack] if len(seen) > slack else None)


def test_a_fixed_slack_stays_behind_the_latest_event_time_whatever_the_clock() -> None:
    run = one_by_one(FixedTime(3), [(10, 50), (12, 51), (7, 99)])
    assert run.reached == [7, 9, 9]
    assert run.estimator.reach(10**6) == 9


def test_max_follows_the_largest_delay_as_in_stream() -> None:
    estimator, found = Max(2), []
    run = Run(estimator, clock_us=3)
    for event_us, arrival_us in [(3, 4), (3, 5), (4, 5), (2, 6), (5, 7), (6, 8)]:
        run.step([event_us], [arrival_us])
        found.append(estimator.delay_us)
    assert found == [2, 2, 2, 4, 4, 4]
    assert run.reached == [2, 3, 3, 2, 3, 4]
    assert run.lost == [0, 0, 0, 1, 0, 0]


@every_estimator
def test_nothing_is_known_before_the_first_tuple(make: Callable[[], Estimator]) -> None:
    estimator = make()
    assert estimator.reach(5 * SECOND) is None
    estimator.observe(DelayFacts(), 0, 0)
    assert estimator.reach(5 * SECOND) is None


# normal


def overtaking(n: float, sigma: float, theta: float) -> float:
    """Pr(τ_{n+1} < τ_1) of the paper."""
    return NormalDist().cdf(-n * theta / math.sqrt(2 * sigma**2 + n * theta**2))


def test_the_buffer_of_the_papers_example() -> None:
    assert buffer_size(0.01, 1.0, 1 / 1000) == 3292


@given(st.floats(0.0001, 0.4), st.floats(0, 1e7), st.floats(1, 1e6))
def test_the_buffer_is_the_largest_that_may_still_be_overtaken(
    ratio: float, sigma: float, theta: float
) -> None:
    n = buffer_size(ratio, sigma, theta)
    assert overtaking(n + 1, sigma, theta) <= ratio * (1 + 1e-6)
    if n > 0:
        assert overtaking(n, sigma, theta) >= ratio * (1 - 1e-6)


@given(
    st.lists(
        st.tuples(st.integers(1, 2_000_000), st.integers(0, 5_000_000)), min_size=31, max_size=90
    ),
    st.sampled_from([0.01, 0.2]),
)
def test_incremental_moments_are_those_of_the_last_tuples(
    tuples: list[tuple[int, int]], ratio: float
) -> None:
    estimator = Normal(ratio)
    run = Run(estimator, clock_us=0)
    last: list[tuple[int, int, int]] = []  # clock before, clock, delay
    clock = 0
    for gap, delay in tuples:
        run.step([clock + gap - delay], [clock + gap])
        last.append((clock, clock + gap, delay))
        clock += gap
        last = last[-max(sequence_length(last, ratio), 30) :]
        mean, sigma, theta = moments(last)
        assert estimator.rows == len(last)
        assert estimator.mean_us == pytest.approx(mean)
        assert estimator.sigma_us == pytest.approx(sigma, abs=0.1)
        assert estimator.interval_us == pytest.approx(theta)
        if len(last) < 30:
            assert run.reached[-1] is None
        else:
            expected = clock - mean - sequence_length(last, ratio) * theta
            assert run.reached[-1] == pytest.approx(expected, abs=2)


def moments(last: list[tuple[int, int, int]]) -> tuple[float, float, float]:
    delays = [delay for _, _, delay in last]
    return fmean(delays), pstdev(delays), (last[-1][1] - last[0][0]) / len(last)


def sequence_length(last: list[tuple[int, int, int]], ratio: float) -> int:
    _, sigma, theta = moments(last)
    return buffer_size(ratio, sigma, theta)


def test_normal_waits_as_its_formula_says_where_all_tuples_come_at_once() -> None:
    delays = np.random.default_rng(3).normal(20 * SECOND, SECOND, 1000).astype(np.int64)
    now = 100 * SECOND
    at_once, spread_out = Run(Normal(0.01)), Run(Normal(0.01))
    at_once.step(now - delays, np.full(1000, now))
    arrival = now + np.arange(1000)
    spread_out.step(arrival - delays, arrival)
    assert at_once.reached[0] == pytest.approx(spread_out.reached[0], abs=SECOND // 20)
    assert at_once.reached[0] < now - np.quantile(delays, 0.99)


def test_normal_keeps_its_sequence_in_whole_epochs() -> None:
    estimator = Normal(0.01)
    event_us, arrival_us = delayed(exponential(1, 20_000))
    Run(estimator).steps(event_us[:19_000], arrival_us[:19_000], 100)
    assert estimator.rows == 100 * len(estimator.parts)
    assert estimator.rows == pytest.approx(estimator.size, abs=100)


def test_normal_remembers_long_sequences_in_bounded_parts() -> None:
    estimator = Normal(0.01)
    event_us, arrival_us = delayed(exponential(3, 15_000), gap_us=1_000)
    Run(estimator).steps(event_us[:12_000], arrival_us[:12_000], 1)
    assert estimator.size > estimator.most_parts >= len(estimator.parts)
    assert estimator.rows == pytest.approx(estimator.size, rel=0.02)
    assert estimator.rows == sum(part[0] for part in estimator.parts)


# quantile


@pytest.mark.parametrize("ratio", [0.01, 0.05])
@pytest.mark.parametrize("family", ["exponential", "normal", "lognormal", "bimodal"])
def test_quantile_keeps_the_promise_on_a_stationary_stream(family: str, ratio: float) -> None:
    random, count = np.random.default_rng(5), 200_000
    delays = {
        "exponential": lambda: random.exponential(1, count),
        "normal": lambda: random.normal(10, 1, count),
        "lognormal": lambda: random.lognormal(0, 1, count),
        "bimodal": lambda: np.where(random.random(count) < 0.03, 20, 1) + random.random(count),
    }[family]()
    run = Run(quantile(ratio)).steps(*delayed(delays * SECOND), 100)
    assert 0.85 * ratio <= sum(run.lost) / count <= 1.02 * ratio


def test_quantile_loses_little_while_it_learns() -> None:
    run = Run(quantile()).steps(*delayed(exponential(1, 5_000)), 50)
    assert sum(run.lost) <= 1.5 * 0.01 * 5_000


def test_credit_is_bounded_and_debt_is_paid_back() -> None:
    estimator = quantile()
    run = Run(estimator).steps(*delayed(np.zeros(100_000, np.int64)), 1_000)
    assert sum(run.lost) == 0
    for _ in range(100):
        estimator.observe(facts_with_delays(exponential(1, 1_000), run.clock_us), 1_000, 0)
    assert estimator.credit == Quantile.CREDIT
    eager = estimator.lag_us
    estimator.observe(facts_with_delays(exponential(1, 1_000), run.clock_us), 1_000, 1_000)
    assert eager is not None
    assert estimator.lag_us is not None
    assert estimator.credit < 0
    assert estimator.lag_us > eager


def facts_with_delays(delays_us: Ints, clock_us: int) -> DelayFacts:
    valid, arrival_us = np.ones(delays_us.size, np.bool_), np.full(delays_us.size, clock_us)
    return disorder_facts(clock_us - delays_us, valid, arrival_us, clock_us, TRUST, NEVER_US)


@pytest.mark.parametrize(("before", "after"), [(1, 5), (5, 1)])
def test_quantile_follows_a_step_within_some_thousand_tuples(before: float, after: float) -> None:
    delays = np.concatenate([exponential(before, 50_000), exponential(after, 50_000, 2)])
    estimator, (event_us, arrival_us) = quantile(), delayed(delays)
    run = Run(estimator).steps(event_us[:50_000], arrival_us[:50_000], 100)
    assert estimator.lag_us == pytest.approx(math.log(100) * before * SECOND, rel=0.25)
    run.steps(event_us[50_000:60_000], arrival_us[50_000:60_000], 100)
    assert estimator.lag_us == pytest.approx(math.log(100) * after * SECOND, rel=0.35)
    assert sum(run.lost[500:]) <= 0.03 * 10_000


def test_a_surge_holds_the_punctuation_back_until_it_has_passed() -> None:
    event_us = np.arange(60_000) * GAP
    arrival_us = event_us + exponential(0.2, 60_000)
    out = (arrival_us >= 300 * SECOND) & (arrival_us < 360 * SECOND)
    held = int(out.sum())
    arrival_us[out] = 360 * SECOND + np.random.default_rng(2).integers(0, 2 * SECOND, held)
    event_us, arrival_us = by_arrival(event_us, arrival_us)
    steps = arrival_us[::100]
    burst = (steps >= 360 * SECOND) & (steps < 362 * SECOND)
    run = Run(quantile()).steps(event_us, arrival_us, 100)
    lost, surging = np.array(run.lost), np.array(run.surging)
    assert surging[burst][:5].all()
    assert lost[burst].sum() < 0.03 * held  # a lag that ignores the burst loses nearly all of it
    assert not surging[-100:].any()
    assert sum(run.lost) <= 1.2 * 0.01 * event_us.size


def test_a_clock_that_leaps_is_followed_in_the_next_epoch() -> None:
    estimator = quantile()
    run = Run(estimator)
    for i in range(200):
        run.step([i * SECOND], [i * SECOND])
    assert estimator.held_us is None
    run.step([1000 * SECOND], [1000 * SECOND])
    assert estimator.held_us == (199 + Quantile.LEAP) * SECOND
    assert run.reached[-1] is not None
    assert run.reached[-1] <= estimator.held_us
    assert estimator.reach(1001 * SECOND) >= 1000 * SECOND - estimator.lag_us  # idle: goes on
    run.step([1001 * SECOND], [1001 * SECOND])
    assert estimator.held_us is None
    assert run.reached[-1] == 1001 * SECOND - int(estimator.lag_us)


def test_quantile_begins_with_the_largest_delay() -> None:
    estimator = quantile()
    run = Run(estimator)
    run.step([0, 0, 5 * SECOND], [SECOND, 3 * SECOND, 6 * SECOND])
    assert 3 * SECOND <= estimator.lag_us <= 3.1 * SECOND


@pytest.mark.parametrize(("credit", "bound"), [(-1e9, 0), (1e9, 1)])
def test_the_ratio_asked_for_stays_within_bounds(credit: float, bound: int) -> None:
    estimator = quantile()
    estimator.credit = credit
    estimator.observe(facts_with_delays(exponential(1, 2_000), 0), 0, 0)
    asked = 0.01 * Quantile.BOUNDS[bound]
    assert estimator.lag_us == delay_for(estimator.profile.long, asked, 0.0)


# all of them


@every_estimator
@settings(max_examples=20)
@given(st.data())
def test_a_decision_moves_with_the_times_it_is_made_of(
    make: Callable[[], Estimator], data: st.DataObject
) -> None:
    """So no other clock is in it."""
    delays = np.array(data.draw(st.lists(st.integers(0, 10 * SECOND), min_size=1, max_size=200)))
    shift_us = data.draw(st.integers(-(10**12), 10**12))
    event_us, arrival_us = delayed(delays)
    here = Run(make()).steps(event_us, arrival_us, 5)
    there = Run(make()).steps(event_us + shift_us, arrival_us + shift_us, 5)
    assert there.lost == here.lost
    assert there.reached == [None if r is None else r + shift_us for r in here.reached]


def copy_of(estimator: Estimator, make: Callable[[], Estimator]) -> Estimator:
    copy = make()
    if isinstance(estimator, Quantile) and isinstance(copy, Quantile):
        copy.profile.restore(json.loads(json.dumps(estimator.profile.state())))
    copy.restore(json.loads(json.dumps(estimator.state())))
    return copy


@every_estimator
@pytest.mark.parametrize("at", [0, 5, 2_000, 12_000])
def test_a_restored_estimator_decides_the_same(make: Callable[[], Estimator], at: int) -> None:
    delays = np.concatenate([exponential(1, 10_000), exponential(4, 10_000, 2)])
    event_us, arrival_us = delayed(delays)
    run = Run(make()).steps(event_us[:at], arrival_us[:at], 50)
    other = Run(copy_of(run.estimator, make), run.clock_us, run.punctuation_us)
    for one in (run, other):
        one.reached.clear()
        one.steps(event_us[at:], arrival_us[at:], 50)
    assert other.reached == run.reached


@every_estimator
def test_a_state_does_not_change_afterwards(make: Callable[[], Estimator]) -> None:
    event_us, arrival_us = delayed(exponential(1, 2_000))
    run = Run(make()).steps(event_us[:1_000], arrival_us[:1_000], 50)
    state = run.estimator.state()
    saved = json.dumps(state)
    run.steps(event_us[1_000:], arrival_us[1_000:], 50)
    assert json.dumps(state) == saved
