"""Slow, obvious twins of the kernels: loops over Python values, nothing shared with the kernels.

Values are in the domain of `Constant`: numbers as int or float, decimals unscaled, dates as days,
timestamps as microseconds, booleans as 0 or 1, strings as str, NULL as None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import shapely

from penstock.plan.specs import Constant, FenceTest, Partial, SlotSpec, Term, ValueSet

Row = Mapping[str, Any]


def order(value: Constant) -> tuple[int, Any]:
    """A sort key as Spark orders: NaN above every number, strings by their UTF-8 bytes."""
    if isinstance(value, str):
        return (0, value.encode())
    return (1, 0) if value != value else (0, value)


def in_set(value: Constant | None, values: ValueSet) -> bool:
    if value is None:
        return values.null
    for interval in values.intervals:
        above = (
            interval.low is None
            or order(value) > order(interval.low)
            or (interval.low_closed and order(value) == order(interval.low))
        )
        below = (
            interval.high is None
            or order(value) < order(interval.high)
            or (interval.high_closed and order(value) == order(interval.high))
        )
        if above and below:
            return True
    return False


def holds(term: Term, row: Row) -> bool:
    return all(in_set(row[name], values) for name, values in term.sets) and all(
        in_set(fence_truth(test, row), values) for test, values in term.fences
    )


def fence_truth(test: FenceTest, row: Row) -> int | None:
    """Whether a row's point is in an area; None if it is no place."""
    found = [row[name] for name in (test.x, test.y)]
    if any(value is None or not abs(value) <= 1e140 for value in found):
        return None
    point, area = shapely.Point(*map(float, found)), shapely.from_wkb(test.geometry)
    if test.relation == "near":
        return int(shapely.dwithin(area, point, test.distance))
    return int(point.within(area) if test.relation == "within" else point.intersects(area))


def select(slots: Sequence[SlotSpec], rows: Sequence[Row]) -> list[list[int]]:
    """For each row the positions of the slots it belongs to."""
    return [
        [i for i, slot in enumerate(slots) if any(holds(term, row) for term in slot.terms)]
        for row in rows
    ]


def window_ends(ts_us: int, range_us: int, slide_us: int) -> list[int]:
    """All multiples of the slide whose window holds the time."""
    end = (ts_us // slide_us - 1) * slide_us
    ends = []
    while end - range_us <= ts_us:
        if ts_us < end:
            ends.append(end)
        end += slide_us
    return ends


def expand(
    slots: Sequence[SlotSpec],
    matched: Sequence[Sequence[int]],
    times: Sequence[int | None],
    closings: Sequence[int],
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int, int, int, bool]]]:
    """(row, slot position, window end) to report under each row's punctuation, and late pairs:

    (row, slot position, first and last missed window end, how many are missed, whether all are).
    """
    found, late = [], []
    for row, time in enumerate(times):
        for position in matched[row] if time is not None else ():
            slot = slots[position]
            range_us = slot.window.range_us
            ends = [
                end
                for end in window_ends(time, range_us, slot.window.slide_us)
                if slot.from_us is None or end - range_us >= slot.from_us
            ]
            found += [(row, position, end) for end in ends if end > closings[row]]
            if missed := [end for end in ends if end <= closings[row]]:
                late.append((row, position, missed[0], missed[-1], len(missed), missed == ends))
    return found, late


def group_key(values: Sequence[Any]) -> tuple[Any, ...]:
    """Equal for values that GROUP BY puts together."""
    return tuple("NaN" if v != v else v + 0.0 if isinstance(v, float) else v for v in values)


def preaggregate(
    slots: Sequence[SlotSpec],
    matched: Sequence[Sequence[int]],
    rows: Sequence[Row],
    times: Sequence[int | None],
    keys: Sequence[str],
    partials: Sequence[Partial],
    closings: Sequence[int],
) -> dict[tuple[int, int, tuple[Any, ...]], list[Any]]:
    """Partial values by (slot number, window end, group)."""
    members: dict[tuple[int, int, tuple[Any, ...]], list[Row]] = {}
    for row, position, end in expand(slots, matched, times, closings)[0]:
        group = group_key([rows[row][k] for k in keys])
        members.setdefault((slots[position].slot, end, group), []).append(rows[row])
    return {
        cell: [
            aggregate(p.kind, [row[p.argument] for row in its] if p.argument else its)
            for p in partials
        ]
        for cell, its in members.items()
    }


def aggregate(kind: str, values: Sequence[Any]) -> Any:
    present = [v for v in values if v is not None]
    match kind:
        case "count_star" | "count":
            return len(present)
        case "moments":
            return moments(present)
        case _ if not present:
            return None
        case "sum":
            return total(present)
        case "min":
            return min(present, key=order)
        case "max":
            return max(present, key=order)
    raise AssertionError(kind)


def total(values: Sequence[int | float]) -> int | float:
    if all(isinstance(v, int) for v in values):
        return sum(values)
    special = {v for v in values if not math.isfinite(v)}
    if special:
        return special.pop() if len(special) == 1 else math.nan
    return float(sum(map(Fraction, values)))


def moments(values: Sequence[int | float]) -> tuple[int, Fraction, Fraction] | tuple[int]:
    """Count, mean and sum of squared deviations, exact; the count alone if not all are finite."""
    if not values:
        return 0, Fraction(0), Fraction(0)
    if not all(math.isfinite(v) for v in values):
        return (len(values),)
    mean = sum(map(Fraction, values)) / len(values)
    return len(values), mean, sum(((Fraction(v) - mean) ** 2 for v in values), Fraction(0))


def first_clock(times: Sequence[int], trust: int) -> int | None:
    """The first of the first thousand times that lies within trust of their (upper) median."""
    some = times[:1000]
    middle = sorted(some)[len(some) // 2] if some else 0
    return next((t for t in some if abs(t - middle) <= trust), None)


def disorder_facts(
    rows: Sequence[tuple[int | None, int | None]],
    has_arrival: bool,
    clock: int | None,
    trust: int,
    closings: Sequence[int],
) -> dict[str, Any]:
    """rows: event and arrival time, None where there is none; None for times not known."""
    timed = [
        (time, arrival if has_arrival else time, closed)
        for (time, arrival), closed in zip(rows, closings, strict=True)
        if time is not None
    ]
    nows = [now for _, now, _ in timed if now is not None]
    if clock is None:
        clock = first_clock(nows, trust)
    facts: dict[str, Any] = {
        "rows": len(timed),
        "untimed": len(rows) - len(timed),
        "first_clock": clock,
        "last_event": max((time for time, _, _ in timed), default=None),
        "ahead": 0,
        "behind": 0,
    }
    plausible: list[tuple[int, int, bool]] = []
    jumps: list[int] = []
    for time, now, closed in timed:
        believed = True
        if now is not None and clock is not None:
            if now > clock + trust:
                believed = False
                jumps.append(now)
            else:
                clock = max(clock, now)
        if not believed or clock is None or time > clock + trust:
            facts["ahead"] += 1
        elif time < clock - trust:
            facts["behind"] += 1
        else:
            plausible.append((time, max(clock - time, 0), time < closed))
    latest = max((time for time, _, _ in plausible), default=None)
    return facts | {
        "clock": clock,
        "jump": min(jumps, default=None),
        "event": latest,
        "below": sum(below for _, _, below in plausible),
        "delays": [delay for _, delay, _ in plausible],
        "newest": sorted(
            (time for time, _, _ in timed if latest is not None and time <= latest), reverse=True
        ),
    }


def share_above(counts: Mapping[tuple[float, float], float], delay: float) -> Fraction:
    """The share of tuples above a delay, if those of each (from, to) are spread evenly over it."""
    total = above = Fraction(0)
    for (low, high), count in counts.items():
        part = (Fraction(high) - Fraction(delay)) / (Fraction(high) - Fraction(low))
        above += Fraction(count) * min(max(part, Fraction(0)), Fraction(1))
        total += Fraction(count)
    return above / total if total else Fraction(0)


def mean_share_above(
    counts: Mapping[tuple[float, float], float], delay: float, spread: float
) -> Fraction:
    """The mean of the share over delays from one to `spread` above it.

    Between the edges of buckets the share is a straight line: its middle is its mean.
    """
    if spread < 1:
        return share_above(counts, delay)
    inside = {edge for edges in counts for edge in edges if delay < edge < delay + spread}
    cuts = [delay, *sorted(inside), delay + spread]
    area = sum(
        share_above(counts, (Fraction(a) + Fraction(b)) / 2) * (Fraction(b) - Fraction(a))
        for a, b in pairwise(cuts)
    )
    return area / (Fraction(cuts[-1]) - Fraction(cuts[0]))


def delay_for(counts: Mapping[tuple[float, float], float], ratio: float, spread: float) -> float:
    """The smallest delay with a mean share of at most `ratio` above it, by halving."""
    if mean_share_above(counts, 0, spread) <= ratio:
        return 0.0
    low, high = 0.0, max(high for _, high in counts)
    for _ in range(60):
        middle = (low + high) / 2
        if mean_share_above(counts, middle, spread) > ratio:
            low = middle
        else:
            high = middle
    return high


def locate(
    fences: Mapping[int, shapely.Geometry],
    xs: Sequence[float],
    ys: Sequence[float],
    relation: str,
) -> list[tuple[int, int]]:
    """(row, fence) of every point that is in a fence, point by point and fence by fence."""
    holds = {"within": shapely.within, "intersects": shapely.intersects}[relation]
    found = []
    for row, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if math.isfinite(x) and math.isfinite(y):
            point = shapely.Point(x, y)
            found += [(row, n) for n, geometry in sorted(fences.items()) if holds(point, geometry)]
    return found


def fence_events(
    tuples: Sequence[tuple[str, int, frozenset[int]]], dwell_us: int | None
) -> list[tuple[str, int, str, int, int]]:
    """(object, fence, kind, time, time since entering), object by object and time by time."""
    events = []
    for own in {name for name, _, _ in tuples}:
        entered: dict[int, int] = {}
        dwelt: set[int] = set()
        seen = [(t, fences) for name, t, fences in tuples if name == own]
        for time in sorted({t for t, _ in seen}):
            inside = set().union(*(fences for t, fences in seen if t == time))
            for fence in entered.keys() - inside:
                events.append((own, fence, "LEAVE", time, time - entered.pop(fence)))
                dwelt.discard(fence)
            for fence in inside:
                if fence not in entered:
                    entered[fence] = time
                    events.append((own, fence, "ENTER", time, 0))
                elif dwell_us is not None and time - entered[fence] >= dwell_us:
                    if fence not in dwelt:
                        events.append((own, fence, "DWELL", time, time - entered[fence]))
                    dwelt.add(fence)
    return events
