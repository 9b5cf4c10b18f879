"""The public testing module: what its documentation promises."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.testing import ManualClock, ScriptedStream, quick_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_pushes_come_one_by_one_and_in_order(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[list[int]] = []
    with quick_engine(spark) as engine:
        stream = ScriptedStream(engine, "S", "id INT, ts TIMESTAMP", directory=tmp_path / "s")
        engine.register("SELECT id FROM S", sink=lambda rows: seen.append(rows["id"].to_pylist()))
        for first in (1, 10, 20):
            stream.push([{"id": first}, {"id": first + 1}])
        engine.await_idle()
        stream.push(pa.table({"id": pa.array([30], pa.int32())}))
        engine.await_idle()
    assert seen == [[1, 2], [10, 11], [20, 21], [30]]


def test_times_may_be_written_in_several_ways(spark: SparkSession, tmp_path: Path) -> None:
    moment = dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC)
    ways = [
        moment,
        moment.replace(tzinfo=None),
        "2024-01-01T11:00:00+01:00",
        "2024-01-01 10:00",
        moment.timestamp(),
        None,
    ]
    with quick_engine(spark) as engine:
        stream = ScriptedStream(engine, "S", "ts TIMESTAMP", directory=tmp_path / "s")
        query = engine.register("SELECT ts FROM S")
        stream.push([{"ts": way} for way in ways])
        engine.await_idle()
        found = query.results()["ts"].to_pylist()
    assert found == [moment] * 5 + [None]


def test_a_column_that_the_stream_lacks_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with quick_engine(spark) as engine:
        stream = ScriptedStream(engine, "S", "id INT", directory=tmp_path / "s")
        with pytest.raises(PenstockError, match="S has no column ID\ncolumns: id"):
            stream.push([{"ID": 1}])


def test_a_generated_stream_follows_the_manual_clock(spark: SparkSession) -> None:
    clock = ManualClock()
    with quick_engine(spark, clock_us=clock) as engine:
        engine.execute(
            "CREATE STREAM G (id INT, ts TIMESTAMP) "
            "WITH (source = 'generator', rate = 100, event_time = 'ts')"
        )
        query = engine.register("SELECT id FROM G")
        engine.await_idle()
        assert query.status.rows == 0
        clock.advance(2.5)
        engine.await_idle()
        assert query.status.rows == 250
        engine.await_idle()
        assert query.status.rows == 250


def test_time_does_not_go_back() -> None:
    with pytest.raises(PenstockError, match="cannot go back"):
        ManualClock().advance(-1)
