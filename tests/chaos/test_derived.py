"""Pipelines of derived streams, killed, with their queues lost, and run to the end."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.chaos.processes import PATIENCE_S, kill, running, told, wait_for

FILES, TUPLES = 16, 20
S = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
SCRIPT = """
CREATE STREAM A (id BIGINT, v BIGINT, ts TIMESTAMP) WITH (source = 'file', path = 'in',
  format = 'parquet', event_time = 'ts', max_files_per_batch = 2);
CREATE STREAM Few WITH (capacity = '64 KB') AS SELECT id, v, ts FROM A WHERE v % 3 > 0;
CREATE STREAM One AS SELECT id, v, ts FROM Few WHERE v % 3 = 1;
CREATE STREAM Sums AS SELECT id, sum(v) AS s FROM Few [RANGE 10 SECONDS] GROUP BY id;
CREATE QUERY ones AS SELECT v FROM One INTO (sink = 'parquet', path = 'out/ones');
CREATE QUERY sums AS SELECT count(*) AS n, sum(s) AS s FROM Sums [RANGE 20 SECONDS]
  INTO (sink = 'parquet', path = 'out/sums');
"""
EXPECTED = {
    "ones": "SELECT v FROM A WHERE v % 3 = 1",
    "sums": f"""WITH sums AS (SELECT id, (epoch_us(ts) // {10 * S} + 1) * {10 * S} AS us,
      sum(v) AS s FROM A WHERE v % 3 > 0 GROUP BY ALL)
      SELECT count(*) AS n, sum(s)::BIGINT AS s FROM sums GROUP BY us // {20 * S}""",
}


@pytest.mark.slow
def test_every_result_comes_once(tmp_path: Path) -> None:
    """Killed twice; the second time all queues are gone, too."""
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    table = _disordered(rng)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        piece = table.slice(number * TUPLES, TUPLES)
        pq.write_table(piece, tmp_path / "in" / f"{number:05d}.parquet")
    (tmp_path / "derived.cql").write_text(SCRIPT)
    command = ["-m", "penstock.cli", "run", "derived.cql", "--once", "-w", "w"]
    command += ["--set", "memory=1g", "--set", "trigger=10 ms"]
    _kill_at(command, tmp_path, 2, rng.uniform(0, 0.4))
    _kill_at(command, tmp_path, 2, rng.uniform(0, 0.4))
    shutil.rmtree(tmp_path / "w" / "exchange")
    with running(command, tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    duck = duckdb.connect()
    duck.register("A", table)
    for name, sql in EXPECTED.items():
        expected = duck.sql(sql).fetchall()
        found = pq.read_table(tmp_path / "out" / name)
        columns = [c for c in found.column_names if not c.startswith("window_")]
        rows = zip(*found.select(columns).to_pydict().values(), strict=True)
        assert len(expected) > 2
        assert sorted(rows) == sorted(expected), name


def _disordered(rng: random.Random) -> pa.Table:
    rows = [
        {"id": rng.randrange(20), "v": n, "ts": S * rng.randrange(n // 5 + 1, n // 5 + 9)}
        for n in range(FILES * TUPLES)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def _kill_at(command: list[str], folder: Path, results: int, then_s: float) -> None:
    before = _count(folder)
    with running(command, folder) as process:
        wait_for(lambda: _count(folder) >= before + results or process.poll() is not None)
        time.sleep(then_s)
        assert process.poll() is None, told(folder)
        kill(process)


def _count(folder: Path) -> int:
    return len(list((folder / "out").glob("*/*.parquet")))
