"""Slow, obvious twins of the kernels: loops over Python values, nothing shared with the kernels.

Values are in the domain of `Constant`: numbers as int or float, decimals unscaled, dates as days,
timestamps as microseconds, booleans as 0 or 1, strings as str, NULL as None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from penstock.plan.specs import Constant, Partial, SlotSpec, Term, ValueSet

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
    return all(in_set(row[name], values) for name, values in term.sets)


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
    closed_us: int,
) -> tuple[list[tuple[int, int, int]], list[int], list[bool]]:
    """(row, slot position, window end) to report; late rows by slot; rows late for some slot."""
    found, late_by_slot, late_rows = [], [0] * len(slots), [False] * len(times)
    for row, time in enumerate(times):
        for position in matched[row] if time is not None else ():
            slot = slots[position]
            range_us = slot.window.range_us
            ends = window_ends(time, range_us, slot.window.slide_us)
            if ends and all(end <= closed_us for end in ends):
                late_by_slot[position] += 1
                late_rows[row] = True
            for end in ends:
                if end > closed_us and (slot.from_us is None or end - range_us >= slot.from_us):
                    found.append((row, position, end))
    return found, late_by_slot, late_rows


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
    closed_us: int,
) -> dict[tuple[int, int, tuple[Any, ...]], list[Any]]:
    """Partial values by (slot number, window end, group)."""
    members: dict[tuple[int, int, tuple[Any, ...]], list[Row]] = {}
    for row, position, end in expand(slots, matched, times, closed_us)[0]:
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


def disorder_facts(
    times: Sequence[int], arrivals: Sequence[int] | None, previous_max_us: int | None
) -> tuple[int, int | None, int | None, int | None]:
    """Rows, largest event time, largest arrival time, largest delay."""
    delays, seen = [], previous_max_us
    for i, time in enumerate(times):
        seen = time if seen is None else max(seen, time)
        delays.append((seen if arrivals is None else arrivals[i]) - time)
    latest = None if arrivals is None else max(arrivals, default=None)
    return len(times), max(times, default=None), latest, max(delays, default=None)
