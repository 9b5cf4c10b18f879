"""Geofence queries on Spark: whatever brings the tuples, live, shared, and with bad coordinates."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import shapely
from pyspark.sql import SparkSession

from penstock import Engine, EngineError, QueryError
from penstock.testing import ScriptedStream, quick_engine

TAXIS = "id INT, lon DOUBLE, lat DECIMAL(9,6), speed DOUBLE, ts TIMESTAMP"
POINT = "ST_Point(lon, lat)"
TRIANGLE = "ST_GeomFromText('POLYGON ((0 0, 4 0, 4 4, 0 0))')"
PLACES = [(1, 3.0, 1.0), (2, 1.0, 3.0), (3, 4.0, 2.0), (4, 7.0, 7.0)]  # in, out, border, far
NOWHERE = [(8, None, 1.0), (9, math.nan, 1.0), (10, math.inf, 1.0), (11, 1e200, 1.0)]
CONDITIONS = {
    "inside": f"ST_Within({POINT}, {TRIANGLE})",
    "border": f"ST_Intersects({POINT}, {TRIANGLE})",
    "outside": f"NOT ST_Contains({TRIANGLE}, {POINT})",
    "near": f"ST_DWithin({POINT}, {TRIANGLE}, 2.5)",
    "beside": f"ST_DWithin({POINT}, ST_Point(4, 1), 1)",
    "along": f"ST_DWithin({POINT}, ST_GeomFromText('LINESTRING (7 9, 7 5)'), 0)",
    "either": f"ST_Within({POINT}, {TRIANGLE}) OR id > 3 AND speed > 0",
}
FOUND = {
    "inside": [1],
    "border": [1, 3],
    "outside": [2, 3, 4],
    "near": [1, 2, 3],
    "beside": [1, 3],
    "along": [4],
    "either": [1, 4, 8, 9, 10, 11],
}


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


def _rows(places: list[tuple[int, Any, Any]], ts: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": id_, "lon": lon, "lat": None if lat is None else round(lat), "speed": 5.0, "ts": ts}
        for id_, lon, lat in places
    ]


def _ids(engine: Engine, name: str) -> list[int]:
    return sorted(engine.query(name).results().column("id").to_pylist())


def test_fences_of_all_kinds_share_a_ring_and_tuples_without_a_place_are_counted(
    engine: Engine,
) -> None:
    taxis = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts")
    for name, condition in CONDITIONS.items():
        engine.register(f"SELECT id FROM Taxis WHERE {condition}", name=name)
    count = f"SELECT count(*) AS n FROM Taxis [RANGE 10 SECONDS] WHERE {CONDITIONS['border']}"
    window = engine.register(count)
    taxis.push(_rows(PLACES + NOWHERE) + _rows([(12, 9.0, 9.0)], ts=99))
    engine.await_idle()
    found = {name: [i for i in _ids(engine, name) if i < 12] for name in CONDITIONS}
    assert found == FOUND
    assert [ring["queries"] for ring in engine.rings()] == [7, 1]
    assert window.results().column("n").to_pylist() == [2]
    assert engine.metrics()["streams"]["Taxis"]["unplaced"] == len(NOWHERE)
    [shown] = engine.execute("SHOW STREAMS")
    assert dict(zip(shown.columns, shown.rows[0], strict=True))["unplaced"] == len(NOWHERE)
    [told] = engine.execute("EXPLAIN ANALYZE inside")
    assert "unplaced 4" in str(told.text)
    fence = "selection (lon, lat) within Polygon of 3 corners from (0, 0) to (4, 4)"
    assert f"{fence}; shared with 1 query, compared by 5 more" in str(told.text)
    with pytest.raises(
        QueryError, match=r"function st_withn not found(.|\n)*did you mean st_within"
    ):
        engine.register(f"SELECT id FROM Taxis WHERE ST_Withn({POINT}, {TRIANGLE})")


def test_fences_come_and_go_without_another_plan(engine: Engine, tmp_path: Path) -> None:
    taxis = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts")
    text = "SELECT id FROM Taxis WHERE ST_Within(ST_Point(lon, lat), ST_GeomFromText('{}'))"
    boxes = {n: shapely.box(n, 0, n + 1.5, 9) for n in range(40)}
    with engine.together():
        for n, box in boxes.items():
            engine.register(text.format(box.wkt), name=f"box{n}")
    taxis.push(_rows([(n, n + 0.75, 1) for n in range(40)]))
    engine.await_idle()
    for n in range(0, 40, 2):
        engine.query(f"box{n}").drop()
    engine.register(text.format(shapely.box(-1, -1, 99, 99).wkt), name="all")
    taxis.push(_rows([(100 + n, n + 0.25, 1) for n in range(40)]))
    engine.await_idle()
    assert len(engine.rings()) == 1
    assert _ids(engine, "all") == [100 + n for n in range(40)]
    assert _ids(engine, "box7") == [7, 107, 108]
    with pytest.raises(EngineError, match="box8 not found"):
        engine.query("box8")


FUNCTIONS = {
    "SELECT id, ST_AsText(ST_Point(lon, lat)) AS at FROM Taxis WHERE id < 3": [
        (1, "POINT (3 1)"), (2, "POINT (1 3)"),
    ],
    f"SELECT id FROM Taxis WHERE ST_Distance({POINT}, ST_Point(7, 7)) < 1 OR id > 9": [
        (4,), (10,), (11,),
    ],
    f"SELECT id, round(ST_DistanceSphere({POINT}, ST_Point(3, 2)) / 1000) AS km FROM Taxis"
    f" WHERE round(ST_X({POINT})) = 3": [(1, 111.0)],
    f"SELECT id FROM Taxis WHERE ST_DWithin({POINT}, ST_Point(3, 1.5), 60000, true)": [(1,)],
    f"SELECT id FROM Taxis WHERE coalesce(ST_Within({POINT}, {TRIANGLE}), id = 8)": [(1,), (8,)],
    f"SELECT ST_Within({POINT}, {TRIANGLE}) AS inside, max(ST_Y({POINT})) AS y"
    " FROM Taxis [RANGE 10 SECONDS] GROUP BY inside": [
        (None, None), (False, 7.0), (True, 1.0),
    ],
}  # fmt: skip


def test_functions_stand_anywhere(spark: SparkSession) -> None:
    with quick_engine(spark, bounded=True) as engine:
        taxis = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts")
        queries = {text: engine.register(text) for text in FUNCTIONS}
        taxis.push(_rows(PLACES + NOWHERE))
        engine.finish()
        for text, expected in FUNCTIONS.items():
            rows = queries[text].results().to_pylist()
            shown = [tuple(v for k, v in r.items() if "window" not in k) for r in rows]
            assert sorted(shown, key=repr) == sorted(expected, key=repr), text
        assert engine.metrics()["streams"]["Taxis"]["unplaced"] == len(NOWHERE)


def test_a_dataframe_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{**r, "lon": str(r["lon"]) if r["lon"] else None} for r in _rows(PLACES + NOWHERE)]
    path = tmp_path / "in"
    path.mkdir()
    (path / "a.json").write_text("\n".join(json.dumps({**r, "ts": 0}) for r in rows))
    schema = "id INT, lon STRING, lat DECIMAL(9,6), speed DOUBLE, ts TIMESTAMP"
    frame = spark.readStream.schema(schema).json(str(path)).selectExpr(
        "id", "double(replace(replace(lon, 'inf', 'Infinity'), 'nan', 'NaN')) AS lon",
        "lat", "speed", "ts",
    )  # fmt: skip
    with quick_engine(spark, bounded=True) as engine:
        engine.stream("Taxis", frame, event_time="ts")
        for name, condition in CONDITIONS.items():
            engine.register(f"SELECT id FROM Taxis WHERE {condition}", name=name)
        engine.register(f"SELECT id + 1 AS id FROM Taxis WHERE {CONDITIONS['inside']}", name="sum")
        engine.finish()
        assert {name: _ids(engine, name) for name in CONDITIONS} == FOUND
        assert _ids(engine, "sum") == [2]
        assert engine.metrics()["streams"]["Taxis"]["unplaced"] == len(NOWHERE)
        assert {ring["selection"] for ring in engine.rings()} == {"stage"}
