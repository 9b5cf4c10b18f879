"""ENTER, LEAVE and DWELL on Spark, against the slow twin."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import shapely
from pyspark.sql import SparkSession
from tests.reference import fence_events

from penstock import Engine, QueryError
from penstock.testing import ScriptedStream, quick_engine

TAXIS = "id STRING, lon DOUBLE, lat DOUBLE, ts TIMESTAMP"
ZONES = {  # two overlap
    "west": shapely.box(0, 0, 2, 4),
    "east": shapely.box(1, 0, 4, 4),
    "north": shapely.Polygon([(0, 5), (5, 5), (2, 9)]),
}
FOLLOWED = "EVENTS OF Taxis BY id AT ST_Point(lon, lat) IN Zones [DWELL 6 SECONDS]"
TOLD = "id, name, event, unix_micros(time) AS at_us, stayed_ms * 1000 AS stayed_us"
Row = dict[str, Any]


@pytest.fixture
def zones(tmp_path: Path) -> Path:
    path = tmp_path / "zones.csv"
    lines = [f'{name},{number},"{area.wkt}"' for number, (name, area) in enumerate(ZONES.items())]
    path.write_text("\n".join(["name,id,wkt", *lines]))
    return path


def taxis(count: int, seed: int) -> list[Row]:
    """Walks of a few objects, each disordered by up to 5 s; some have no place or no name."""
    draw = random.Random(seed)
    places = {f"taxi{n}": [draw.uniform(0, 5), draw.uniform(0, 9)] for n in range(12)}
    rows = []
    for n in range(count):
        id_ = draw.choice(sorted(places))
        place = places[id_]
        for axis in (0, 1):
            place[axis] = min(9.0, max(-1.0, place[axis] + draw.uniform(-0.8, 0.8)))
        rows.append({"id": id_, "lon": place[0], "lat": place[1], "ts": n // 8})
    rows += [{"id": None, "lon": 1.0, "lat": 1.0, "ts": 3}, {"id": "taxi1", "lon": None, "ts": 4}]
    return sorted(rows, key=lambda row: row["ts"] + draw.uniform(0, 5))


def twin(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    """All events, by zone, from a plain loop over objects, times and zones."""
    names = list(ZONES)
    tuples = [
        (
            row["id"],
            row["ts"] * 1_000_000,
            frozenset(
                n
                for n, name in enumerate(names)
                if shapely.within(shapely.Point(row["lon"], row["lat"]), ZONES[name])
            ),
        )
        for row in rows
        if row["id"] is not None and row["lon"] is not None
    ]
    found = fence_events(tuples, 6_000_000)
    return Counter((own, names[fence], kind, at, stay) for own, fence, kind, at, stay in found)


def _results(engine: Engine, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in engine.query(name).results().to_pylist())


def test_events_are_those_of_the_twin_over_a_restart_with_other_parallelism(
    spark: SparkSession, zones: Path, tmp_path: Path
) -> None:
    rows = taxis(600, seed=1)
    halves = (rows[:300], [*rows[300:], {"id": "x", "lon": 50.0, "lat": 50.0, "ts": 9999}])
    script = (
        f"CREATE REGIONS Zones FROM '{zones}';"
        f"CREATE QUERY every AS SELECT {TOLD} FROM {FOLLOWED};"
        f"CREATE QUERY long AS SELECT {TOLD} FROM {FOLLOWED} e"
        " WHERE e.event = 'DWELL' AND Zones_id >= 1 AND stayed_ms < 9000;"
    )
    for number, half in enumerate(halves):
        settings = {"parallelism": 1 + 2 * number}
        with quick_engine(spark, tmp_path / "w", settings=settings) as engine:
            stream = ScriptedStream(
                engine, "Taxis", TAXIS, event_time="ts", slack="5 s", directory=tmp_path / "in"
            )
            if number == 0:
                engine.execute(script)
            for start in range(0, len(half), 200):
                stream.push(half[start : start + 200])
            engine.await_idle()
            found, long = _results(engine, "every"), _results(engine, "long")
            unplaced = engine.metrics()["streams"]["Taxis"]["unplaced"]
            assert [ring["kind"] for ring in engine.rings()] == ["events"]
    assert found == twin(rows)
    assert {kind for _, _, kind, _, _ in found} == {"ENTER", "LEAVE", "DWELL"}
    assert long == Counter(
        event
        for event in twin(rows).elements()
        if event[2] == "DWELL" and event[1] != "west" and event[4] < 9_000_000
    )
    assert unplaced == 1


def test_a_bounded_run_is_complete_for_a_dataframe_and_what_is_derived_of_events(
    spark: SparkSession, zones: Path, tmp_path: Path
) -> None:
    rows = taxis(300, seed=9)
    (tmp_path / "in").mkdir()
    for number in range(3):
        part = rows[number * 101 : (number + 1) * 101]
        lines = "\n".join(json.dumps(row) for row in part)
        (tmp_path / "in" / f"{number}.json").write_text(lines)
    frame = spark.readStream.schema("id STRING, lon DOUBLE, lat DOUBLE, ts BIGINT")
    given = frame.option("maxFilesPerTrigger", "1").json(str(tmp_path / "in"))
    with quick_engine(spark, bounded=True) as engine:
        engine.stream("Taxis", given.withColumn("ts", given.ts.cast("timestamp")), event_time="ts")
        engine.execute(f"CREATE REGIONS Zones FROM '{zones}'")
        engine.execute(
            f"CREATE QUERY every AS SELECT {TOLD} FROM {FOLLOWED};"
            f"CREATE STREAM Crossings AS SELECT name, event, time FROM {FOLLOWED};"
            "CREATE QUERY counts AS SELECT name, event, count(*) AS n"
            " FROM Crossings [RANGE 10 SECONDS] GROUP BY name, event"
        )
        engine.finish()
        assert _results(engine, "every") == twin(rows)
        counts = Counter(
            (at_us // 10_000_000, name, kind) for _, name, kind, at_us, _ in twin(rows).elements()
        )
        found = engine.query("counts").results().to_pylist()
        assert counts == {
            (int(r["window_start"].timestamp()) // 10, r["name"], r["event"]): r["n"] for r in found
        }


def test_late_tuples_are_kept_and_queries_come_and_go(spark: SparkSession, zones: Path) -> None:
    with quick_engine(spark) as engine:
        stream = ScriptedStream(engine, "Taxis", TAXIS, event_time="ts", slack="0 s")
        engine.execute(f"CREATE REGIONS Zones FROM '{zones}'")
        first = engine.register(f"SELECT {TOLD} FROM {FOLLOWED}", name="first")
        stream.push([{"id": "a", "lon": 0.5, "lat": 1.0, "ts": 10}])
        stream.push([{"id": "a", "lon": 3.0, "lat": 1.0, "ts": 20}])
        engine.await_idle()
        later = engine.register(f"SELECT {TOLD} FROM {FOLLOWED} WHERE event <> 'ENTER'")
        stream.push([{"id": "a", "lon": 9.0, "lat": 1.0, "ts": 15}])  # late
        stream.push([{"id": "a", "lon": 9.0, "lat": 1.0, "ts": 30}])
        stream.push([{"id": "b", "lon": 9.0, "lat": 1.0, "ts": 31}])
        engine.await_idle()
        second = 1_000_000
        assert _results(engine, "first") == Counter([
            ("a", "west", "ENTER", 10 * second, 0),
            ("a", "west", "LEAVE", 20 * second, 10 * second),
            ("a", "east", "ENTER", 20 * second, 0),
            ("a", "east", "LEAVE", 30 * second, 10 * second),
        ])  # fmt: skip
        assert later.results().column("name").to_pylist() == ["west", "east"]
        assert len(engine.rings()) == 1
        assert (first.status.late, first.status.lost) == (1, 1)
        told = str(engine.execute("EXPLAIN ANALYZE first")[0].text)
        assert "ENTER, LEAVE, DWELL after 6 seconds of each id at (lon, lat)" in told
        with pytest.raises(QueryError, match="regions Zones are read by 2 queries"):
            engine.execute("DROP REGIONS Zones")
