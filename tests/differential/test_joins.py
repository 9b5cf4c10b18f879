"""Joins of bounded runs give the rows that DuckDB gives for the same condition on the same data."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.differential.join_queries import COLUMNS, SCHEMA, SECOND, Case, sorted_rows

from penstock import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = [
    Case("x.v AS a, y.v AS b", (("A", "x", 10), ("B", "y", 10)), "x.id = y.id"),
    # shares the ring of the first, with ranges and a condition of its own
    Case("x.v AS a, y.v AS b", (("A", "x", 3), ("B", "y", 25)), "x.id = y.id AND y.v < 50"),
    Case(
        "x.id AS i, x.v AS a, y.name AS n, z.v AS c",
        (("A", "x", 20), ("B", "y", 5), ("C", "z", 60)),
        "x.id = y.id AND z.id = y.id AND x.v > 20 AND z.v < 80",
    ),
    Case(
        "x.v + y.v AS s, upper(y.name) AS u",
        (("A", "x", 30), ("B", "y", 30)),
        "x.id = y.id AND x.v < y.v",
    ),
    Case("x.v AS a, y.v AS b", (("A", "x", 5), ("A", "y", 5)), "x.id = y.id AND x.v <> y.v"),
    Case(
        "x.v AS a, y.v AS b, z.v AS c",
        (("A", "x", 40), ("B", "y", 40), ("C", "z", 40)),
        "x.name = y.name AND x.id = y.id AND y.name = z.name AND z.id = x.id",
    ),
    Case("x.name AS n, y.v AS b", (("A", "x", None), ("C", "y", 3)), "x.name = y.name"),
    Case(
        "y.id AS i",
        (("A", "x", 10), ("B", "y", 10), ("C", "z", 10)),
        "x.id = y.id AND y.id = z.id AND y.id < 4",
    ),
    Case("x.v AS a", (("A", "x", 1), ("B", "y", 2)), "upper(x.name) = y.name"),
]


WINDOWED = (
    "SELECT x.id AS i, count(*) AS n, sum(y.v) AS s FROM A x [RANGE 20 SECONDS SLIDE 5 SECONDS], "
    "B y [RANGE 10 SECONDS] WHERE x.id = y.id AND x.v > 10 GROUP BY x.id HAVING count(*) > 1"
)
EXPECTED_WINDOWS = """
WITH pairs AS (
  SELECT x.id AS i, y.v AS v, epoch_us(greatest(x.ts, y.ts)) AS latest,
    least(epoch_us(x.ts) + 20000000, epoch_us(y.ts) + 10000000) AS last
  FROM A x, B y
  WHERE x.id = y.id AND x.v > 10 AND x.ts IS NOT NULL AND y.ts IS NOT NULL),
ends AS (
  SELECT i, v, unnest(generate_series((latest // 5000000 + 1) * 5000000,
    last // 5000000 * 5000000, 5000000)) AS e FROM pairs WHERE latest <= last)
SELECT e - 20000000 AS first, e AS last, i, count(*) AS n, sum(v)::BIGINT AS s
FROM ends GROUP BY e, i HAVING count(*) > 1
"""

# nothing but keys is kept, and one stream has no RANGE
COUNTED = (
    "SELECT x.id AS i, count(*) AS n FROM C x, B y [RANGE 10 SECONDS SLIDE 5 SECONDS] "
    "WHERE x.id = y.id GROUP BY x.id"
)
EXPECTED_COUNTS = """
WITH pairs AS (
  SELECT x.id AS i, epoch_us(greatest(x.ts, y.ts)) AS latest, epoch_us(y.ts) + 10000000 AS last
  FROM C x, B y WHERE x.id = y.id AND x.ts IS NOT NULL AND y.ts IS NOT NULL),
ends AS (
  SELECT i, unnest(generate_series((latest // 5000000 + 1) * 5000000,
    last // 5000000 * 5000000, 5000000)) AS e FROM pairs WHERE latest <= last)
SELECT e - 10000000 AS first, e AS last, i, count(*) AS n FROM ends GROUP BY e, i
"""


def random_rows(rng: random.Random, count: int) -> pa.Table:
    def row() -> dict[str, object]:
        seconds = rng.choice((0, 1, 2)) * 0.5 + rng.randrange(120)
        return {
            "id": rng.choice((None, *range(8))),
            "name": rng.choice((None, "", "a", "A", "ü", "ab")),
            "v": rng.choice((None, *range(100))),
            "ts": None if rng.random() < 0.03 else int((1_700_000_000 + seconds) * SECOND),
        }

    return pa.Table.from_pylist([row() for _ in range(count)], SCHEMA)


def write(rng: random.Random, table: pa.Table, directory: Path) -> None:
    """Files after those that are there."""
    directory.mkdir(exist_ok=True)
    at = 0
    for number in range(len(list(directory.iterdir())), 50):
        size = rng.randrange(20, 120)
        pq.write_table(table.slice(at, size), directory / f"{number:03d}.parquet")
        at += size
        if at >= table.num_rows:
            return


SIZES = {"A": 200, "B": 150, "C": 60, "D": 0}
NOTHING = Case("x.v AS a", (("A", "x", 10), ("D", "y", 10)), "x.id = y.id")


@dataclass(frozen=True)
class Part:
    """Some of the cases, on data of their own: rings cost seconds to start."""

    cases: list[Case]
    windows: tuple[str, str] | None  # and what DuckDB is asked for them
    join_memory: str
    runs: int = 2  # of engines, each of which reads a part of the data


PARTS = [
    Part([c for c in CASES if c not in CASES[3::2]], (WINDOWED, EXPECTED_WINDOWS), "8 KB"),
    Part([*CASES[5::2], NOTHING], None, "1 GB"),
    Part([CASES[3]], (COUNTED, EXPECTED_COUNTS), "40 KB", runs=3),
]


@pytest.mark.parametrize("seed", range(len(PARTS)))
def test_a_join_gives_the_rows_that_duckdb_gives(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    part = PARTS[seed]
    duck = duckdb.connect()
    tables = {name: random_rows(rng, size) for name, size in SIZES.items()}
    for name, table in tables.items():
        duck.register(name, table)
    settings: dict[str, str | int] = {"trigger_ms": 10, "join_memory": part.join_memory}
    settings["join_tasks"] = rng.choice((1, 3))
    for run in range(part.runs):
        settings["parallelism"] = rng.choice((1, 2, 3))
        for name, table in tables.items():
            size = -(-table.num_rows // part.runs)
            write(rng, table.slice(run * size, size), tmp_path / name)
        with Engine(spark, tmp_path / "w", bounded=True, settings=settings) as engine:
            if run == 0:
                _register(engine, part, tmp_path, rng)
            if run < part.runs - 1:
                engine.await_idle(900)
                continue
            engine.finish(timeout=900)
            _compare(engine, part, duck)


def _register(engine: Engine, part: Part, directory: Path, rng: random.Random) -> None:
    for name in SIZES:
        engine.execute(
            f"CREATE STREAM {name} ({COLUMNS}) WITH (source = 'file', path = "
            f"'{directory / name}', format = 'parquet', event_time = 'ts', "
            f"max_files_per_batch = {rng.choice((3, 50))})"
        )
    with engine.together():
        for number, case in enumerate(part.cases):
            engine.register(case.text, name=f"q{number}")
        if part.windows is not None:
            engine.register(part.windows[0], name="windows")


def _compare(engine: Engine, part: Part, duck: duckdb.DuckDBPyConnection) -> None:
    for number, case in enumerate(part.cases):
        query, expected = engine.query(f"q{number}"), duck.sql(case.expected).to_arrow_table()
        assert (expected.num_rows > 50) == (case != NOTHING), case.text
        assert sorted_rows(query.results()) == sorted_rows(expected), case.text
        assert query.status.rows == expected.num_rows
    if part.windows is None:
        return
    rows = engine.query("windows").results()
    for at in (0, 1):
        rows = rows.set_column(at, rows.schema.names[at], rows.column(at).cast(pa.int64()))
    expected = duck.sql(part.windows[1]).to_arrow_table()
    assert expected.num_rows > 50
    assert sorted_rows(rows) == sorted_rows(expected)
