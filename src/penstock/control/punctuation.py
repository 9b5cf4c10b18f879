"""Punctuation: up to which event time a stream is declared complete.

It never moves back, is whole milliseconds (the resolution of Spark's watermark), and is decided
before the micro-batch it applies to, so a replay of that micro-batch uses the same one.
"""

from __future__ import annotations

NEVER_US = -(2**62)  # no punctuation yet: nothing is late
_MILLISECOND = 1_000


def advance(previous_us: int, reached_us: int) -> int:
    """The next punctuation.

    >>> advance(5_000, 7_999), advance(5_000, 3_000)
    (7000, 5000)
    """
    return max(previous_us, reached_us // _MILLISECOND * _MILLISECOND)


def beyond_windows(last_event_us: int, longest_range_us: int) -> int:
    """A punctuation beyond the end of every window that any tuple seen so far lies in."""
    return ((last_event_us + longest_range_us) // _MILLISECOND + 1) * _MILLISECOND
