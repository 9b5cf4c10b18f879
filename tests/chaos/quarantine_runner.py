"""Results of a ring to files on a disk that fails now and then: FOLDER BATCHES; to be killed.

The part of Spark is played by a loop: a micro-batch that was not committed is done again.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.control.quarantine import Patience
from penstock.runtime.dispatch import Dispatcher, Outlets
from penstock.runtime.registry import Registry
from penstock.runtime.rings.quarantine import Quarantine
from penstock.runtime.sinks.files import FileSink, write_whole
from penstock.runtime.sinks.live import Subscribers
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.pool import SinkPool


class Rows:
    """The one call that dispatch makes of a DataFrame."""

    def __init__(self, slot: int, value: int) -> None:
        slots = pa.array([[slot]], pa.list_(pa.int32()))
        self._table = pa.table({"__slots": slots, "__o0": [value]})

    def toArrow(self) -> pa.Table:  # Spark's name
        return self._table


@dataclass
class Unreliable:
    """Files of a query; the disk fails for a while, before or after it has written."""

    files: FileSink
    mended: bool = False
    pooled: bool = True

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        fails = random.random() < 0.3 and not self.mended
        if fails and random.random() < 0.5:
            raise OSError("not written")
        self.files.deliver(rows, ring, batch)
        if fails:
            raise OSError("written, but nobody knows")


def main(folder: Path, batches: int) -> None:
    registry = Registry(folder / "catalog.sqlite")
    known = registry.query("q")
    slot = registry.add_query("q", "", "ring", "") if known is None else known.slot
    pool = SinkPool(lambda: 30.0)
    quarantine = Quarantine(
        registry,
        lambda: Patience(first_s=0.02, longest_s=0.02, tries=10**6),
        lambda: 30.0,
        lambda: time.time_ns() // 1000,
        pool.is_stuck,
    )
    logs = ResultLog(folder / "log"), ResultLog(folder / "waiting")
    ring = Dispatcher(
        "ring", ("n",), *logs, quarantine, lambda batch, rows: None, Outlets(pool, Subscribers())
    )
    behind = registry.query_by_slot(slot).state == "quarantined"
    sink = Unreliable(FileSink(str(folder / "out"), "parquet", "q"))
    key = ring.attach(slot, sink, None, behind)
    if behind:
        quarantine.take_up(ring, slot, key)
    committed = folder / "committed"
    first = int(committed.read_text()) + 1 if committed.exists() else 0
    for batch in range(first, batches):
        ring(Rows(slot, batch), batch)  # type: ignore[arg-type]
        write_whole(committed, lambda out, done=batch: out.write(str(done).encode()))
        time.sleep(0.005)
    sink.mended = True
    quarantine.try_all()
    quarantine.settle(time.monotonic() + 60)
    print(registry.query_by_slot(slot).state, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
