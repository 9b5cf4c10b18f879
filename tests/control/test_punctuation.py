"""Punctuations never go back and are what Spark's watermark can say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.control.punctuation import NEVER_US, advance, beyond_windows

micros = st.integers(-(2**61), 2**61)


@given(st.lists(micros, min_size=1))
def test_a_punctuation_never_moves_back_and_is_whole_milliseconds(reached: list[int]) -> None:
    punctuation = NEVER_US
    for reached_us in reached:
        moved = advance(punctuation, reached_us)
        assert moved >= punctuation
        assert moved % 1_000 == 0
        punctuation = moved
    assert 0 <= max(reached) - punctuation < 1_000


def test_what_is_not_complete_is_never_declared_complete() -> None:
    assert advance(NEVER_US, 1_999) == 1_000
    assert advance(NEVER_US, -1) == -1_000
    assert advance(NEVER_US, NEVER_US) == NEVER_US


@given(micros, st.integers(1, 10**15))
def test_a_flush_closes_every_window_that_holds_a_tuple(event_us: int, range_us: int) -> None:
    punctuation = beyond_windows(event_us, range_us)
    assert event_us + range_us < punctuation <= event_us + range_us + 1_000
    assert punctuation % 1_000 == 0
