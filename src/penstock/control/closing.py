"""When the windows of one source close, on the scale of the stream's clock.

In a ring whose groups are sources, every source has a lag of its own, yet Spark has one watermark:
the stream's clock. So a window row carries the clock time at which it closes, `closes(end)`: the
window's end plus its source's lag. That time must be the same whenever a row of the window comes,
so a new lag holds from windows on that no tuple can have touched: a schedule of steps. Closing
times never go down as ends go up, hence the closed windows are always those up to some end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.kernels.jit import Ints

LEARNING_US = 60_000_000  # the lag of sources of which nothing is known yet
_ALWAYS_US = -(2**61)


@dataclass(frozen=True, slots=True)
class Step:
    """From window ends `from_us` on, windows close `lag_us` after their end, not before `floor`."""

    from_us: int
    lag_us: int
    floor_us: int


Schedule = tuple[Step, ...]
LEARNING: Schedule = (Step(_ALWAYS_US, LEARNING_US, _ALWAYS_US),)


def with_lag(schedule: Schedule, lag_us: int, touched_end_us: int) -> Schedule:
    """The schedule with another lag for windows that end after `touched_end_us`.

    >>> with_lag(LEARNING, 5_000, 100_000)[-1]
    Step(from_us=101000, lag_us=5000, floor_us=60101000)
    """
    from_us = (touched_end_us // 1_000 + 1) * 1_000
    lag_us = -(-lag_us // 1_000) * 1_000
    kept = tuple(s for s in schedule if s.from_us < from_us)
    last = kept[-1]
    return (*kept, Step(from_us, lag_us, max(last.floor_us, from_us + last.lag_us)))


def without_past(schedule: Schedule, closed_us: int) -> Schedule:
    """Only the steps that open windows need."""
    needed = [i for i, s in enumerate(schedule) if s.from_us <= closed_us]
    return schedule[needed[-1] :] if needed else schedule


def closed_end(schedule: Schedule, clock_us: int) -> int:
    """All windows that end up to here are closed when the clock shows `clock_us`.

    >>> closed_end(with_lag(LEARNING, 5_000, 100_000), 60_101_000)
    60096000
    """
    before_us: int | None = None
    for step in reversed(schedule):
        end_us = clock_us - step.lag_us
        if before_us is not None:
            end_us = min(end_us, before_us - 1)
        if step.floor_us <= clock_us and end_us >= step.from_us:
            return end_us
        before_us = step.from_us
    return min(clock_us - schedule[0].lag_us, schedule[0].from_us - 1)


def closes(schedule: Schedule, ends_us: Ints, far_us: int) -> Ints:
    """The clock time at which each window closes.

    Windows that end beyond `far_us` hold implausible times only; no schedule waits for those, so
    they have one lag for good.
    """
    at = np.searchsorted([s.from_us for s in schedule], ends_us, "right") - 1
    at = np.maximum(at, 0)
    lags = np.array([s.lag_us for s in schedule], np.int64)[at]
    floors = np.array([s.floor_us for s in schedule], np.int64)[at]
    near: Ints = np.maximum(ends_us + lags, floors)
    return np.where(ends_us > far_us, ends_us + LEARNING_US, near)


def longest_lag(schedule: Schedule) -> int:
    return max(s.lag_us for s in schedule)


def plain(schedule: Schedule) -> list[list[int]]:
    return [[s.from_us, s.lag_us, s.floor_us] for s in schedule]


def schedule_from(steps: Sequence[Sequence[int]]) -> Schedule:
    return tuple(Step(*step) for step in steps)
