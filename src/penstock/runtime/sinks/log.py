"""The workspace's own sink: results of all queries of a ring, one file per micro-batch.

A row that matched a thousand queries is stored once, with the list of its slots. The oldest files
go when a ring's results outgrow the limit (None: never).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.runtime.sinks.files import write_whole
from penstock.runtime.sinks.matched import Matched

DEFAULT_LIMIT_BYTES = 1024**3


class ResultLog:
    def __init__(self, directory: Path, limit_bytes: int | None = DEFAULT_LIMIT_BYTES) -> None:
        self._directory = directory
        self._limit = limit_bytes
        self._sizes = {p: p.stat().st_size for p in sorted(directory.glob("*.arrow"))}
        self._total = sum(self._sizes.values())

    def append(self, batch: int, matched: Matched) -> None:
        """Keep rows with their slots; a replayed micro-batch replaces its own file."""
        rows = matched.rows.append_column("__slots", matched.slots)

        def write(out: object) -> None:
            with pa.ipc.new_file(out, rows.schema) as writer:
                writer.write_table(rows)

        path = self._directory / f"{batch:012d}.arrow"
        write_whole(path, write)
        size = path.stat().st_size
        self._total += size - self._sizes.get(path, 0)
        self._sizes[path] = size
        while self._limit is not None and self._total > self._limit and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            oldest.unlink(missing_ok=True)
            self._total -= self._sizes.pop(oldest)

    def read(self, slot: int) -> list[pa.Table]:
        """The kept rows of one query, oldest first."""
        found = []
        for path in sorted(self._directory.glob("*.arrow")):
            try:
                source = pa.memory_map(str(path))
            except FileNotFoundError:  # the oldest may go while we read
                continue
            with source:
                table = pa.ipc.open_file(source).read_all()
                rows = _rows_of(table.column("__slots"), slot)
                if len(rows):
                    found.append(table.drop_columns(["__slots"]).take(pa.array(rows)))
        return found


def _rows_of(lists: pa.ChunkedArray, slot: int) -> np.ndarray:
    """Numbers of the rows whose list contains the slot."""
    slots = lists.combine_chunks()
    hits = np.flatnonzero(slots.values.to_numpy() == slot)
    return np.searchsorted(slots.offsets.to_numpy(), hits, "right") - 1
