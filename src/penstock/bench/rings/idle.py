"""What rings cost that have nothing to do: processor time of the engine, its JVM and all workers.

Rings of one kind, each of a composition of its own, over files of which no more come and over a
generator that has ended. The same engine without any ring is measured first and taken off; Spark
has just started then and takes a little more than later.

`python -m penstock.bench.rings.idle RINGS SECONDS`
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.bench.machine import cpu_seconds
from penstock.runtime.engine import Engine

_COLUMNS = tuple(f"c{n}" for n in range(10))
_SETTLE_S = 15.0  # until rings have started and found nothing, and what is young is compiled

# of one composition each, by the number that is put in
_KINDS = {
    "select": "SELECT {column} FROM {stream} WHERE {column} > 1",
    "window": "SELECT max({column}) AS m FROM {stream} [RANGE 10 SECONDS] WHERE {column} > 1",
    "join": "SELECT x.{column} FROM {stream} [RANGE 10 SECONDS] AS x,"
    " {stream} [RANGE 10 SECONDS] AS y WHERE x.id = y.id AND y.{column} > 1",
}


def idle_shares(rings: int, seconds: float) -> Iterator[tuple[str, float]]:
    """By kind of ring and source, the share of a core that one idle ring takes."""
    for source in ("files", "generator"):
        for kind, text in _KINDS.items():
            yield f"{kind} over {source}", _share_of(text, source, rings, seconds)


def _share_of(text: str, source: str, rings: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as scratch, Engine() as engine:
        for statement in _streams(Path(scratch), source):
            engine.execute(statement)
        alone = _burnt(seconds / 2)
        with engine.together():
            for number in range(rings):
                column = _COLUMNS[number % len(_COLUMNS)]
                engine.register(text.format(column=column, stream="S"))
        engine.await_idle()
        assert len(engine.rings()) == rings, engine.rings()
        time.sleep(_SETTLE_S)
        return (_burnt(seconds) - alone) / rings


def _streams(scratch: Path, source: str) -> Iterator[str]:
    columns = ", ".join(f"{name} INT" for name in _COLUMNS)
    if source == "generator":
        options = "source = 'generator', rows = 1000"
    else:
        options = f"source = 'file', path = '{scratch}', format = 'parquet'"
        ints = {name: pa.array([1, 2, 3], pa.int32()) for name in ("id", *_COLUMNS)}
        times = pa.array([0, 1, 2], pa.timestamp("us", tz="UTC"))
        pq.write_table(pa.table({**ints, "ts": times}), scratch / "one.parquet")
    yield f"CREATE STREAM S (id INT, {columns}, ts TIMESTAMP) WITH ({options}, event_time = 'ts')"


def _burnt(seconds: float) -> float:
    """Cores that this process and all that come from it are busy with."""
    before, begin = cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    after, passed = cpu_seconds(), time.perf_counter() - begin
    assert before is not None, "measured on Linux only"
    assert after is not None
    return (after - before) / passed


if __name__ == "__main__":
    for kind, share in idle_shares(int(sys.argv[1]), float(sys.argv[2])):
        print(f"{kind:24}{100 * share:8.3f}% of a core per ring", flush=True)
