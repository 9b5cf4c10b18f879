"""Results in this process: the last rows, bounded."""

from __future__ import annotations

import threading
from collections import deque

import pyarrow as pa


class NewestRows:
    """Rows of micro-batches, each once; of more than `limit` the oldest go and are counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows = 0
        self._last = ("", -1)  # ring and micro-batch
        self.tables: deque[pa.Table] = deque()
        self.dropped = 0

    def add(self, rows: pa.Table, batch: int, ring: str = "") -> None:
        known, last = self._last
        if ring == known and batch <= last:
            return  # a replay: these rows are here already
        self._last = (ring, batch)  # another ring counts otherwise
        self.tables.append(rows)
        self._rows += rows.num_rows
        while self._rows > self._limit:
            excess = self._rows - self._limit
            oldest = self.take()
            if oldest.num_rows > excess:
                self.tables.appendleft(oldest.slice(excess))
                self._rows += oldest.num_rows - excess
            self.dropped += min(excess, oldest.num_rows)

    def take(self) -> pa.Table:
        """The oldest table, which is then no longer here."""
        oldest = self.tables.popleft()
        self._rows -= oldest.num_rows
        return oldest


class MemorySink:
    """Keeps the newest `limit` rows; what falls out is counted."""

    pooled = False

    def __init__(self, limit: int) -> None:
        self._newest = NewestRows(limit)
        self._guard = threading.Lock()

    @property
    def forgotten(self) -> int:
        return self._newest.dropped

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        with self._guard:
            self._newest.add(rows, batch, ring)

    def rows(self) -> list[pa.Table]:
        with self._guard:
            return list(self._newest.tables)
