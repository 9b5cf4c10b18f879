"""The sources in a batch (`DRATIO … PER column`) and when the windows of each close."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.control.closing import Schedule, closed_end, closes, schedule_from
from penstock.control.disorder import OTHERS


class Sources:
    """The sources in a column (`DRATIO … PER column`), and when their windows close."""

    def __init__(self, column: pa.Array, epoch: dict[str, Any]) -> None:
        if pa.types.is_floating(column.type):
            column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 and 0.0 are one group
        elif pa.types.is_temporal(column.type):  # Python's dates end in the year 9999
            column = column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
        encoded = column.dictionary_encode(null_encoding="encode")
        self.codes = encoded.indices.to_numpy().astype(np.int64)
        # as text, which JSON can carry; NULL is a source too
        self.names = [f"={v}" if v is not None else "null" for v in encoded.dictionary.to_pylist()]
        self._schedules = epoch["sources"]
        self._far_us = epoch["punctuation_us"] + epoch["trust_us"]

    def bounded(self, most: int) -> tuple[np.ndarray, list[str]]:
        """Codes and names; sources beyond `most` are lumped together."""
        if len(self.names) <= most:
            return self.codes, self.names
        return np.minimum(self.codes, most), [*self.names[:most], OTHERS]

    def _schedule(self, name: str) -> Schedule:
        known, others = self._schedules["known"], self._schedules["others"]
        return schedule_from(known.get(name, others))

    def closed_us(self, clock_us: int) -> np.ndarray:
        """Per row the event time up to which its source's windows are closed."""
        closed = [closed_end(self._schedule(name), clock_us) for name in self.names]
        return np.array(closed, np.int64)[self.codes]

    def closing_us(self, end_us: np.ndarray) -> np.ndarray:
        """Per row the clock time at which its window closes."""
        closing = np.empty_like(end_us)
        order = np.argsort(self.codes, kind="stable")
        cuts = np.searchsorted(self.codes[order], np.arange(len(self.names) + 1))
        for name, (first, end) in zip(self.names, pairwise(cuts), strict=True):
            rows = order[first:end]
            closing[rows] = closes(self._schedule(name), end_us[rows], self._far_us)
        return closing
