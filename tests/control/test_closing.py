"""Schedules: a window has one closing time, and the closed ones are those up to some end."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.closing import (
    LEARNING,
    Schedule,
    closed_end,
    closes,
    longest_lag,
    plain,
    schedule_from,
    with_lag,
    without_past,
)

MS = 1_000
FAR = 2**61
lags = st.integers(0, 100_000 * MS)
touched = st.integers(-50_000 * MS, 50_000 * MS)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Steps as an engine adds them: each beyond what was touched before."""
    schedule, end = LEARNING, draw(touched)
    for lag in draw(st.lists(lags, max_size=6)):
        end += draw(st.integers(0, 20_000 * MS))
        schedule = with_lag(schedule, lag, end)
    return schedule


def closing(schedule: Schedule, end_us: int) -> int:
    return int(closes(schedule, np.array([end_us]), FAR)[0])


@given(schedules(), st.integers(-200_000, 300_000), st.integers(-200_000, 300_000))
def test_a_window_is_closed_exactly_when_its_time_has_come(
    schedule: Schedule, clock_ms: int, end_ms: int
) -> None:
    clock_us, end_us = clock_ms * MS, end_ms * MS
    assert (closing(schedule, end_us) <= clock_us) == (end_us <= closed_end(schedule, clock_us))


@given(schedules(), st.lists(st.integers(-200_000, 300_000), min_size=2, max_size=30))
def test_later_windows_never_close_before_earlier_ones(schedule: Schedule, ends: list[int]) -> None:
    times = closes(schedule, np.sort(np.array(ends)) * MS, FAR)
    assert (np.diff(times) >= 0).all()
    assert (times % MS == 0).all()  # Spark's watermark counts milliseconds


@given(schedules(), lags, touched, st.integers(0, 10_000 * MS))
def test_a_new_lag_changes_no_window_that_was_touched(
    schedule: Schedule, lag: int, at: int, before: int
) -> None:
    changed = with_lag(schedule, lag, at)
    assert closing(changed, at - before) == closing(schedule, at - before)
    assert changed[-1].lag_us >= lag


@given(schedules(), touched, st.integers(0, 300_000 * MS))
def test_forgetting_the_past_changes_no_open_window(
    schedule: Schedule, clock_us: int, beyond: int
) -> None:
    closed = closed_end(schedule, clock_us)
    kept = without_past(schedule, closed)
    assert closing(kept, closed + 1 + beyond) == closing(schedule, closed + 1 + beyond)
    assert closed_end(kept, clock_us) == closed
    assert longest_lag(kept) <= longest_lag(schedule)


@given(schedules(), lags, touched)
def test_windows_of_implausible_times_have_one_closing_time(
    schedule: Schedule, lag: int, at: int
) -> None:
    ends = np.array([at + 1, at + 10**9])
    changed = with_lag(schedule, lag, at - 5_000)
    assert (closes(schedule, ends, at) == closes(changed, ends, at)).all()


@given(schedules())
def test_schedules_survive_json(schedule: Schedule) -> None:
    assert schedule_from(json.loads(json.dumps(plain(schedule)))) == schedule
