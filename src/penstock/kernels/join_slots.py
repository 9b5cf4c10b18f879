"""Whose a combination is: the slots that want each of its tuples and whose ranges admit it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import INT_ROWS, INTS, SMALL_INTS, Ints, SmallInts, inner, kernel


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


def _parts(lists: pa.ListArray) -> tuple[SmallInts, SmallInts]:
    return lists.offsets.to_numpy(), lists.values.to_numpy()


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
