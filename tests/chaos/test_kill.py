"""Engines killed at random moments and started again until they are done.

The process gets SIGKILL: no handler runs, nothing is flushed. Whatever happens, the rows in the
files and the counts in the end are those of a straight run, and the killed engine leaves no process
behind.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.chaos import generation_runner
from tests.chaos.processes import PATIENCE_S, kill_at, running, started, told
from tests.golden.golden import expected_answers, golden_rows, write_golden
from tests.runtime.test_following import ZONES, taxis, twin

_FILES, _TUPLES = 100, 20
_TAXI_FILES = 40


@pytest.mark.slow
def test_killed_engines_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    files = golden_rows(seed=3)
    write_golden(files, tmp_path / "in")
    files_of_results = rng.randrange(1, 6)
    runner = "tests.chaos.runner"
    _start_and_kill(runner, tmp_path, "selected", files_of_results, rng.uniform(0, 1.5))
    with started(runner, tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    last = (tmp_path / "stdout").read_text(encoding="utf-8").splitlines()[-1]
    assert json.loads(last) == expected_answers(files)


@pytest.mark.slow
def test_killed_while_rings_change_their_plan(tmp_path: Path) -> None:
    """A query has every tuple from its first on, once, however often its ring was planned anew."""
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    (tmp_path / "in").mkdir()
    for number in range(_FILES):
        ids = range(number * _TUPLES, (number + 1) * _TUPLES)
        table = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"N{i:012}" for i in ids]})
        pq.write_table(table, tmp_path / "in" / f"{number:05d}.parquet")
    runner = "tests.chaos.generation_runner"
    _start_and_kill(runner, tmp_path, "*", 3, rng.uniform(0, 2.0))  # some run, others come
    with started(runner, tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    counted = [int(n) for n in (tmp_path / "stdout").read_text().split()]
    found = [
        sorted(pq.read_table(tmp_path / "out" / f"q{n}").column("id").to_pylist())
        for n in range(generation_runner.QUERIES)
    ]
    assert found == [list(range(ids[0], _FILES * _TUPLES)) for ids in found]
    assert counted == [len(ids) for ids in found]
    assert counted[-1] < counted[0]  # tuples went by while queries came


EVENTS = """
CREATE STREAM Taxis (id STRING, lon DOUBLE, lat DOUBLE, ts TIMESTAMP) WITH (source = 'file',
  path = 'in/Taxis', format = 'parquet', event_time = 'ts', slack = '5 seconds',
  max_files_per_batch = 2);
CREATE REGIONS Zones FROM 'zones.csv';
CREATE QUERY events AS SELECT id, name, event, unix_micros(time) AS at_us,
  stayed_ms * 1000 AS stayed_us
  FROM EVENTS OF Taxis BY id AT ST_Point(lon, lat) IN Zones [DWELL 6 SECONDS]
  INTO (sink = 'parquet', path = 'out/events');
"""


@pytest.mark.slow
def test_killed_while_objects_are_followed(tmp_path: Path) -> None:
    """Every event once, with other parallelism after the kill."""
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    rows = taxis(_TAXI_FILES * _TUPLES, seed=5)
    (tmp_path / "in" / "Taxis").mkdir(parents=True)
    for number in range(_TAXI_FILES + 1):
        piece = rows[number * _TUPLES : (number + 1) * _TUPLES]
        columns = {name: [row.get(name) for row in piece] for name in ("id", "lon", "lat", "ts")}
        times = pa.array([1_000_000 * ts for ts in columns["ts"]], pa.timestamp("us", "UTC"))
        path = tmp_path / "in" / "Taxis" / f"{number:05d}.parquet"
        pq.write_table(pa.table({**columns, "ts": times}), path)
    lines = [f'{name},"{area.wkt}"' for name, area in ZONES.items()]
    (tmp_path / "zones.csv").write_text("\n".join(["name,wkt", *lines]))
    (tmp_path / "events.cql").write_text(EVENTS)
    command = ["-m", "penstock.cli", "run", "events.cql", "--once", "-w", "w"]
    command += ["--set", "memory=1g", "--set", "trigger=10 ms"]
    kill_at(running(command, tmp_path), tmp_path, "events", 2, rng.uniform(0, 0.5))
    with running([*command, "--set", "parallelism=3"], tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    table = pq.read_table(tmp_path / "out" / "events")
    assert Counter(zip(*table.to_pydict().values(), strict=True)) == twin(rows)


def _start_and_kill(runner: str, folder: Path, query: str, results: int, then_s: float) -> None:
    kill_at(started(runner, folder), folder, query, results, then_s)
