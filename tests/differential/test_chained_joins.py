"""Joins without a common key, in bounded runs, give the rows that DuckDB gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.differential.test_joins import COLUMNS, Case, random_rows, sorted_rows, write

from penstock import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [
    Case(
        "x.v AS a, y.v + z.v AS s",
        (("A", "x", None), ("B", "y", 10), ("C", "z", 5)),
        "x.id + 1 = y.id AND upper(y.name) = z.name AND x.v <> z.v AND x.v > 50",
    ),
    Case(
        "x.v AS a, y.v AS b, z.id AS c",
        (("A", "x", None), ("A", "y", None), ("B", "z", 4)),
        "y.id = z.id AND x.name = z.name AND x.v = y.v",
    ),
    Case("x.v AS a, y.name AS n", (("C", "x", 2), ("B", "y", 1)), "1 = 1"),
]


PARTS = [CASES[0::2], CASES[1::2]]  # one for each run: a chain costs seconds to start


@pytest.mark.parametrize("seed", range(2))
def test_a_chained_join_gives_the_rows_that_duckdb_gives(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    cases = PARTS[seed % 2]
    duck = duckdb.connect()
    settings = {"parallelism": rng.choice((1, 2, 3)), "trigger_ms": 10}
    with Engine(spark, tmp_path / "w", bounded=True, settings=settings) as engine:
        for name in "ABC":
            table = random_rows(rng, rng.choice((30, 150)))
            duck.register(name, table)
            write(rng, table, tmp_path / name)
            engine.execute(
                f"CREATE STREAM {name} ({COLUMNS}) WITH (source = 'file', path = "
                f"'{tmp_path / name}', format = 'parquet', event_time = 'ts', "
                f"max_files_per_batch = {rng.choice((3, 50))})"
            )
        with engine.together():
            running = [engine.register(case.text) for case in cases]
        engine.finish(timeout=900)
        for case, query in zip(cases, running, strict=True):
            expected = duck.sql(case.expected).to_arrow_table()
            assert sorted_rows(query.results()) == sorted_rows(expected), case.text
