"""Punctuation estimators: the worked numbers, and that they never go back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.punctuation import (
    NEVER_US,
    DelayFacts,
    Fixed,
    Max,
    flush_punctuation,
    merge_facts,
    punctuate,
)

SECOND = 1_000_000

micros = st.integers(-(2**55), 2**55)
facts = st.builds(
    DelayFacts,
    st.integers(1, 10**9),
    micros,
    st.none() | micros,
    st.integers(0, 2**50),
)


def test_max_follows_the_largest_delay_seen_as_in_stream() -> None:
    # timestamps 3,3,4,2,5,6: the fourth arrives at 6 with timestamp 2, so the largest delay is 4
    before = DelayFacts(3, 4 * SECOND, 5 * SECOND, 2 * SECOND)
    assert punctuate(Max(), before, NEVER_US) == 3 * SECOND
    after = merge_facts(before, DelayFacts(1, 2 * SECOND, 6 * SECOND, 4 * SECOND))
    assert after.max_delay_us == 4 * SECOND
    assert punctuate(Max(), after, NEVER_US) == 2 * SECOND
    assert punctuate(Max(), after, 3 * SECOND) == 3 * SECOND  # never back


def test_max_takes_the_latest_event_for_the_clock_where_there_is_no_arrival_time() -> None:
    seen = DelayFacts(10, 100 * SECOND, None, 7 * SECOND)
    assert punctuate(Max(), seen, NEVER_US) == 93 * SECOND


def test_fixed_stays_behind_the_latest_event() -> None:
    seen = DelayFacts(10, 100 * SECOND, 500 * SECOND, 7 * SECOND)
    assert punctuate(Fixed(30 * SECOND), seen, NEVER_US) == 70 * SECOND


def test_nothing_is_said_before_the_first_tuple() -> None:
    for estimator in (Max(), Fixed(1)):
        assert punctuate(estimator, DelayFacts(), NEVER_US) == NEVER_US
    assert flush_punctuation(DelayFacts(), 10, NEVER_US) == NEVER_US


@given(st.lists(facts, min_size=1), st.sampled_from([Max(), Fixed(0), Fixed(12_345_678)]))
def test_a_punctuation_never_moves_back_and_is_whole_milliseconds(
    batches: list[DelayFacts], estimator: Max | Fixed
) -> None:
    seen, reached = DelayFacts(), NEVER_US
    for batch in batches:
        seen = merge_facts(seen, batch)
        moved = punctuate(estimator, seen, reached)
        assert moved >= reached
        assert moved == NEVER_US or moved % 1_000 == 0
        reached = moved


@given(facts, st.integers(1, 10**12))
def test_a_flush_closes_every_window_that_holds_a_tuple(seen: DelayFacts, range_us: int) -> None:
    assert seen.max_event_us is not None
    assert flush_punctuation(seen, range_us, NEVER_US) > seen.max_event_us + range_us


@given(facts, facts, facts)
def test_facts_merge_in_any_order(a: DelayFacts, b: DelayFacts, c: DelayFacts) -> None:
    assert merge_facts(a, b) == merge_facts(b, a)
    assert merge_facts(merge_facts(a, b), c) == merge_facts(a, merge_facts(b, c))
    assert merge_facts(a, DelayFacts()) == a
