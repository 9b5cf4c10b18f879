"""Results in this process: the last rows, bounded."""

from __future__ import annotations

import threading
from collections import deque

import pyarrow as pa


class MemorySink:
    """Keeps the newest `limit` rows; what falls out is counted."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tables: deque[pa.Table] = deque()
        self._rows = 0
        self._last = -1
        self._guard = threading.Lock()
        self.forgotten = 0

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        with self._guard:
            if batch <= self._last:
                return  # a replay: these rows are here already
            self._last = batch
            self._tables.append(rows)
            self._rows += rows.num_rows
            while self._rows > self._limit:
                excess = self._rows - self._limit
                oldest = self._tables.popleft()
                if oldest.num_rows > excess:
                    self._tables.appendleft(oldest.slice(excess))
                dropped = min(excess, oldest.num_rows)
                self._rows -= dropped
                self.forgotten += dropped

    def rows(self) -> list[pa.Table]:
        with self._guard:
            return list(self._tables)
