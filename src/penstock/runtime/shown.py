"""Which of a ring's columns its slots show: what nobody shows is neither read nor shipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.selection import Matches
from penstock.plan.specs import SlotSpec

Places = tuple[int, ...]


@dataclass(slots=True)
class ShownColumns:
    """The slots of a ring, each with the places of the columns that it shows."""

    _of: dict[int, Places] = field(default_factory=dict)
    _lists: Counter[Places] = field(default_factory=Counter)
    _known: dict[Places, Places] = field(default_factory=dict)  # equal lists are one
    _wants: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)  # by place, as asked

    def change(self, added: Iterable[SlotSpec], dropped: Iterable[int]) -> None:
        self._wants.clear()
        for number in dropped:
            self._leave(number)
        for slot in added:
            self._leave(slot.slot)
            self._of[slot.slot] = self._known.setdefault(slot.shows, slot.shows)
            self._lists[slot.shows] += 1

    def _leave(self, slot: int) -> None:
        if (shows := self._of.pop(slot, None)) is not None:
            self._lists[shows] -= 1
            if not self._lists[shows]:
                del self._lists[shows], self._known[shows]

    @property
    def places(self) -> list[int]:
        """What any slot shows."""
        return sorted(set().union(*self._lists))

    def of(self, slot: int) -> Places:
        """What one slot shows."""
        return self._of[slot]

    def taken(
        self,
        batch: pa.RecordBatch,
        columns: Iterable[tuple[int, str]],
        rows: npt.NDArray[np.int64],
        matches: Matches,
        slots: npt.NDArray[np.int64],
    ) -> list[pa.Array]:
        """Columns, given by place and name, of the rows that have matches; `slots` are all.

        Long values are copied only for queries that show them: one query with a text must not make
        the rows of a thousand others heavy.
        """
        found, plain = [], pa.array(rows)
        for place, name in columns:
            values, taken = batch.column(name), plain
            if _is_long(values.type) and not all(place in shows for shows in self._lists):
                wants = self._wanting(place, slots)
                wanted = np.logical_or.reduceat(wants[matches.slots], matches.offsets[rows])
                taken = pa.array(rows, mask=~wanted)
            found.append(values.take(taken))
        return found

    def _wanting(self, place: int, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of all slots show a column."""
        if place not in self._wants:
            lists = map(self._of.__getitem__, slots.tolist())
            self._wants[place] = np.fromiter((place in shows for shows in lists), bool, slots.size)
        return self._wants[place]


def _is_long(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_binary(type_)
