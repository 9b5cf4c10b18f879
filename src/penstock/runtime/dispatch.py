"""Results of one ring's micro-batch to the sinks of its queries; one Spark job for all of them.

A sink that fails closes its query only: the query is quarantined with the error, its results go on
into the workspace, and the other queries never notice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.runtime.sinks.log import ResultLog, rows_of_slot


class Sink(Protocol):
    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        """Take the rows of one micro-batch; a replayed one must not show twice."""
        ...


@dataclass(slots=True)
class CallbackSink:
    """A Python function; called again only for a micro-batch that another process began."""

    function: Callable[[pa.Table], Any]
    last: int = -1

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        if batch > self.last:
            self.last = batch
            self.function(rows)


@dataclass(slots=True)
class Dispatcher:
    """`foreachBatch` function of a ring."""

    ring: str
    names: tuple[str, ...]  # result columns as the users named them
    log: ResultLog
    quarantine: Callable[[int, BaseException], None]
    finish: Callable[[int, dict[int, int]], None]  # batch, rows by slot
    sinks: dict[int, Sink | None] = field(default_factory=dict)  # None: the log
    guard: threading.Lock = field(default_factory=threading.Lock)
    batches: int = 0

    def attach(self, slot: int, sink: Sink | None) -> None:
        with self.guard:
            self.sinks = {**self.sinks, slot: sink}

    def detach(self, slot: int) -> None:
        with self.guard:
            self.sinks = {k: v for k, v in self.sinks.items() if k != slot}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        table = _with_slot_lists(frame.toArrow())
        self.batches += 1
        self.finish(batch, self._deliver(table, batch) if table.num_rows else {})

    def _deliver(self, table: pa.Table, batch: int) -> dict[int, int]:
        sinks = self.sinks
        values = table.column("__slots").chunk(0).flatten().to_numpy()
        present, counts = np.unique(values, return_counts=True)
        counted = {int(s): int(n) for s, n in zip(present, counts, strict=True) if s in sinks}
        named = table.drop_columns(["__slots"]).rename_columns(list(self.names))
        logged = {slot for slot in counted if sinks[slot] is None}
        for slot in counted:
            sink = sinks[slot]
            if sink is None:
                continue
            try:
                rows = rows_of_slot(table, slot)
                sink.deliver(named.take(pa.array(rows)), self.ring, batch)
            except Exception as error:  # whatever a sink does must stay with its query
                self.quarantine(slot, error)
                self.attach(slot, None)
                logged.add(slot)
        if logged:
            self.log.append(batch, _only(table.column("__slots").chunk(0), named, logged))
        return counted


def _only(lists: pa.ListArray, rows: pa.Table, slots: set[int]) -> pa.Table:
    """The rows of some slots, each with the list of just those."""
    values = lists.flatten().to_numpy()
    hits = np.isin(values, list(slots))
    row_of = np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy()))[hits]
    kept, counts = np.unique(row_of, return_counts=True)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    chosen = pa.ListArray.from_arrays(offsets, pa.array(values[hits], pa.int32()))
    return rows.take(pa.array(kept)).append_column("__slots", pa.chunked_array([chosen]))


def _with_slot_lists(table: pa.Table) -> pa.Table:
    """Window rows have one slot, selected tuples a list: make both a list, one chunk, offset 0."""
    table = table.combine_chunks()
    if not table.num_rows:
        return table
    if "__slot" in table.schema.names:
        slots = table.column("__slot").chunk(0).cast(pa.int32())
        offsets = pa.array(np.arange(table.num_rows + 1, dtype=np.int32))
        lists = pa.ListArray.from_arrays(offsets, slots)
        table = table.drop_columns(["__slot"])
    else:
        lists = table.column("__slots").chunk(0)
        lists = pa.ListArray.from_arrays(
            pa.array(lists.offsets.to_numpy() - lists.offsets.to_numpy()[0]), lists.flatten()
        )
        table = table.drop_columns(["__slots"])
    return table.append_column("__slots", pa.chunked_array([lists]))
