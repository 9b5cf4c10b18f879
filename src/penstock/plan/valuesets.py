"""Algebra of the value sets that predicates select.

A set is described by its *cuts*: the places in the order of values where membership begins or ends.
A cut lies just before or just after a constant, and one place has one name, so a sorted list of
cuts is a normal form: two equal sets have equal intervals. To give each place one name:

- integers are discrete: just after 5 is just before 6, and every integer bound is closed;
- NaN is the greatest float: just before NaN is just after +inf, just after NaN is the top, so NaN
  never stands in an interval, and NaN alone is the open interval above +inf;
- nothing is below -inf or the empty string: just before them is the bottom.

Floats and strings count as dense otherwise. NULL is no value: it is a flag beside the intervals.
Every function takes sets in normal form and returns them so; `normalise` makes one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import pairwise

from penstock.language.ast import Operator
from penstock.plan.specs import Constant, Interval, ValueSet

# (rank, constant, side): rank -1 is the bottom, 1 the top; side 0 is before the constant, 1 after.
Cut = tuple[int, Constant, int]
_BOTTOM: Cut = (-1, 0, 0)
_TOP: Cut = (1, 0, 0)

ALL_VALUES = ValueSet((Interval(None, False, None, False),), False)
EVERYTHING = ValueSet(ALL_VALUES.intervals, True)
NOTHING = ValueSet((), False)
ONLY_NULL = ValueSet((), True)


def compare(op: Operator, constant: Constant) -> ValueSet:
    """The values v with `v op constant`; `<=>` is `=` here, as the constant is never NULL."""
    before, after = _before(constant), _after(constant)
    match op:
        case "=" | "<=>":
            cuts = [before, after]
        case "<>":
            cuts = [_BOTTOM, before, after, _TOP]
        case "<":
            cuts = [_BOTTOM, before]
        case "<=":
            cuts = [_BOTTOM, after]
        case ">":
            cuts = [after, _TOP]
        case ">=":
            cuts = [before, _TOP]
    return _from_cuts(cuts, False)


def one_of(constants: Iterable[Constant]) -> ValueSet:
    return union(*(compare("=", c) for c in constants))


def union(*sets: ValueSet) -> ValueSet:
    return _sweep(sets, lambda inside: inside > 0, any(s.null for s in sets))


def intersect(*sets: ValueSet) -> ValueSet:
    if not sets:
        return EVERYTHING
    return _sweep(sets, lambda inside: inside == len(sets), all(s.null for s in sets))


def complement(values: ValueSet) -> ValueSet:
    """The non-null values that are not in the set; NULL is never in the result."""
    return _from_cuts([_BOTTOM, *_cuts(values), _TOP], False)


def restrict(values: ValueSet, least: Constant, greatest: Constant) -> ValueSet:
    """The same set for a type with these extreme values: bounds that say no more are left out."""
    below, above = _before(least), _after(greatest)
    cuts = [_BOTTOM if cut <= below else _TOP if cut >= above else cut for cut in _cuts(values)]
    return _from_cuts(cuts, values.null)


def normalise(values: ValueSet) -> ValueSet:
    """The normal form of a set built by hand, whose intervals may even overlap."""
    return union(values)


def is_subset(inner: ValueSet, outer: ValueSet) -> bool:
    return intersect(inner, outer) == inner


def contains(values: ValueSet, value: Constant | None) -> bool:
    """Whether one value is in the set: the slow, obvious twin of the selection kernels."""
    if value is None:
        return values.null
    return any(_lies_in(value, interval) for interval in values.intervals)


def _lies_in(value: Constant, interval: Interval) -> bool:
    position = _order(value)
    if interval.low is not None:
        low = _order(interval.low)
        if position < low or (position == low and not interval.low_closed):
            return False
    if interval.high is not None:
        high = _order(interval.high)
        if position > high or (position == high and not interval.high_closed):
            return False
    return True


def _order(value: Constant) -> tuple[bool, Constant]:
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0.0 if is_nan else value)


def _before(constant: Constant) -> Cut:
    if isinstance(constant, float):
        if math.isnan(constant):
            return (0, math.inf, 1)
        return _BOTTOM if constant == -math.inf else (0, constant + 0.0, 0)  # -0.0 + 0.0 is 0.0
    if isinstance(constant, str):
        return (0, constant, 0) if constant else _BOTTOM
    return (0, int(constant), 0)


def _after(constant: Constant) -> Cut:
    if isinstance(constant, float):
        return _TOP if math.isnan(constant) else (0, constant + 0.0, 1)
    if isinstance(constant, str):
        return (0, constant, 1)
    return (0, int(constant) + 1, 0)


def _low_cut(interval: Interval) -> Cut:
    if interval.low is None:
        return _BOTTOM
    return _before(interval.low) if interval.low_closed else _after(interval.low)


def _high_cut(interval: Interval) -> Cut:
    if interval.high is None:
        return _TOP
    return _after(interval.high) if interval.high_closed else _before(interval.high)


def _cuts(values: ValueSet) -> list[Cut]:
    cuts: list[Cut] = []
    for interval in values.intervals:
        low, high = _low_cut(interval), _high_cut(interval)
        if low < high:
            cuts += [low, high]
    return cuts


def _from_cuts(cuts: list[Cut], null: bool) -> ValueSet:
    """The set that is entered at the 1st, 3rd, … cut and left at the 2nd, 4th, …; sorted."""
    toggles: list[Cut] = []
    for cut in cuts:
        if toggles and toggles[-1] == cut:
            toggles.pop()  # left and entered at one place: no boundary
        else:
            toggles.append(cut)
    bounds = iter(toggles)
    return ValueSet(
        tuple(_interval(low, high) for low, high in zip(bounds, bounds, strict=True)), null
    )


def _interval(low: Cut, high: Cut) -> Interval:
    low_constant, low_closed = (None, False) if low == _BOTTOM else (low[1], low[2] == 0)
    if high == _TOP:
        return Interval(low_constant, low_closed, None, False)
    if isinstance(high[1], int):
        return Interval(low_constant, low_closed, high[1] - 1, True)
    return Interval(low_constant, low_closed, high[1], high[2] == 1)


def _sweep(sets: Iterable[ValueSet], wanted: Callable[[int], bool], null: bool) -> ValueSet:
    """Walk over all cuts in order, counting the open intervals; keep where it is wanted."""
    changes: dict[Cut, int] = {}
    for values in sets:
        for interval in values.intervals:
            low, high = _low_cut(interval), _high_cut(interval)
            if low < high:
                changes[low] = changes.get(low, 0) + 1
                changes[high] = changes.get(high, 0) - 1
    places = sorted(changes)
    inside = 0
    kept: list[Cut] = []
    for place, following in pairwise(places):
        inside += changes[place]
        if wanted(inside):
            kept += [place, following]
    return _from_cuts(kept, null)
