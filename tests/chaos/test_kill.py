"""Engines killed at random moments and started again until they are done.

The process gets SIGKILL: no handler runs, nothing is flushed. Whatever happens, the rows in the
files and the counts in the end are those of a straight run, and the killed engine leaves no process
behind.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.chaos import generation_runner, join_runner
from tests.chaos.processes import PATIENCE_S, kill, started, told, wait_for
from tests.golden.golden import expected_answers, golden_rows, write_golden

_FILES, _TUPLES = 100, 20


@pytest.mark.slow
def test_killed_engines_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    files = golden_rows(seed=3)
    write_golden(files, tmp_path / "in")
    for files_of_results in (1, 5):
        runner = "tests.chaos.runner"
        _start_and_kill(runner, tmp_path, "selected", files_of_results, rng.uniform(0, 1.5))
    with started("tests.chaos.runner", tmp_path) as process:
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


@pytest.mark.slow
def test_killed_joins_have_every_combination_once(tmp_path: Path) -> None:
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    duck = duckdb.connect()
    for name in "AB":
        (tmp_path / "in" / name).mkdir(parents=True)
        rows = [
            {
                "id": rng.randrange(60),
                "v": n,
                "ts": 1_000_000 * rng.randrange(n // 5 + 1, n // 5 + 20),
            }
            for n in range(_FILES * _TUPLES)
        ]
        schema = pa.schema(
            [("id", pa.int64()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
        )
        table = pa.Table.from_pylist(rows, schema)
        duck.register(name, table)
        for number in range(_FILES):
            piece = table.slice(number * _TUPLES, _TUPLES)
            pq.write_table(piece, tmp_path / "in" / name / f"{number:05d}.parquet")
    _start_and_kill("tests.chaos.join_runner", tmp_path, "pairs", 2, rng.uniform(0, 1.5))
    with started("tests.chaos.join_runner", tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    near = f"abs(epoch_us(A.ts) - epoch_us(B.ts)) <= {join_runner.RANGE_S * 1_000_000}"
    counted = []
    for name, items in join_runner.QUERIES.items():
        expected = duck.sql(f"SELECT {items} FROM A, B WHERE A.id = B.id AND {near}").fetchall()
        table = pq.read_table(tmp_path / "out" / name)
        assert sorted(zip(*table.to_pydict().values(), strict=True)) == sorted(expected)
        counted.append(len(expected))
    assert [int(n) for n in (tmp_path / "stdout").read_text().split()] == counted


def _start_and_kill(runner: str, folder: Path, query: str, results: int, then_s: float) -> None:
    """Kill it a while after it has written so many more files of results."""

    def count() -> int:
        return len(list((folder / "out").glob(f"{query}/*.parquet")))

    before = count()
    with started(runner, folder) as process:
        wait_for(lambda: count() >= before + results or process.poll() is not None)
        time.sleep(then_s)
        assert process.poll() is None, told(folder)
        kill(process)
