"""How far out of order a batch is: the facts that punctuation is decided from.

A stream's clock is the latest arrival time seen so far; where tuples carry none, the latest event
time. A tuple's delay is the clock when it came minus its event time. Times that lie further than
`trust` from the clock are implausible: they are counted, and neither move the clock nor enter the
delays. Whether the clock itself has jumped is not decided here: one task does not see all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.kernels.jit import FLAGS, INT, INTS, Doubles, Flags, Ints, inner, kernel
from penstock.kernels.sketch import BUCKETS, FIRST_BIT, LAST_BIT, SUB_BITS, dense, sparse

UNKNOWN_US = -(2**62)  # no time yet
_FIRST_TUPLES = 1_000
_FURTHEST_APART = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DelayFacts:
    """What was seen of the order of some tuples, in microseconds.

    rows: with an event time; untimed: without. ahead, behind: implausible. below: plausible ones
    with an event time before what was closed when they came. clock, first_clock: the clock after
    and before; jump: the least time too far ahead of the clock. event: latest plausible event time;
    last_event: latest of all. delays: tuples per bucket of the sketch, with their sum, sum of
    squares and largest. newest: the largest event times up to event, descending, as many as were
    asked for (UNKNOWN_US where there are fewer).
    """

    rows: int = 0
    untimed: int = 0
    below: int = 0
    ahead: int = 0
    behind: int = 0
    clock_us: int = UNKNOWN_US
    first_clock_us: int = UNKNOWN_US
    jump_us: int = UNKNOWN_US
    event_us: int = UNKNOWN_US
    last_event_us: int = UNKNOWN_US
    max_delay_us: int = 0
    delay_sum: float = 0.0
    delay_squares: float = 0.0
    delays: Ints = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    newest_us: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def measured(self) -> int:
        """Tuples with a plausible delay."""
        return int(self.delays.sum())


def disorder_facts(
    ts_us: Ints,
    valid: Flags,
    arrival_us: Ints | None,
    clock_us: int,
    trust_us: int,
    closed_us: int | Ints,
    newest: int = 0,
) -> DelayFacts:
    """Facts of one batch in arrival order.

    valid: which rows have an event time. arrival_us: UNKNOWN_US where a row has none; None if the
    stream has none. clock_us: the clock before the batch, or UNKNOWN_US. closed_us: the punctuation
    of the batch, or of each row. newest: how many of the largest event times to keep.
    """
    times = ts_us if arrival_us is None else arrival_us
    if clock_us == UNKNOWN_US:
        clock_us = _first_clock(times[valid & (times > UNKNOWN_US)], trust_us)
    closed = np.array([closed_us]) if isinstance(closed_us, int) else closed_us
    figures, sums, delays = _scan(
        ts_us,
        valid,
        np.empty(0, np.int64) if arrival_us is None else arrival_us,
        closed,
        clock_us,
        trust_us,
    )
    rows, untimed, below, ahead, behind, clock, jump, event, last_event, max_delay = map(
        int, figures
    )
    return DelayFacts(
        rows,
        untimed,
        below,
        ahead,
        behind,
        clock,
        clock_us,
        jump,
        event,
        last_event,
        max_delay,
        float(sums[0]),
        float(sums[1]),
        delays,
        _newest(ts_us[valid & (ts_us <= event)], newest) if newest else ts_us[:0],
    )


def facts_by_source(
    codes: Ints,
    names: Sequence[str],
    ts_us: Ints,
    valid: Flags,
    arrival_us: Ints | None,
    clock_us: int,
    trust_us: int,
    closed_us: Ints,
) -> dict[str, DelayFacts]:
    """Facts of each source in a batch, by the clock of the whole stream; codes: row to name."""
    times = ts_us if arrival_us is None else arrival_us
    if clock_us == UNKNOWN_US:
        clock_us = _first_clock(times[valid & (times > UNKNOWN_US)], trust_us)
    clock = _running_clock(times, valid, clock_us, trust_us)
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    rows = [order[a:b] for a, b in pairwise(cuts)]
    return {
        name: disorder_facts(ts_us[r], valid[r], clock[r], clock_us, trust_us, closed_us[r])
        for name, r in zip(names, rows, strict=True)
        if r.size
    }


def merge_facts(a: DelayFacts, b: DelayFacts) -> DelayFacts:
    """Facts of two sets of tuples of one epoch together."""
    known = [f.first_clock_us for f in (a, b) if f.first_clock_us > UNKNOWN_US]
    jumps = [f.jump_us for f in (a, b) if f.jump_us > UNKNOWN_US]
    return DelayFacts(
        a.rows + b.rows,
        a.untimed + b.untimed,
        a.below + b.below,
        a.ahead + b.ahead,
        a.behind + b.behind,
        max(a.clock_us, b.clock_us),
        min(known, default=UNKNOWN_US),
        min(jumps, default=UNKNOWN_US),
        max(a.event_us, b.event_us),
        max(a.last_event_us, b.last_event_us),
        max(a.max_delay_us, b.max_delay_us),
        a.delay_sum + b.delay_sum,
        a.delay_squares + b.delay_squares,
        a.delays + b.delays,
        largest(
            np.concatenate([a.newest_us, b.newest_us]), max(a.newest_us.size, b.newest_us.size)
        ),
    )


def largest(values: Ints, count: int) -> Ints:
    """The `count` largest values, descending."""
    if count == 0:
        return np.empty(0, np.int64)
    if count < values.size:
        values = np.partition(values, values.size - count)[values.size - count :]
    return np.sort(values)[::-1]


def plain(facts: DelayFacts) -> dict[str, Any]:
    """Facts as data for JSON."""
    values = {f.name: getattr(facts, f.name) for f in fields(facts)}
    return {**values, "delays": sparse(facts.delays), "newest_us": facts.newest_us.tolist()}


def facts_from(data: dict[str, Any]) -> DelayFacts:
    delays = dense(data["delays"]).astype(np.int64)
    newest = np.array(data["newest_us"], np.int64)
    return DelayFacts(**{**data, "delays": delays, "newest_us": newest})


def _newest(times: Ints, count: int) -> Ints:
    """Always `count` times, so that merging can keep as many as were asked for."""
    return largest(np.concatenate([times, np.full(count, UNKNOWN_US)]), count)


def _first_clock(times: Ints, trust_us: int) -> int:
    """Where a stream begins: at its first time that the middle of its first ones makes plausible.

    The middle itself would make the tuples before it late, and `max` never forgets.
    """
    some = times[:_FIRST_TUPLES]
    if some.size == 0:
        return UNKNOWN_US
    middle = int(np.partition(some, some.size // 2)[some.size // 2])
    return int(some[(some >= middle - trust_us) & (some <= middle + trust_us)][0])


@inner
def _apart(a: int, b: int) -> int:
    """a - b, which a false time may make too large for an integer."""
    if b < 0 and a > _FURTHEST_APART + b:
        return _FURTHEST_APART
    if b > 0 and a < b - _FURTHEST_APART:
        return -_FURTHEST_APART
    return a - b


@inner
def _bucket(delay: int) -> int:
    """As `sketch.bucket_of`: the octave from the highest bit, its part from the bits below."""
    if not delay >> FIRST_BIT:
        return 0
    exponent = math.frexp(float(delay))[1] - 1  # beyond 2^53 it may round up: the last bucket
    if exponent >= LAST_BIT:
        return BUCKETS - 1
    part = (delay >> (exponent - SUB_BITS)) - (1 << SUB_BITS)
    return ((exponent - FIRST_BIT) << SUB_BITS) + part + 1


@kernel(INTS, FLAGS, INT, INT)
def _running_clock(times: Ints, valid: Flags, clock: int, trust: int) -> Ints:
    """The clock when each row came; as in `_scan`."""
    found = np.empty(times.size, np.int64)
    for i in range(times.size):
        known = clock != UNKNOWN_US
        if known and valid[i] and times[i] > clock and _apart(times[i], clock) <= trust:
            clock = times[i]
        found[i] = clock
    return found


@kernel(INTS, FLAGS, INTS, INTS, INT, INT)
def _scan(
    ts_us: Ints, valid: Flags, arrival_us: Ints, closed_us: Ints, clock: int, trust: int
) -> tuple[Ints, Doubles, Ints]:
    unknown = UNKNOWN_US
    delays = np.zeros(BUCKETS, np.int64)
    untimed = below = ahead = behind = 0
    jump = event = last_event = unknown
    max_delay = 0
    delay_sum = delay_squares = 0.0
    closed = closed_us[0] if closed_us.size == 1 else unknown
    for i in range(ts_us.size):
        if not valid[i]:
            untimed += 1
            continue
        time = ts_us[i]
        last_event = max(last_event, time)
        now = arrival_us[i] if arrival_us.size > 0 else time
        plausible = clock != unknown
        if now > clock:
            if plausible and _apart(now, clock) <= trust:
                clock = now
            else:
                jump = now if jump == unknown else min(jump, now)
                plausible = False
        delay = _apart(clock, time)
        if not plausible or delay < -trust:
            ahead += 1
            continue
        if delay > trust:
            behind += 1
            continue
        if closed_us.size > 1:
            closed = closed_us[i]
        below += time < closed
        event = max(event, time)
        delay = max(delay, 0)
        max_delay = max(max_delay, delay)
        delay_sum += delay
        delay_squares += float(delay) * float(delay)
        delays[_bucket(delay)] += 1
    figures = np.array(
        [
            ts_us.size - untimed,
            untimed,
            below,
            ahead,
            behind,
            clock,
            jump,
            event,
            last_event,
            max_delay,
        ]
    )
    return figures, np.array([delay_sum, delay_squares]), delays
