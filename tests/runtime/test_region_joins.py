"""Streams joined with regions on Spark, against shapely and a plain loop."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import shapely
from pyspark.sql import SparkSession

from penstock import Engine, EngineError, QueryError
from penstock.testing import ScriptedStream, quick_engine

TAXIS = "id INT, lon DOUBLE, lat DOUBLE, speed DOUBLE, ts TIMESTAMP"
ZONES = {  # two overlap, one lies across 180 degrees
    "west": (shapely.box(0, 0, 2, 4), 30, "slow"),
    "east": (shapely.box(1, 0, 4, 4), 50, "fast"),
    "far": (shapely.box(179, -1, 181, 1), 90, None),
}
IN = "ST_Within(ST_Point(t.lon, t.lat), z.geom)"


@pytest.fixture
def zones(tmp_path: Path) -> Path:
    features = [
        {
            "type": "Feature",
            "properties": {"name": name, "most": most, "kind": kind, "tags": [name]},
            "geometry": json.loads(shapely.to_geojson(area)),
        }
        for name, (area, most, kind) in ZONES.items()
    ]
    path = tmp_path / "zones.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


def _taxis(count: int, seed: int = 1) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    rows = [
        {
            "id": n,
            "lon": draw.choice([draw.uniform(-1, 5), draw.uniform(178, 180)]),
            "lat": draw.uniform(-1, 5),
            "speed": draw.uniform(0, 100),
            "ts": n,
        }
        for n in range(count)
    ]
    return [*rows, {"id": -1, "lon": None, "lat": 1.0, "speed": 1.0, "ts": count}]


def _joined(rows: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str, int]]:
    """Row by row, and region by region."""
    return [
        (row, name, most)
        for row in rows
        if row["lon"] is not None
        for name, (area, most, _) in ZONES.items()
        if shapely.within(shapely.Point(row["lon"], row["lat"]), area)
    ]


def test_a_stream_joined_with_regions_has_their_attributes(engine: Engine, zones: Path) -> None:
    taxis = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts")
    answers = engine.execute(
        f"CREATE REGIONS Zones FROM '{zones}'; SHOW REGIONS; DESCRIBE zones;"
        f"CREATE QUERY pairs AS SELECT z.name, t.id FROM Taxis t, Zones z WHERE {IN}"
        "   AND speed > 10;"
        f"CREATE QUERY few AS SELECT t.id, z.name FROM Taxis t JOIN Zones z ON {IN}"
        "   WHERE z.kind = 'slow';"
        f"CREATE QUERY most AS SELECT id, upper(name) AS n FROM Taxis t, Zones z WHERE {IN}"
        "   AND t.speed > z.most AND z.tags LIKE '%st%';"
        f"CREATE QUERY counts AS SELECT z.name, count(*) AS n, max(z.most - speed) AS d"
        f"   FROM Taxis t [RANGE 1 MINUTE], Zones z WHERE {IN} GROUP BY z.name;"
        f"CREATE QUERY area AS SELECT id, z.geom FROM Taxis t, Zones z WHERE {IN} AND id < 9;"
    )
    assert answers[0].message == "regions Zones created: 3"
    assert answers[1].rows[0][:5] == ("Zones", 3, "name, most, kind, tags", "degrees", 0)
    assert answers[2].rows == (
        ("name", "string", ""), ("most", "bigint", ""), ("kind", "string", ""),
        ("tags", "string", ""), ("geom", "binary", "area"),
    )  # fmt: skip
    zones.unlink()  # it has been read
    rows = _taxis(300)
    taxis.push(rows[:150])
    taxis.push([*rows[150:], {"id": 999, "lon": 90.0, "lat": 0.0, "speed": 0.0, "ts": 9999}])
    engine.await_idle()

    def found(name: str) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(r.values()) for r in engine.query(name).results().to_pylist())

    pairs = _joined(rows)
    assert found("pairs") == Counter((n, r["id"]) for r, n, _ in pairs if r["speed"] > 10)
    assert found("few") == Counter((r["id"], n) for r, n, _ in pairs if n == "west")
    assert found("most") == Counter(
        (r["id"], n.upper()) for r, n, most in pairs if r["speed"] > most and "st" in n
    )
    counts = Counter((r["ts"] // 60, n) for r, n, _ in pairs)
    shown = engine.query("counts").results()
    ends = [int(e.timestamp()) // 60 - 1 for e in shown.column("window_end").to_pylist()]
    named = zip(ends, shown.column("name").to_pylist(), shown.column("n").to_pylist(), strict=True)
    assert {(end, name): n for end, name, n in named} == counts
    wkb = {shapely.to_wkb(area) for area, _, _ in ZONES.values()}
    areas = engine.query("area").results().column("geom").to_pylist()
    assert len(areas) == sum(r["id"] < 9 for r, _, _ in pairs)
    assert all(shapely.from_wkb(a).is_valid for a in areas)
    assert {shapely.from_wkb(a).wkb for a in areas if shapely.from_wkb(a).bounds[2] < 9} <= wkb
    kinds = {(r["kind"], r["queries"], r["selection"]) for r in engine.rings()}
    assert kinds == {
        ("select", 2, "reader"), ("select", 1, "stage"), ("select", 1, "reader"),
        ("window", 1, "reader"),
    }  # fmt: skip
    assert engine.metrics()["streams"]["Taxis"]["unplaced"] == 1
    told = str(engine.execute("EXPLAIN most")[0].text)
    assert "regions   (lon, lat) within a region of Zones: a tuple for each such region" in told
    assert "before Spark derives attributes" in told


def test_a_dataframe_gives_the_same(spark: SparkSession, zones: Path, tmp_path: Path) -> None:
    rows = _taxis(100)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(map(json.dumps, rows)))
    schema = "id INT, lon DOUBLE, lat DOUBLE, speed DOUBLE, ts BIGINT"
    given = spark.readStream.schema(schema).json(str(tmp_path / "in"))
    text = f"SELECT t.id, z.name FROM Taxis t, Zones z WHERE {IN}"
    with quick_engine(spark, bounded=True) as engine:
        engine.stream("Taxis", given.withColumn("ts", given.ts.cast("timestamp")), event_time="ts")
        engine.execute(f"CREATE REGIONS Zones FROM '{zones}'")
        plain = engine.register(f"{text} AND speed > 10")
        derived = engine.register(f"{text} AND t.speed > z.most")
        engine.finish()
        pairs = _joined(rows)
        for query, expected in (
            (plain, [(r["id"], n) for r, n, _ in pairs if r["speed"] > 10]),
            (derived, [(r["id"], n) for r, n, most in pairs if r["speed"] > most]),
        ):
            found = [tuple(r.values()) for r in query.results().to_pylist()]
            assert sorted(found) == sorted(expected)
        assert engine.metrics()["streams"]["Taxis"]["unplaced"] == 1
        assert engine.metrics()["streams"]["Taxis"]["rows"] == len(rows)


def test_regions_outlive_a_restart_and_are_kept_while_used(
    spark: SparkSession, zones: Path, tmp_path: Path
) -> None:
    text = f"SELECT z.name, t.id FROM Taxis t, Zones z WHERE {IN}"
    with quick_engine(spark, tmp_path / "w") as engine:
        taxis = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts", directory=tmp_path / "in")
        engine.execute(f"CREATE REGIONS Zones FROM '{zones}'")
        engine.register(text, name="q")
        taxis.push([{"id": 1, "lon": 1.5, "lat": 1.0, "ts": 0}])
        engine.await_idle()
    zones.write_text("{}")
    with quick_engine(spark, tmp_path / "w") as engine:
        taxis = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts", directory=tmp_path / "in")
        taxis.push([{"id": 2, "lon": 3.0, "lat": 1.0, "ts": 1}])
        engine.await_idle()
        names = [(r["name"], r["id"]) for r in engine.query("q").results().to_pylist()]
        assert sorted(names) == [("east", 1), ("east", 2), ("west", 1)]
        with pytest.raises(QueryError, match="regions Zones are read by 1 queries: q"):
            engine.execute("DROP REGIONS zones")
        with pytest.raises(EngineError, match="DROP REGIONS Zones CASCADE"):
            engine.drop_regions("zones")
        with pytest.raises(QueryError, match="regions Zones exist already"):
            engine.execute("CREATE STREAM Zones (a INT) WITH (source = 'generator')")
        engine.execute("DROP REGIONS Zones CASCADE")
        assert engine.execute("SHOW REGIONS; SHOW QUERIES; SHOW RINGS") != []
        assert [a.rows for a in engine.execute("SHOW REGIONS; SHOW QUERIES; SHOW RINGS")] == [
            ()
        ] * 3
        with pytest.raises(QueryError, match="stream Zones not found"):
            engine.register(text)


def test_late_tuples_in_two_regions_are_late_once(engine: Engine, zones: Path) -> None:
    taxis = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts", slack="0 s")
    engine.execute(f"CREATE REGIONS Zones FROM '{zones}'")
    start = f"SELECT count(*) AS n FROM Taxis t [RANGE 10 SECONDS], Zones z WHERE {IN}"
    with engine.together():
        plain = engine.register(start)
        derived = engine.register(f"{start} AND upper(z.name) LIKE '%ST'")
    taxis.push(
        [{"id": 1, "lon": 1.5, "lat": 1.0, "ts": 5}, {"id": 2, "lon": 50.0, "lat": 1.0, "ts": 25}]
    )
    taxis.push(
        [{"id": 3, "lon": 1.5, "lat": 1.0, "ts": 7}, {"id": 4, "lon": 1.5, "lat": 1.0, "ts": 99}]
    )
    engine.await_idle()
    for query in (plain, derived):
        assert query.results().column("n").to_pylist() == [2]
        assert (query.status.late, query.status.lost) == (1, 1)
    kept = engine.register(
        "CREATE QUERY k WITH (from = 'earliest') AS SELECT id, _query FROM Taxis.late"
    )
    engine.await_idle()
    late = sorted((r["id"], r["_query"]) for r in kept.results().to_pylist())
    assert late == sorted((3, query.name) for query in (plain, derived))
