"""Whose a combination is: the slots that want each of its tuples and whose ranges admit it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.bit_table import Bounds
from penstock.kernels.columns import INT64_MAX, INT64_MIN
from penstock.kernels.jit import (
    INT_ROWS,
    INTS,
    SMALL_INTS,
    Flags,
    Ints,
    SmallInts,
    inner,
    kernel,
)

_FEW = 16  # slots of a row: a call to sort them costs more than that


def ascending_slots(lists: pa.ListArray) -> pa.ListArray:
    """The slots of each row, ascending: a selection gives them in any order.

    >>> ascending_slots(pa.array([[2, 1], [], [3]], pa.list_(pa.int32()))).to_pylist()
    [[1, 2], [], [3]]
    """
    offsets, values = _parts(lists)
    if _ascend(offsets, values):
        return lists
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(_sorted(offsets, values)))


def combination_slots(
    wanted: Sequence[pa.ListArray], times_us: Ints, slots: Ints, ranges_us: Ints
) -> pa.ListArray:
    """For each combination the slots, ascending.

    wanted: by input, the slots of the member's tuple, ascending. times_us: by combination and
    input. slots: those that live, ascending; ranges_us: by slot and input.
    """
    offsets, values = _parts(wanted[0])
    for other in wanted[1:]:
        offsets, values = _intersected(offsets, values, *_parts(other))
    offsets, values = _within_ranges(offsets, values, times_us, slots, ranges_us)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def wanted_by(lists: pa.ListArray, slots: Ints) -> Flags:
    """Which rows any of these slots wants.

    >>> wanted_by(pa.array([[1, 2], [], [3]], pa.list_(pa.int32())), np.array([2, 4]))
    array([ True, False, False])
    """
    offsets, values = _parts(lists)
    through = np.append(0, np.cumsum(np.isin(values, slots)))
    some: Flags = through[offsets[1:]] > through[offsets[:-1]]
    return some


def slot_bounds(lists: pa.ListArray, times_us: Ints, slots: Ints, ranges_us: Ints) -> Bounds:
    """How far each tuple reaches for the slots that want it, and which these are, as bits.

    slots: those that live, ascending; ranges_us: of each. Slots that are 64 apart share a bit. A
    tuple that nobody wants has none, and reaches nobody.

    >>> lists = pa.array([[1, 2], [3]], pa.list_(pa.int32()))
    >>> slot_bounds(lists, np.array([10, 10]), np.array([1, 2]), np.array([5, 7])).wanted
    array([6, 0])
    """
    offsets, values = _parts(lists)
    return Bounds(*_bounds(offsets, values, times_us, slots, ranges_us))


def _parts(lists: pa.ListArray) -> tuple[SmallInts, SmallInts]:
    return lists.offsets.to_numpy(), lists.values.to_numpy()


@kernel(SMALL_INTS, SMALL_INTS)
def _ascend(offsets: SmallInts, values: SmallInts) -> bool:
    for row in range(offsets.size - 1):
        for at in range(offsets[row] + 1, offsets[row + 1]):
            if values[at - 1] > values[at]:
                return False
    return True


@kernel(SMALL_INTS, SMALL_INTS)
def _sorted(offsets: SmallInts, values: SmallInts) -> SmallInts:
    """The values, ascending within each row."""
    found = values.copy()
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        if end - begin > _FEW:
            found[begin:end].sort()
            continue
        for at in range(begin + 1, end):
            value, place = found[at], at
            while place > begin and found[place - 1] > value:
                found[place] = found[place - 1]
                place -= 1
            found[place] = value
    return found


@kernel(SMALL_INTS, SMALL_INTS, SMALL_INTS, SMALL_INTS)
def _intersected(
    offsets_a: SmallInts, values_a: SmallInts, offsets_b: SmallInts, values_b: SmallInts
) -> tuple[SmallInts, SmallInts]:
    """The values that are in both of two ascending lists, row by row."""
    offsets = np.zeros(offsets_a.size, np.int32)
    values = np.empty(values_a.size, np.int32)
    count = 0
    for row in range(offsets_a.size - 1):
        a, b = offsets_a[row], offsets_b[row]
        while a < offsets_a[row + 1] and b < offsets_b[row + 1]:
            if values_a[a] == values_b[b]:
                values[count] = values_a[a]
                count += 1
            step = values_a[a] - values_b[b]
            a += step <= 0
            b += step >= 0
        offsets[row + 1] = count
    return offsets, values[:count].copy()


@inner
def _place(slots: Ints, slot: int) -> int:
    """Where a slot stands among ascending ones, or the first greater one."""
    low, high = 0, slots.size
    while low < high:
        middle = (low + high) // 2
        if slots[middle] < slot:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _reaches(time: int, range_: int, latest: int) -> bool:
    endless = range_ == INT64_MAX or time > INT64_MAX - range_
    return bool(endless or time + range_ >= latest)


@kernel(SMALL_INTS, SMALL_INTS, INTS, INTS, INTS)
def _bounds(
    offsets: SmallInts, values: SmallInts, times_us: Ints, slots: Ints, ranges_us: Ints
) -> tuple[Ints, Ints]:
    reaches = np.full(times_us.size, INT64_MIN, np.int64)
    wanted = np.zeros(times_us.size, np.int64)
    for row in range(times_us.size):
        for at in range(offsets[row], offsets[row + 1]):
            place = _place(slots, values[at])
            if place < slots.size and slots[place] == values[at]:
                time, range_ = times_us[row], ranges_us[place]
                endless = range_ == INT64_MAX or time > INT64_MAX - range_
                reaches[row] = max(reaches[row], INT64_MAX if endless else time + range_)
                wanted[row] |= 1 << (values[at] & 63)
    return reaches, wanted


@kernel(SMALL_INTS, SMALL_INTS, INT_ROWS, INTS, INT_ROWS)
def _within_ranges(
    offsets: SmallInts, values: SmallInts, times_us: Ints, slots: Ints, ranges_us: Ints
) -> tuple[SmallInts, SmallInts]:
    """Drop slots that do not live or whose ranges are too short."""
    kept = np.zeros(offsets.size, np.int32)
    slots_kept = np.empty(values.size, np.int32)
    count = 0
    for row in range(offsets.size - 1):
        latest = times_us[row].max()
        for at in range(offsets[row], offsets[row + 1]):
            place = _place(slots, values[at])
            if place == slots.size or slots[place] != values[at]:
                continue
            admitted = True
            for i in range(times_us.shape[1]):
                admitted &= _reaches(times_us[row, i], ranges_us[place, i], latest)
            if admitted:
                slots_kept[count] = values[at]
                count += 1
        kept[row + 1] = count
    return kept, slots_kept[:count].copy()
