"""The workspace's own sink: results of all queries of a ring, one file per micro-batch.

A row that matched a thousand queries is stored once, with the list of its slots. The oldest files
go when a ring's results outgrow the limit (None: never); not those that somebody has in hand.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.runtime.sinks.files import write_whole
from penstock.runtime.sinks.matched import Matched, counts_by_slot

DEFAULT_LIMIT_BYTES = 1024**3


class ResultLog:
    def __init__(self, directory: Path, limit_bytes: int | None = DEFAULT_LIMIT_BYTES) -> None:
        self._directory = directory
        self._limit = limit_bytes
        self._guard = threading.Lock()
        found = sorted((int(p.stem), p.stat().st_size) for p in directory.glob("*.arrow"))
        self._sizes = dict(found)  # by micro-batch
        self._total = sum(self._sizes.values())
        self._held: Counter[int] = Counter()

    def append(
        self, batch: int, matched: Matched, counted: bool = False
    ) -> dict[int, dict[int, int]]:
        """Keep rows with their slots; a replayed micro-batch replaces its own file.

        Returns what had to go for it, if that is to be counted: rows by slot, by micro-batch.
        """
        rows = matched.rows.append_column("__slots", matched.slots)

        def write(out: object) -> None:
            with pa.ipc.new_file(out, rows.schema) as writer:
                writer.write_table(rows)

        path = self._path(batch)
        write_whole(path, write)
        size = path.stat().st_size
        with self._guard:
            self._total += size - self._sizes.get(batch, 0)
            self._sizes[batch] = size
            return self._cut(batch, counted)

    def _path(self, batch: int) -> Path:
        return self._directory / f"{batch:012d}.arrow"

    def _cut(self, newest: int, counted: bool) -> dict[int, dict[int, int]]:
        """Remove the oldest files beyond the limit, but for the newest and those in hand."""
        gone = {}
        for batch in list(self._sizes):
            if self._limit is None or self._total <= self._limit:
                break
            if batch == newest or self._held[batch]:
                continue
            if counted and (matched := _read(self._path(batch))) is not None:
                gone[batch] = counts_by_slot(matched.slots)
            self._remove(batch)
        return gone

    def _remove(self, batch: int) -> None:
        self._path(batch).unlink(missing_ok=True)
        self._total -= self._sizes.pop(batch)

    def clear(self) -> None:
        """Forget all rows."""
        with self._guard:
            for batch in list(self._sizes):
                self._remove(batch)

    def batches(self, first: int = 0) -> list[int]:
        """Micro-batches that have kept rows, from one on."""
        with self._guard:
            return [batch for batch in self._sizes if batch >= first]

    @contextmanager
    def in_hand(self, batch: int) -> Iterator[Matched | None]:
        """The rows of a micro-batch, which stay until the block ends; None if they are gone."""
        with self._guard:
            self._held[batch] += 1
        try:
            yield _read(self._path(batch))
        finally:
            with self._guard:
                self._held -= Counter([batch])

    def read(self, slot: int, first: int = 0) -> list[pa.Table]:
        """The kept rows of one query, oldest first, from a micro-batch on."""
        found = []
        for path in sorted(self._directory.glob("*.arrow")):
            if int(path.stem) < first or (matched := _read(path)) is None:
                continue
            rows = _rows_of(matched.slots, slot)
            if len(rows):
                found.append(matched.rows.take(pa.array(rows)))
        return found


def _read(path: Path) -> Matched | None:
    """What a file holds; None if it is gone: the oldest may go while we read."""
    try:
        with pa.memory_map(str(path)) as source:  # stays mapped as long as its rows are used
            table = pa.ipc.open_file(source).read_all()
    except FileNotFoundError:
        return None
    slots = table.column("__slots").combine_chunks()
    return Matched(table.drop_columns(["__slots"]), slots)


def _rows_of(slots: pa.ListArray, slot: int) -> np.ndarray:
    """Numbers of the rows whose list contains the slot."""
    hits = np.flatnonzero(slots.values.to_numpy() == slot)
    return np.searchsorted(slots.offsets.to_numpy(), hits, "right") - 1
