"""Punctuation: up to which event time a stream is declared complete. Facts in, decision out.

Each estimator answers one question: given what was seen of the delays, how far may we go? The
answer never moves back, is whole milliseconds (the resolution of Spark's watermark), and is
decided before the micro-batch it applies to, so a replay of that micro-batch uses the same one.

`fixed`  t_p = latest event time - slack: what Spark users write today.
`max`    t_p = t_n - largest delay seen (STREAM's input manager); t_n is the latest arrival. Where a
         stream has no arrival time, the latest event time seen so far stands for the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

NEVER_US = -(2**62)  # no punctuation yet: nothing is late


@dataclass(frozen=True, slots=True)
class DelayFacts:
    """What was seen of a stream: extremes over all its tuples; None before the first tuple."""

    rows: int = 0
    max_event_us: int | None = None
    max_arrival_us: int | None = None
    max_delay_us: int | None = None


@dataclass(frozen=True, slots=True)
class Fixed:
    slack_us: int


@dataclass(frozen=True, slots=True)
class Max:
    pass


Estimator = Fixed | Max


def merge_facts(a: DelayFacts, b: DelayFacts) -> DelayFacts:
    """Facts of two sets of tuples together."""
    return DelayFacts(
        a.rows + b.rows,
        _later(a.max_event_us, b.max_event_us),
        _later(a.max_arrival_us, b.max_arrival_us),
        _later(a.max_delay_us, b.max_delay_us),
    )


def punctuate(estimator: Estimator, facts: DelayFacts, previous_us: int) -> int:
    """The next punctuation, never below the previous one.

    >>> seen = DelayFacts(6, max_event_us=6_000, max_arrival_us=8_000, max_delay_us=4_000)
    >>> punctuate(Max(), seen, NEVER_US), punctuate(Fixed(1_000), seen, NEVER_US)
    (4000, 5000)
    """
    if facts.max_event_us is None:
        return previous_us
    match estimator:
        case Fixed(slack_us):
            reached = facts.max_event_us - slack_us
        case Max():
            now = facts.max_event_us if facts.max_arrival_us is None else facts.max_arrival_us
            reached = now - (facts.max_delay_us or 0)
        case _:
            assert_never(estimator)
    return max(previous_us, reached // 1_000 * 1_000)


def flush_punctuation(facts: DelayFacts, longest_range_us: int, previous_us: int) -> int:
    """Beyond the end of every window that any tuple seen so far lies in."""
    if facts.max_event_us is None:
        return previous_us
    last_end_us = facts.max_event_us + longest_range_us
    return max(previous_us, (last_end_us // 1_000 + 1) * 1_000)


def _later(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)
