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
    rows = [tuple(row.values()) for row in engine.query(name).results().to_pylist()]
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


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


AGGREGATES = {
    "most": "SELECT id, max(v) AS m FROM Readings [RANGE 10 SECONDS] GROUP BY id",
    "mean": "SELECT avg(v) AS a, id, count(*) AS n FROM Readings [RANGE 20 SECONDS] GROUP BY id",
    "groups": "SELECT id AS i FROM Readings [RANGE 10 SECONDS] GROUP BY id",
}
TESTED = {
    "two": "SELECT id, sum(v) AS s FROM Readings [RANGE 10 SECONDS] GROUP BY id HAVING max(v) > 2",
    "four": "SELECT id, min(v) AS s FROM Readings [RANGE 10 SECONDS] GROUP BY id HAVING max(v) > 4",
}


def test_queries_with_other_aggregates_and_other_constants_share_a_ring(
    spark: SparkSession, tmp_path: Path
) -> None:
    def readings_of(first: int) -> list[dict[str, object]]:
        values = [(1, 1.0), (1, 3.0), (2, 5.0), (3, None)]
        return [{"id": id_, "v": v, "ts": first + n} for n, (id_, v) in enumerate(values)]

    with quick_engine(spark, tmp_path / "w") as engine:
        readings, _ = _streams(engine, tmp_path)
        with engine.together():
            for name, text in (AGGREGATES | TESTED).items():
                engine.register(text, name=name)
        readings.push(readings_of(0))
        engine.await_idle()
        late = "SELECT id, min(v) AS low, sum(v) AS s FROM Readings [RANGE 10 SECONDS] GROUP BY id"
        engine.register(late, name="late")
        readings.push(readings_of(10))
        engine.await_idle()
        assert sorted(ring["queries"] for ring in engine.rings()) == [2, 4]
    with quick_engine(spark, tmp_path / "w") as engine:  # the same slots after a restart
        readings, _ = _streams(engine, tmp_path)
        readings.push([{"id": 9, "v": 0.0, "ts": 100}])
        engine.await_idle()
        found = {
            name: [row[2:] for row in _rows(engine, name)]
            for name in (*AGGREGATES, *TESTED, "late")
        }
    assert found["most"] == [(1, 3.0), (2, 5.0), (3, None)] * 2
    assert found["mean"] == [(None, 3, 2), (2.0, 1, 4), (5.0, 2, 2)]
    assert found["groups"] == [(1,), (2,), (3,)] * 2
    assert found["two"] == [(1, 4.0), (2, 5.0)] * 2
    assert found["four"] == [(2, 5.0)] * 2
    assert found["late"] == [(1, 1.0, 4.0), (2, 5.0, 5.0), (3, None, None)]


def test_having_may_speak_of_keys(spark: SparkSession, tmp_path: Path) -> None:
    texts = {
        "keys": "SELECT id FROM Readings [RANGE 10 SECONDS] GROUP BY id HAVING id > 1",
        "both": "SELECT id, max(v) AS m FROM Readings [RANGE 10 SECONDS] GROUP BY id"
        " HAVING max(v) > 1 AND id IS NOT NULL",
        "by Spark": "SELECT id, count(DISTINCT v) AS n FROM Readings [RANGE 10 SECONDS]"
        " GROUP BY id HAVING id = 1",
        "joined": "SELECT r.id, count(*) AS n FROM Readings r [RANGE 10 SECONDS],"
        " Others o [RANGE 10 SECONDS] WHERE r.id = o.id GROUP BY r.id HAVING r.id = 2",
    }
    with quick_engine(spark, tmp_path / "w") as engine:
        streams = _streams(engine, tmp_path)
        with engine.together():
            for name, text in texts.items():
                engine.register(text, name=name)
        rows = [{"id": id_, "v": 1.0 * n, "ts": n} for n, id_ in enumerate((1, 2, None, 2))]
        for stream in streams:
            stream.push([*rows, {"id": 0, "v": 0.0, "ts": 100}])
            stream.push([{"id": 0, "v": 0.0, "ts": 200}])
        engine.await_idle()
        found = {name: [row[2:] for row in _rows(engine, name)] for name in texts}
    assert found == {"keys": [(2,)], "both": [(2, 3.0)], "by Spark": [(1, 1)], "joined": [(2, 4)]}


def test_a_sum_that_is_too_large_is_only_that_of_who_asked_for_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns, having = "big BIGINT, ts TIMESTAMP", "HAVING sum(big) > 1"
    with quick_engine(spark, tmp_path / "w") as engine:
        stream = ScriptedStream(engine, "Big", columns, event_time="ts", directory=tmp_path / "in")
        with engine.together():
            for name in ("sum", "avg", "max"):
                engine.register(f"SELECT {name}(big) AS x FROM Big [RANGE 10 SECONDS]", name=name)
            text = "SELECT max(big) AS x FROM Big [RANGE 10 SECONDS]"
            engine.register(f"{text} {having}", name="tested")
            engine.register(f"{text} WHERE big < 10 {having}", name="careful")
        assert len(engine.rings()) == 2
        stream.push([{"big": 2**62, "ts": n} for n in (1, 2, 3)])
        engine.await_idle()
        stream.push([{"big": 7, "ts": 15}])
        engine.await_idle()
        stream.push([{"big": 0, "ts": 100}])
        engine.await_idle()
        assert [row[2:] for row in _rows(engine, "avg")] == [(float(2**62),), (7.0,)]
        assert [row[2:] for row in _rows(engine, "max")] == [(2**62,), (7,)]
        assert [row[2:] for row in _rows(engine, "careful")] == [(7,)]
        assert [row[2:] for row in _rows(engine, "tested")] == []
        _check_states(engine)
        stream.push([{"big": 1, "ts": 200}, {"big": 2, "ts": 300}])
        engine.await_idle()
    with quick_engine(spark, tmp_path / "w") as engine:  # who is closed stays so
        stream = ScriptedStream(engine, "Big", columns, event_time="ts", directory=tmp_path / "in")
        stream.push([{"big": 2**62, "ts": n} for n in (401, 402, 403, 500)])
        engine.await_idle()
        _check_states(engine)
        assert _rows(engine, "sum") == []
        engine.query("sum").resume()
        stream.push([{"big": 5, "ts": 600}, {"big": 5, "ts": 700}])
        engine.await_idle()
        assert (2**62,) in [row[2:] for row in _rows(engine, "sum")]


def _check_states(engine: Engine) -> None:
    states = {name: engine.query(name).status.state for name in ("sum", "avg", "max")}
    assert states == {"sum": "quarantined", "avg": "running", "max": "running"}
    states = {name: engine.query(name).status.state for name in ("tested", "careful")}
    assert states == {"tested": "quarantined", "careful": "running"}
    assert "sum(big)" in str(engine.query("sum").status.error)
    assert "HAVING" in str(engine.query("tested").status.error)
