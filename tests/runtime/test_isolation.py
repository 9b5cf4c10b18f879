"""Failures of one query on a real Spark session: the others of its ring do not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock import Engine, EngineError, QueryError
from penstock.testing import ManualClock, ScriptedStream, quick_engine

SCHEMA = "id INT, v INT, ts TIMESTAMP"
TEXT = "SELECT id, 10 / v AS share FROM Readings"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_us=1_000_000_000)


@pytest.fixture
def engine(spark: SparkSession, clock: ManualClock) -> Iterator[Engine]:
    with quick_engine(spark, clock_us=clock) as made:
        yield made


def _push(stream: ScriptedStream, *values: tuple[int, int]) -> None:
    stream.push([{"id": id_, "v": v, "ts": id_} for id_, v in values])


def _shown(engine: Engine, name: str) -> dict[str, Any]:
    [answer] = engine.execute("SHOW QUERIES")
    return next(
        row
        for r in answer.rows
        if (row := dict(zip(answer.columns, r, strict=True)))["query"] == name
    )


def _ids(folder: Path) -> list[int]:
    return [i for f in sorted(folder.iterdir()) for i in pq.read_table(f).column("id").to_pylist()]


def test_a_sink_that_recovers_is_given_what_was_kept_also_by_the_next_engine(
    spark: SparkSession, tmp_path: Path, clock: ManualClock
) -> None:
    disk, out = tmp_path / "disk", tmp_path / "disk" / "out"
    other: list[int] = []
    disk.write_text("in the way")
    with quick_engine(spark, tmp_path / "w", clock_us=clock) as engine:
        source = {"event_time": "ts", "directory": tmp_path / "in"}
        readings = ScriptedStream(engine, "Readings", SCHEMA, **source)
        text = "SELECT id FROM Readings WHERE v > 0"
        sink = {"sink": "parquet", "path": str(out)}
        files = engine.register(text, name="files", sink=sink)
        engine.register(
            text, name="other", sink=lambda rows: other.extend(rows.column("id").to_pylist())
        )
        for id_ in range(3):
            _push(readings, (id_, 1))
        engine.await_idle()
        assert other == [0, 1, 2]
        assert files.status.state == "quarantined"
        assert files.results().column("id").to_pylist() == [0, 1, 2]
        clock.advance(4)
        error = _shown(engine, "files")["error"]
        assert error.startswith("NotADirectoryError")
        assert error.endswith("tried again in 6 s")
        assert _shown(engine, "other")["state"] == "running"
        with pytest.raises(QueryError, match="query fils not found"):
            engine.execute("RESUME QUERY fils")
        engine.execute("RESUME QUERY files")  # in vain
        engine.await_idle()
        assert _shown(engine, "files")["error"].endswith("tried again in 20 s")
    disk.unlink()
    with quick_engine(spark, tmp_path / "w", clock_us=clock) as engine:
        engine.await_idle()
        assert engine.query("files").status.state == "running"
        assert _ids(out) == [0, 1, 2]
        assert engine.query("files").results().num_rows == 0  # it is in the files now
        _push(readings, (3, 1))
        engine.await_idle()
        assert _ids(out) == [0, 1, 2, 3]


def test_kept_rows_are_delivered_after_other_queries_have_come_with_other_columns(
    engine: Engine,
) -> None:
    got, well = list[int](), list[bool]()

    def take(rows: pa.Table) -> None:
        if not well:
            raise OSError("not now")
        got.extend(rows.column("id").to_pylist())

    readings = ScriptedStream(engine, "Readings", SCHEMA)  # no event time: nothing else is read
    query = engine.register("SELECT id FROM Readings", name="q", sink=take)
    _push(readings, (1, 1))
    engine.await_idle()
    other = engine.register("SELECT v FROM Readings")
    _push(readings, (2, 1))
    engine.await_idle()
    assert query.status.state == "quarantined"
    assert query.status.ring == other.status.ring
    well.append(True)
    engine.execute("RESUME QUERY q")
    engine.await_idle()
    assert got == [1, 2]
    query.drop()
    other.drop()
    _push(readings, (3, 1))  # the ring is kept warm, for nobody
    engine.await_idle()
    again = engine.register("SELECT v FROM Readings")
    _push(readings, (4, 7))
    engine.await_idle()
    assert again.results().column("v").to_pylist() == [7]


def test_results_for_a_function_that_is_handed_over_again_come_first(
    spark: SparkSession, tmp_path: Path
) -> None:
    got: list[int] = []

    def take(rows: pa.Table) -> None:
        got.extend(rows.column("id").to_pylist())

    with quick_engine(spark, tmp_path / "w") as engine:
        source = {"event_time": "ts", "directory": tmp_path / "in"}
        readings = ScriptedStream(engine, "Readings", SCHEMA, **source)
        engine.register("SELECT id FROM Readings", name="q", sink=take)
        _push(readings, (1, 1))
        engine.await_idle()
    with quick_engine(spark, tmp_path / "w") as engine:
        _push(readings, (2, 1))
        engine.await_idle()
        assert engine.query("q").results().column("id").to_pylist()[-1:] == [2]
        engine.register("SELECT id FROM Readings", name="q", sink=take)
        _push(readings, (3, 1))
        engine.await_idle()
    assert list(dict.fromkeys(got)) == [1, 2, 3]


def test_an_expression_without_a_value_closes_the_queries_of_its_tuple_only(
    engine: Engine,
) -> None:
    readings = ScriptedStream(engine, "Readings", SCHEMA, event_time="ts")
    with engine.together():
        careful = engine.register(f"{TEXT} WHERE v <> 0", name="careful")
        hurt = engine.register(TEXT, name="hurt")
        plain = engine.register("SELECT id FROM Readings", name="plain")
    assert len(engine.rings()) == 2
    _push(readings, (1, 5))
    _push(readings, (2, 0), (3, 2))
    _push(readings, (4, 4))
    engine.await_idle()
    assert careful.results().column("id").to_pylist() == [1, 3, 4]
    assert careful.results().column("share").to_pylist() == [2.0, 5.0, 2.5]
    assert plain.results().column("id").to_pylist() == [1, 2, 3, 4]
    assert (careful.status.state, plain.status.state) == ("running", "running")
    assert hurt.results().column("id").to_pylist() == [1, 3]  # the rest of that micro-batch, too
    shown = _shown(engine, "hurt")
    assert shown["state"] == "quarantined"
    assert "Division by zero" in shown["error"]
    assert shown["error"].endswith("RESUME QUERY lets it go on")
    assert hurt.status.ended
    hurt.resume()
    _push(readings, (5, 1))
    engine.await_idle()
    assert hurt.results().column("id").to_pylist()[-1] == 5
    assert hurt.status.state == "running"
    _push(readings, (6, 0), (7, 1))  # the ring does not stop for it any more
    engine.await_idle()
    assert hurt.status.state == "quarantined"
    assert careful.results().column("id").to_pylist() == [1, 3, 4, 5, 7]


def test_a_result_of_a_window_without_a_value_closes_its_query_only(engine: Engine) -> None:
    readings = ScriptedStream(engine, "Readings", SCHEMA, event_time="ts", slack="0 s")
    text = "SELECT count(*) / sum(v) AS share FROM Readings [RANGE 10 SECONDS]"
    with engine.together():
        careful = engine.register(f"{text} WHERE v > 0", name="careful")
        hurt = engine.register(text, name="hurt")
    assert len(engine.rings()) == 1
    _push(readings, (1, 5), (2, -5), (25, 1), (45, 1))
    _push(readings, (65, 1))
    engine.await_idle()
    assert sorted(careful.results().column("share").to_pylist())[:2] == [0.2, 1.0]
    assert (careful.status.state, hurt.status.state) == ("running", "quarantined")
    assert "Division by zero" in str(hurt.status.error)


def test_outputs_with_a_part_in_common_are_guarded_each_by_itself(engine: Engine) -> None:
    readings = ScriptedStream(engine, "Readings", SCHEMA, event_time="ts")
    text = "SELECT id, 10 / v AS a, 10 / v + 1 AS b FROM Readings"
    with engine.together():
        careful = engine.register(f"{text} WHERE v <> 0", name="careful")
        hurt = engine.register(text, name="hurt")
    _push(readings, (1, 5), (2, 0))
    engine.await_idle()
    assert careful.results().column("b").to_pylist() == [3.0]
    assert (careful.status.state, hurt.status.state) == ("running", "quarantined")


def test_a_condition_without_a_value_stops_the_ring_of_those_who_have_it(engine: Engine) -> None:
    readings = ScriptedStream(engine, "Readings", SCHEMA, event_time="ts")
    with engine.together():
        hurt = engine.register("SELECT id FROM Readings WHERE 10 / v > 1", name="hurt")
        plain = engine.register("SELECT id FROM Readings", name="plain")
    _push(readings, (1, 0))
    with pytest.raises(EngineError, match="Division by zero"):
        engine.await_idle()
    assert (hurt.status.state, plain.status.state) == ("failed", "running")
    _push(readings, (2, 1))
    deadline = time.monotonic() + 60
    while plain.results().num_rows < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert plain.results().column("id").to_pylist() == [1, 2]
    hurt.resume()  # it meets the same tuple
    with pytest.raises(EngineError, match="Division by zero"):
        engine.await_idle()
    hurt.drop()
    engine.await_idle()
