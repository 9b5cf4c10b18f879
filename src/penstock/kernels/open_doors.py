"""Slots that need no more than a door: whoever comes through it has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from penstock.kernels.jit import INTS, SMALL_INTS, Ints, SmallInts, kernel


class OpenDoors:
    """Slots by number, with the numbers of their doors."""

    def __init__(self) -> None:
        self._doors: dict[int, Sequence[int]] = {}  # by slot
        self._by_door: tuple[Ints, Ints] | None = None  # offsets, slots

    def __len__(self) -> int:
        return len(self._doors)

    def change(self, added: Mapping[int, Sequence[int]], dropped: Collection[int] = ()) -> None:
        for slot in dropped:
            self._doors.pop(slot, None)
        self._doors.update(added)
        self._by_door = None

    def pairs(self, rows: Ints, doors: Ints, slot_numbers: Ints) -> tuple[Ints, SmallInts]:
        """Rows and positions of slots, of rows that come through doors, in their order."""
        if self._by_door is None:
            self._by_door = self._turned()
        offsets, slots = self._by_door
        positions = np.searchsorted(slot_numbers, slots).astype(np.int32)
        return _pass_doors(rows, doors, offsets, positions)

    def _turned(self) -> tuple[Ints, Ints]:
        counts = np.fromiter(map(len, self._doors.values()), np.int64, len(self._doors))
        slots = np.repeat(np.fromiter(self._doors, np.int64, counts.size), counts)
        doors = np.array([door for own in self._doors.values() for door in own], np.int64)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(doors))])
        return offsets, slots[np.argsort(doors, kind="stable")]


@kernel(INTS, INTS, INTS, SMALL_INTS)
def _pass_doors(
    rows: Ints, doors: Ints, offsets: Ints, positions: SmallInts
) -> tuple[Ints, SmallInts]:
    count = 0
    last = offsets.size - 1  # doors from here on have no slots
    for door in doors:
        if door < last:
            count += offsets[door + 1] - offsets[door]
    found_rows, found = np.empty(count, np.int64), np.empty(count, np.int32)
    used = 0
    for at in range(rows.size):
        if doors[at] < last:
            for place in range(offsets[doors[at]], offsets[doors[at] + 1]):
                found_rows[used], found[used] = rows[at], positions[place]
                used += 1
    return found_rows, found
