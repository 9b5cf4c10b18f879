"""Bounded runs are exact: random queries over random tables give the rows that DuckDB gives.

PENSTOCK_DIFFERENTIAL_CASES asks for another number of random cases, PENSTOCK_DIFFERENTIAL_SEED for
one of them.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.differential.answers import difference, open_duckdb
from tests.differential.queries import Query, families, in_roles, selections, windows
from tests.differential.tables import FORMATS, SCHEMA, Table, random_table, write_files

from penstock import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = os.environ.get("PENSTOCK_DIFFERENTIAL_SEED")
CASES = range(int(os.environ.get("PENSTOCK_DIFFERENTIAL_CASES", "4")))
SEEDS = CASES if ONE is None else [int(ONE)]


def check(engine: Engine, queries: list[Query], table: Table) -> None:
    """Run all queries to the end; every one must have DuckDB's rows."""
    with engine.together():
        running = [engine.register(q.text) for q in queries]
    engine.finish(timeout=300)
    duck = open_duckdb(table.rows)
    problems = []
    for query, ours in zip(queries, running, strict=True):
        expected = duck.sql(query.expected).to_arrow_table()
        rows = ours.results()
        problem = difference(rows, expected, query.keys)
        if problem is None and ours.status.rows != expected.num_rows:
            problem = f"status tells {ours.status.rows} rows"
        if problem is not None:
            problems.append(f"{query.text}\n  {problem}\n  {query.expected}")
    assert not problems, f"{len(problems)} of {len(queries)} differ:\n" + "\n".join(problems[:5])


def file_stream(rng: random.Random, table: Table, format_: str, directory: Path) -> str:
    write_files(rng, table.rows, format_, directory)
    limit = rng.choice((1, 2, 1000))
    return (
        f"CREATE STREAM S ({SCHEMA.ddl()}) WITH (source = 'file', path = '{directory}', "
        f"format = '{format_}', event_time = 'ts', max_files_per_batch = {limit})"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bounded_run_gives_the_rows_that_duckdb_gives(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    table = random_table(rng, rng.choice((0, 1, 40, 400, 400, 400)))
    queries = selections(rng, table, 25, derived=False) + selections(rng, table, 6, derived=True)
    queries += windows(rng, table, 6, native=False) + windows(rng, table, 6, native=False)
    queries += windows(rng, table, 6, native=True) + families(rng, table, 8)
    queries += in_roles(rng, table, 16)
    settings = {"parallelism": rng.choice((1, 2, 4)), "native_queries": rng.choice((0, 4, 100))}
    with Engine(spark, tmp_path / "w", bounded=True, settings=settings) as engine:
        engine.execute(file_stream(rng, table, FORMATS[seed % 4], tmp_path / "in"))
        check(engine, queries, table)


@pytest.mark.parametrize(("seed", "native_queries"), [(100, 0), (101, 100)])
def test_a_dataframe_of_the_users_gives_the_same_rows(
    seed: int, native_queries: int, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    table = random_table(rng, 400)
    queries = selections(rng, table, 15, derived=False) + selections(rng, table, 4, derived=True)
    queries += windows(rng, table, 6, native=False) + windows(rng, table, 6, native=True)
    queries += families(rng, table, 6) + in_roles(rng, table, 8)
    write_files(rng, table.rows, "parquet", tmp_path / "in")
    reader = spark.readStream.schema(SCHEMA.ddl()).option("maxFilesPerTrigger", 2)
    settings = {"parallelism": 2, "native_queries": native_queries}
    with Engine(spark, tmp_path / "w", bounded=True, settings=settings) as engine:
        engine.stream("S", reader.parquet(str(tmp_path / "in")), event_time="ts")
        check(engine, queries, table)
