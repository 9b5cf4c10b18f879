"""Terms: conjunctions of predicates on keys, in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.kernels.jit import Ints


@dataclass(frozen=True, slots=True)
class TermRows:
    """Terms of slots; a term's predicates are the rows from one offset to the next.

    A row is (attribute, first key, last key, 1 if NULL holds), rows of an attribute are neighbours.
    """

    slots: Ints
    offsets: Ints
    rows: Ints

    @classmethod
    def of(
        cls, slots: Sequence[int], terms: Sequence[Sequence[tuple[int, int, int, int]]]
    ) -> TermRows:
        rows = np.array([row for term in terms for row in term], np.int64).reshape(-1, 4)
        offsets = np.cumsum([0, *map(len, terms)], dtype=np.int64)
        return cls(np.array(slots, np.int64), offsets, rows)

    def __len__(self) -> int:
        return int(self.slots.size)

    def taken(self, order: Ints) -> TermRows:
        """The terms in another order."""
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return TermRows(
            self.slots[order], offsets, self.rows[np.repeat(self.offsets[order], counts) + within]
        )

    def followed_by(self, other: TermRows) -> TermRows:
        return TermRows(
            np.concatenate([self.slots, other.slots]),
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            np.concatenate([self.rows, other.rows]),
        )

    def bounds_of(self, attribute: int) -> tuple[Ints, Ints]:
        """First and last keys of an attribute's predicates."""
        rows = self.rows[(self.rows[:, 0] == attribute) & (self.rows[:, 1] <= self.rows[:, 2])]
        return np.ascontiguousarray(rows[:, 1]), np.ascontiguousarray(rows[:, 2])
