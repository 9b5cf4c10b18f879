"""For tests of your own queries: a stream whose tuples you write down, and a clock that you move.

Tests of continuous queries are about order: this comes first, then that, then a late one. A
scripted stream gives every push a micro-batch of its own, in the order of the pushes, so a test
can say what is known at each moment and ask for exact results:

    def test_a_late_tuple_is_counted(spark):
        with quick_engine(spark) as engine:
            schema = "id INT, ts TIMESTAMP"
            sensors = ScriptedStream(engine, "Sensors", schema, event_time="ts", slack="0 s")
            query = engine.register("SELECT count(*) AS n FROM Sensors [RANGE 10 SECONDS]")
            sensors.push([{"id": 1, "ts": 5}, {"id": 2, "ts": 25}])
            sensors.push([{"id": 3, "ts": 7}])  # its window has closed
            engine.await_idle()
            assert query.results().column("n").to_pylist() == [1]
            assert query.status.late == 1

With a clock that you move, a generated stream makes as many tuples as the test wants:

    clock = ManualClock()
    with quick_engine(spark, clock_us=clock) as engine:
        engine.execute("CREATE STREAM G (id INT, ts TIMESTAMP) WITH (source = 'generator', …)")
        clock.advance(2.5)
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.plan.catalog import OptionValue
from penstock.runtime.engine import Engine
from penstock.schema import Schema

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class ManualClock:
    """A clock for `Engine(clock_us=…)` that stands still until it is moved.

    >>> clock = ManualClock(start_us=1_000_000)
    >>> clock.advance(0.5)
    >>> clock()
    1500000
    """

    def __init__(self, start_us: int = 0) -> None:
        self._now_us = start_us

    def __call__(self) -> int:
        return self._now_us

    def advance(self, seconds: float) -> None:
        """Move the clock on; time never goes back."""
        if seconds < 0:
            raise PenstockError(f"a clock cannot go back by {-seconds} s", "advance by 0 or more")
        self._now_us += round(seconds * 1_000_000)


class ScriptedStream:
    """A stream whose tuples come from `push`: each push is a micro-batch of all its rings.

    schema: columns as in CREATE STREAM. event_time, arrival_time, estimator, slack: as its options.
    directory: where pushes are kept as Arrow files; without one, in a temporary directory that goes
    with `close()`. After a restart on the same workspace and directory, the stream goes on.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        schema: str,
        *,
        event_time: str | None = None,
        arrival_time: str | None = None,
        estimator: str | None = None,
        slack: str | None = None,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        self.name = name
        self.schema = Schema.of(schema)
        self._temporary = directory is None
        made = tempfile.mkdtemp(prefix="penstock-script-") if directory is None else directory
        self.directory = Path(made).absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._pushes = len(list(self.directory.glob("*.arrow")))
        if engine.catalog.get(name) is None:
            options = {
                "source": "file",
                "path": str(self.directory),
                "format": "arrow",
                "max_files_per_batch": "1",
                "event_time": event_time,
                "arrival_time": arrival_time,
                "estimator": estimator,
                "slack": slack,
            }
            given = ", ".join(f"{k} = {_quoted(v)}" for k, v in options.items() if v is not None)
            engine.execute(f"CREATE STREAM {name} ({self.schema.ddl()}) WITH ({given})")

    def __enter__(self) -> ScriptedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def push(self, rows: Sequence[Mapping[str, Any]] | pa.Table) -> None:
        """Let tuples arrive, in this order; `engine.await_idle()` waits until they are processed.

        A missing column is NULL. Times may be datetimes (without a zone: UTC), ISO texts, or plain
        numbers: seconds since 1970.
        """
        table = rows if isinstance(rows, pa.Table) else self._table(rows)
        self._pushes += 1
        path = self.directory / f"{self._pushes:09d}.arrow"
        beside = path.with_name(f"_{path.name}")
        with pa.OSFile(str(beside), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        # files are read oldest first, and a file system's clock may be too coarse to tell two
        # pushes
        os.utime(beside, ns=(self._pushes * 1_000_000_000, self._pushes * 1_000_000_000))
        os.replace(beside, path)

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        schema = self.schema.arrow()
        for row in rows:
            for column in row:
                if column not in schema.names:
                    known = ", ".join(schema.names)
                    raise PenstockError(f"{self.name} has no column {column}", f"columns: {known}")
        columns = [
            pa.array([_value(row.get(field.name), field.type) for row in rows], field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def close(self) -> None:
        """Remove what was pushed, if it is in a temporary directory; stop the engine first."""
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def quick_engine(
    spark: SparkSession | None = None,
    workspace: str | os.PathLike[str] | None = None,
    *,
    bounded: bool = False,
    clock_us: Callable[[], int] | None = None,
    settings: Mapping[str, OptionValue] | None = None,
) -> Engine:
    """An engine for short tests: no pause between micro-batches, one task, state in memory."""
    fast: dict[str, OptionValue] = {"trigger_ms": 10, "parallelism": 1, "state_store": "memory"}
    quick = {**fast, **(settings or {})}
    if clock_us is None:
        return Engine(spark, workspace, bounded=bounded, settings=quick)
    return Engine(spark, workspace, bounded=bounded, clock_us=clock_us, settings=quick)


def _value(value: Any, type_: pa.DataType) -> Any:
    if value is None or not pa.types.is_timestamp(type_):
        return value
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    elif isinstance(value, (int, float)):
        value = _EPOCH + dt.timedelta(microseconds=round(value * 1_000_000))
    value = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
    return value if type_.tz is not None else value.replace(tzinfo=None)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
