"""The facts of disorder against their twin."""

from __future__ import annotations

import json
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import reference

from penstock.kernels.delays import (
    UNKNOWN_US,
    DelayFacts,
    disorder_facts,
    facts_by_source,
    facts_from,
    largest,
    merge_facts,
    plain,
)
from penstock.kernels.jit import Flags, Ints
from penstock.kernels.sketch import BUCKETS, bucket_of

NEVER = UNKNOWN_US
EVER = 2**62  # a trust that finds every time plausible

Rows = list[tuple[int | None, int | None]]

near = st.integers(-60, 60)
seconds = st.integers(-60, 60).map(lambda s: s * 1_000_000)
extreme = st.sampled_from([UNKNOWN_US + 1, -(2**61), -(2**61) + 1, 2**61, 2**62, 2**63 - 1])
times = st.one_of(near, near, seconds, extreme)
trusts = st.sampled_from([0, 20, 30_000_000, 2**61, EVER])
clocks = st.none() | times


@st.composite
def streams(draw: st.DrawFn) -> Rows:
    """Rows some of which come many times in a row."""
    rows = st.tuples(st.none() | times, st.none() | times)
    repeats = st.sampled_from([1, 1, 1, 2, 70])
    blocks = draw(st.lists(st.tuples(rows, repeats), max_size=8))
    return [row for row, count in blocks for _ in range(count)]


def as_arrays(rows: Rows) -> tuple[Ints, Flags, Ints]:
    events = np.array([2**63 - 1 if e is None else e for e, _ in rows], np.int64)
    arrivals = np.array([UNKNOWN_US if a is None else a for _, a in rows], np.int64)
    return events, np.array([e is not None for e, _ in rows], np.bool_), arrivals


def or_unknown(time: int | None) -> int:
    return UNKNOWN_US if time is None else time


def facts_of(
    rows: Rows,
    has_arrival: bool = True,
    clock: int | None = None,
    trust: int = EVER,
    closed_us: int | Ints = NEVER,
    newest: int = 0,
) -> DelayFacts:
    events, valid, arrivals = as_arrays(rows)
    arrival_us = arrivals if has_arrival else None
    return disorder_facts(events, valid, arrival_us, or_unknown(clock), trust, closed_us, newest)


@given(streams(), st.booleans(), clocks, trusts, st.integers(0, 5), st.data())
def test_facts_agree_with_their_twin(
    rows: Rows, has_arrival: bool, clock: int | None, trust: int, newest: int, data: st.DataObject
) -> None:
    closings = [data.draw(times)] * len(rows)
    closed_us: int | Ints = closings[0] if closings else 0
    if data.draw(st.booleans()):
        closings = data.draw(st.lists(times, min_size=len(rows), max_size=len(rows)))
        closed_us = np.array(closings, np.int64)
    found = facts_of(rows, has_arrival, clock, trust, closed_us, newest)
    twin = reference.disorder_facts(rows, has_arrival, clock, trust, closings)
    for name in ("rows", "untimed", "ahead", "behind", "below"):
        assert getattr(found, name) == twin[name], name
    for name in ("clock", "first_clock", "jump", "event", "last_event"):
        assert getattr(found, f"{name}_us") == or_unknown(twin[name]), name
    delays = twin["delays"]
    buckets = np.bincount([bucket_of(d) for d in delays], minlength=BUCKETS) if delays else 0
    assert (found.delays == buckets).all()
    assert found.measured == len(delays) == found.rows - found.ahead - found.behind
    assert found.max_delay_us == min(max(delays, default=0), 2**63 - 1)
    assert found.delay_sum == pytest.approx(sum(delays))
    assert found.delay_squares == pytest.approx(sum(d * d for d in delays))
    expected = twin["newest"][:newest]
    assert found.newest_us.tolist() == expected + [UNKNOWN_US] * (newest - len(expected))


def test_an_empty_batch_leaves_the_clock() -> None:
    found = facts_of([], clock=7, newest=2)
    assert (found.rows, found.measured, found.clock_us, found.first_clock_us) == (0, 0, 7, 7)
    assert found.newest_us.tolist() == [UNKNOWN_US] * 2
    assert facts_of([]).clock_us == UNKNOWN_US


def test_one_wild_first_time_does_not_set_the_clock() -> None:
    found = facts_of([(2**61, None), (5, None), (6, None), (4, None)], False, trust=100)
    assert (found.first_clock_us, found.clock_us, found.ahead, found.measured) == (5, 6, 1, 3)
    assert (found.event_us, found.last_event_us, found.jump_us) == (6, 2**61, 2**61)


def test_a_stream_in_order_has_no_delays_from_its_first_tuple_on() -> None:
    assert facts_of([(i * 1_000_000, None) for i in range(3_000)], False).max_delay_us == 0


@pytest.mark.parametrize("has_arrival", [True, False])
def test_times_too_far_ahead_never_move_the_clock(has_arrival: bool) -> None:
    far: Rows = [(3_000, 3_000), (1_000, 1_000)]
    found = facts_of(far * 100, has_arrival, 0, 10)
    assert (found.ahead, found.clock_us, found.jump_us) == (200, 0, 1_000)


def test_times_too_far_apart_for_an_integer_are_implausible() -> None:
    ahead = facts_of([(2**63 - 1, None)], False, -(2**61), 10)
    assert (ahead.ahead, ahead.clock_us) == (1, -(2**61))
    behind = facts_of([(-(2**63), 2**61)], True, 2**61, 10)
    assert (behind.behind, behind.ahead) == (1, 0)


@given(
    st.lists(st.tuples(st.none() | near | extreme, st.none() | near | extreme), max_size=40),
    st.booleans(),
    near,
    st.sampled_from([20, EVER]),
    st.integers(0, 40),
)
def test_parts_merge_into_the_whole(
    rows: Rows, has_arrival: bool, clock: int, trust: int, cut: int
) -> None:
    whole = facts_of(rows, has_arrival, clock, trust, 10)
    first = facts_of(rows[:cut], has_arrival, clock, trust, 10)
    second = facts_of(rows[cut:], has_arrival, first.clock_us, trust, 10)
    assert_same(merge_facts(first, second), whole)


@given(st.lists(st.lists(near, max_size=4), min_size=1), st.integers(0, 9))
def test_merging_keeps_as_many_of_the_newest_as_were_asked_for(
    parts: list[list[int]], newest: int
) -> None:
    each = [facts_of([(t, t) for t in part], newest=newest) for part in parts]
    found = reduce(merge_facts, each, DelayFacts()).newest_us.tolist()
    expected = sorted((t for part in parts for t in part), reverse=True)[:newest]
    assert found == expected + [UNKNOWN_US] * (newest - len(expected))


def test_the_newest_are_plausible() -> None:
    found = facts_of([(5, None), (2**61, None), (4, None)], False, 0, 10, newest=2)
    assert found.newest_us.tolist() == [5, 4]


@st.composite
def some_facts(draw: st.DrawFn) -> DelayFacts:
    rows = draw(st.lists(st.tuples(st.none() | near | extreme, st.none() | near), max_size=5))
    clock, has_arrival = draw(st.none() | near), draw(st.booleans())
    return facts_of(rows, has_arrival, clock, draw(st.sampled_from([20, 200])), 0, 3)


@given(some_facts(), some_facts(), some_facts())
def test_facts_merge_in_any_order(a: DelayFacts, b: DelayFacts, c: DelayFacts) -> None:
    assert_same(merge_facts(a, b), merge_facts(b, a))
    assert_same(merge_facts(merge_facts(a, b), c), merge_facts(a, merge_facts(b, c)))
    assert_same(merge_facts(a, DelayFacts()), a)


@given(some_facts())
def test_facts_travel_as_json(facts: DelayFacts) -> None:
    there = facts_from(json.loads(json.dumps(plain(facts))))
    assert_same(there, facts)
    assert there.delays.dtype == np.int64


@given(
    st.lists(st.tuples(st.none() | near, st.none() | near, st.integers(0, 2), near)),
    st.booleans(),
    near,
)
def test_facts_of_all_sources_together_are_those_of_the_stream(
    rows: list[tuple[int | None, int | None, int, int]], has_arrival: bool, clock: int
) -> None:
    events, valid, arrivals = as_arrays([(event, arrival) for event, arrival, _, _ in rows])
    codes = np.array([code for _, _, code, _ in rows], np.int64)
    closed_us = np.array([closed for _, _, _, closed in rows], np.int64)
    arrival_us = arrivals if has_arrival else None
    by_source = facts_by_source(codes, "abc", events, valid, arrival_us, clock, EVER, closed_us)
    assert set(by_source) == {"abc"[code] for _, _, code, _ in rows}
    whole = disorder_facts(events, valid, arrival_us, clock, EVER, closed_us)
    merged = reduce(merge_facts, by_source.values(), facts_of([], clock=clock))
    hidden = {"clock_us"}  # a source's clock stands at its own last tuple
    assert {k: v for k, v in plain(merged).items() if k not in hidden} == {
        k: v for k, v in plain(whole).items() if k not in hidden
    }


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(0, 12))
def test_largest_are_the_first_of_the_sorted(values: list[int], count: int) -> None:
    found = largest(np.array(values, np.int64), count)
    assert found.tolist() == sorted(values, reverse=True)[:count]


def assert_same(found: DelayFacts, expected: DelayFacts) -> None:
    sums = {"delay_sum": found.delay_sum, "delay_squares": found.delay_squares}
    assert plain(found) | sums == plain(expected) | sums
    assert found.delay_sum == pytest.approx(expected.delay_sum)
    assert found.delay_squares == pytest.approx(expected.delay_squares)
