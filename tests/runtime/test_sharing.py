"""Queries in other words, on Spark: one ring, and each query's own columns in its own order."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock import Engine
from penstock.testing import ScriptedStream, quick_engine

COLUMNS = "id INT, name STRING, v DOUBLE, ts TIMESTAMP"
SELECTIONS = {
    "one": "SELECT id, v FROM Readings WHERE v > 1",
    "turned": "SELECT V AS Value, ID FROM Readings r WHERE 1 < r.v",
    "twice": "SELECT id, v, id AS again FROM Readings WHERE v >= 2 AND v <= 3",
}
WINDOWS = {
    "groups": "SELECT id, name, max(v) AS m, count(*) AS n FROM Readings [RANGE 10 SECONDS]"
    " GROUP BY id, name",
    "other": "SELECT count(*) AS n, name, max(v) AS Most, id FROM Readings [RANGE 10 SECONDS]"
    " WHERE v < 3 GROUP BY name, id",
}
JOINS = {
    "pairs": "SELECT r.v AS a, o.v AS b FROM Readings r [RANGE 10 SECONDS],"
    " Others o [RANGE 10 SECONDS] WHERE r.id = o.id",
    "back": "SELECT o.v AS y, r.v AS x FROM Others o [RANGE 10 SECONDS],"
    " Readings r [RANGE 10 SECONDS] WHERE o.id = r.id AND o.v > 5",
}


def _streams(engine: Engine, directory: Path) -> list[ScriptedStream]:
    return [
        ScriptedStream(engine, name, COLUMNS, event_time="ts", directory=directory / name)
        for name in ("Readings", "Others")
    ]


def _rows(engine: Engine, name: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in engine.query(name).results().to_pylist())


def _names(engine: Engine, name: str) -> list[str]:
    return list(engine.query(name).results().schema.names)


def test_each_query_sees_its_own_columns_of_a_shared_ring(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark, tmp_path / "w") as engine:
        readings, others = _streams(engine, tmp_path)
        called: list[dict[str, object]] = []
        with engine.together():
            for name, text in (SELECTIONS | WINDOWS | JOINS).items():
                engine.register(text, name=name)
            engine.register(
                SELECTIONS["turned"], "function", lambda rows: called.extend(rows.to_pylist())
            )
        assert sorted(ring["kind"] for ring in engine.rings()) == ["join", "select", "window"]
        assert _names(engine, "turned") == ["Value", "ID"]  # before there is a row
        readings.push(
            [
                {"id": 1, "name": "x", "v": 1.0, "ts": 0},
                {"id": 1, "name": "x", "v": 2.0, "ts": 1},
                {"id": 2, "name": "y", "v": 4.0, "ts": 2},
            ]
        )
        others.push([{"id": 1, "name": "x", "v": 5.0, "ts": 1}, {"id": 2, "v": 6.0, "ts": 2}])
        engine.await_idle()
        for stream in (readings, others):
            stream.push([{"id": 9, "name": "z", "v": 0.0, "ts": 100}])
        engine.await_idle()
        assert _rows(engine, "one") == [(1, 2.0), (2, 4.0)]
        assert _rows(engine, "turned") == [(2.0, 1), (4.0, 2)]
        assert _rows(engine, "twice") == [(1, 2.0, 1)]
        assert sorted(row["Value"] for row in called) == [2.0, 4.0]
        assert [row[2:] for row in _rows(engine, "groups")] == [(1, "x", 2.0, 2), (2, "y", 4.0, 1)]
        assert [row[2:] for row in _rows(engine, "other")] == [(2, "x", 2.0, 1)]
        assert _names(engine, "other") == ["window_start", "window_end", "n", "name", "Most", "id"]
        assert _rows(engine, "pairs") == [(0.0, 0.0), (1.0, 5.0), (2.0, 5.0), (4.0, 6.0)]
        assert _rows(engine, "back") == [(6.0, 4.0)]
    with quick_engine(spark, tmp_path / "w") as engine:  # what was kept is read the same way
        readings, _ = _streams(engine, tmp_path)
        readings.push([{"id": 3, "name": "x", "v": 3.0, "ts": 101}])
        engine.await_idle()
        assert _rows(engine, "turned") == [(2.0, 1), (3.0, 3), (4.0, 2)]
        assert _rows(engine, "twice") == [(1, 2.0, 1), (3, 3.0, 3)]
