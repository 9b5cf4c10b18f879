"""The examples run, and what they print is what another engine computes from the same files."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import shapely

from tests.reference import fence_events

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


def run(*command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=480,
        env=environment,
        cwd=ROOT,
    )


def readings() -> tuple[list[dict[str, Any]], int]:
    """The sensors' readings read in the plainest way, and how many records are not readings."""
    good, bad = [], 0
    for path in sorted(ROOT.glob("examples/data/sensors/*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
                record["ts"] = dt.datetime.fromisoformat(record["ts"])
                if isinstance(record["temp"], str) or record["id"] >= 2**31:
                    raise ValueError(line)
            except ValueError:
                bad += 1
            else:
                good.append(record)
    return good, bad


def as_rows(found: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return sorted(tuple(_text(v) for v in row) for row in found.fetchall())


def _text(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    return value


def windows(range_s: int, slide_s: int, source: str) -> str:
    """Each tuple of a table once per window that it is in, as `window_start`, `window_end`."""
    return f"""
        (SELECT make_timestamp((e - {range_s}) * 1000000) AS window_start,
                make_timestamp(e * 1000000) AS window_end, s.*
         FROM (SELECT *, epoch_us(ts) AS us FROM {source}) s,
              unnest(range((us // {slide_s}000000) * {slide_s} + {slide_s},
                           us // 1000000 + {range_s} + 1, {slide_s})) AS w(e)
         WHERE us >= (e - {range_s}) * 1000000 AND us < e * 1000000)
    """


def test_the_sensors_script_prints_what_duckdb_computes() -> None:
    done = run("-m", "penstock.cli", "run", "examples/sensors.cql", "--once", "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    printed: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for line in done.stdout.splitlines():
        row = json.loads(line)
        printed[row.pop("query")].append(tuple(row.values()))

    good, bad = readings()
    base = duckdb.connect()
    base.execute("CREATE TABLE sensors (id INT, room TEXT, temp DOUBLE, ts TIMESTAMP)")
    base.executemany(
        "INSERT INTO sensors VALUES (?, ?, ?, ?)",
        [(r["id"], r["room"], r["temp"], r["ts"].replace(tzinfo=None)) for r in good],
    )
    base.execute(
        f"CREATE TABLE doors AS SELECT door, open, ts AT TIME ZONE 'UTC' AS ts"
        f" FROM '{ROOT}/examples/data/doors.parquet'"
    )
    window = "window_start, window_end"
    figures = "count(*), count(temp), round(avg(temp), 2), max(temp)"
    expected = {
        "query_1": "SELECT id, room, temp, ts FROM sensors"
        " WHERE temp > 37 OR (room = 'cellar' AND temp < 4)",
        "climate": f"SELECT {window}, room, {figures} FROM {windows(300, 60, 'sensors')}"
        " GROUP BY ALL HAVING count(*) > 90",
        "warm": f"SELECT {window}, room, {figures} FROM {windows(600, 600, 'sensors')}"
        " WHERE temp >= 25 AND room IN ('attic', 'kitchen') GROUP BY ALL HAVING count(*) > 90",
        "traffic": f"SELECT {window}, door, count(*), count_if(open)"
        f" FROM {windows(600, 600, 'doors')} GROUP BY ALL",
    }
    for query, sql in expected.items():
        assert sorted(printed.pop(query)) == as_rows(base.execute(sql)), query
    assert len(printed.pop("unreadable")) == bad == 4
    assert not printed
    assert f"{len(good)}" in done.stderr  # SHOW STREAMS at the script's end, after the run


def test_the_python_example_runs_and_finds_the_rooms() -> None:
    done = run("examples/rooms.py")
    assert done.returncode == 0, done.stderr
    for room in ("kitchen", "hall", "attic", "cellar"):
        assert room in done.stdout


def crossings() -> list[str]:
    """What the aircraft example is to tell, from a plain loop over aircraft, times and regions."""
    data = ROOT / "examples" / "data" / "aircraft"
    features = json.loads((data / "regions.geojson").read_text())["features"]
    areas = {f["properties"]["name"]: shapely.geometry.shape(f["geometry"]) for f in features}
    names = list(areas)
    fixes = pq.read_table(data / "tracks.parquet").to_pylist()
    tuples = [
        (
            fix["callsign"],
            round(fix["ts"].timestamp() * 1e6),
            frozenset(
                number
                for number, area in enumerate(areas.values())
                if area.contains(shapely.Point(fix["lon"], fix["lat"]))
            ),
        )
        for fix in fixes
    ]
    verbs = {"ENTER": "enters", "LEAVE": "leaves", "DWELL": "is still over"}
    return [
        f"{dt.datetime.fromtimestamp(time_us / 1e6, dt.UTC):%H:%M:%S}"
        f"  {callsign} {verbs[kind]} {names[number]}"
        for callsign, number, kind, time_us, _ in fence_events(tuples, 10 * 60 * 1_000_000)
    ]


def test_the_aircraft_example_tells_every_crossing_and_draws_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    done = run("examples/aircraft.py", "--map", str(tmp_path / "map.png"), "--minutes", "30")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line[2:3] == ":" and line[0].isdigit()]
    assert sorted(told) == sorted(crossings())
    assert "until 09:20  Switzerland: " in done.stdout
    assert "within 10 km of Zurich airport: " in done.stdout
    assert (tmp_path / "map.png").stat().st_size > 10_000


def test_the_demo_runs_to_its_summary_without_a_terminal() -> None:
    done = run("-m", "penstock.cli", "demo", "--seconds", "6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "registered 40 alerts" in done.stdout
    assert re.search(r"[2-4] rings carried them", done.stdout)  # on a busy machine they are split
    assert "none of them restarted" in done.stdout
    assert "The last windows of rooms" in done.stdout
    assert "\x1b[" not in done.stdout + done.stderr
