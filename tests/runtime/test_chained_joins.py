"""Joins without a common key: Spark's own joins, with nothing lost and nothing kept for ever."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.differential.test_joins import COLUMNS, SCHEMA, SECOND, Case, sorted_rows

from penstock import Engine
from penstock.plan.specs import SlotSpec, WindowSpec
from penstock.runtime.config import SHIFT_US
from penstock.runtime.joining.chain_windows import expanded
from penstock.testing import ScriptedStream, quick_engine

PATIENCE_S = 600.0
DISORDER_S = 4
CASES = [
    Case("x.v AS a, y.v AS b", (("A", "x", 7), ("B", "y", 3)), "x.v < y.v AND x.id <> y.id"),
    Case(
        "x.v AS a, y.v AS b, z.v AS c",
        (("A", "x", 10), ("B", "y", 4), ("A", "z", 6)),
        "x.id = y.id AND y.name = z.name AND x.v < z.v",
    ),
    Case(
        "x.v AS a, y.v AS b, z.v AS c, w.v AS d",
        (("A", "x", 3), ("B", "y", 5), ("C", "z", 2), ("B", "w", 4)),
        "z.name = w.name AND x.id = y.id AND y.v = z.v AND w.v < 50",
    ),
]


COUNTED = Case(
    "x.id AS i, count(*) AS n, sum(y.v) AS s",
    (("A", "x", 20), ("B", "y", 10), ("C", "z", 5)),
    "x.id = y.id AND y.name = z.name",
)
WINDOWED = f"{COUNTED.text.replace('20 SECONDS', '20 SECONDS SLIDE 5 SECONDS')} GROUP BY x.id"
EXPECTED_WINDOWS = """
WITH found AS (
  SELECT x.id AS i, y.v AS v, epoch_us(greatest(x.ts, y.ts, z.ts)) AS latest, least(epoch_us(x.ts)
    + 20000000, epoch_us(y.ts) + 10000000, epoch_us(z.ts) + 5000000) AS last
  FROM A x, B y, C z WHERE x.id = y.id AND y.name = z.name),
ends AS (
  SELECT i, v, unnest(generate_series((latest // 5000000 + 1) * 5000000,
    last // 5000000 * 5000000, 5000000)) AS e FROM found WHERE latest <= last)
SELECT e - 20000000 AS first, e AS last, i, count(*) AS n, sum(v)::BIGINT AS s
FROM ends GROUP BY e, i
"""


def random_rows(rng: random.Random, second: int) -> pa.Table:
    """Tuples of twenty seconds, some of them out of order."""

    def row() -> dict[str, object]:
        seconds = second + rng.randrange(200) / 10 - rng.choice((0, 0, 1, DISORDER_S))
        return {
            "id": rng.choice((None, *range(8))),
            "name": rng.choice((None, "a", "A", "ü", "ab")),
            "v": rng.choice((None, *range(60))),
            "ts": int((1_000 + seconds) * SECOND),
        }

    return pa.Table.from_pylist([row() for _ in range(100)], SCHEMA)


def pushed(
    engine: Engine, duck: duckdb.DuckDBPyConnection, rng: random.Random
) -> list[ScriptedStream]:
    """Streams that get their tuples in several micro-batches; the last tuple is far ahead."""
    streams = []
    for name in "ABC":
        slack = f"{DISORDER_S + 20} s"
        streams.append(ScriptedStream(engine, name, COLUMNS, event_time="ts", slack=slack))
        pushes = [random_rows(rng, second) for second in range(0, 60, 20)]
        pushes.append(pa.Table.from_pylist([{"ts": 1_200 * SECOND}], SCHEMA))
        for table in pushes:
            streams[-1].push(table)
        duck.register(name, pa.concat_tables(pushes))
    return streams


def state_rows(engine: Engine) -> int:
    [ring] = engine.rings()
    return int(ring["state_rows"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case.inputs)}-way")
def test_tuples_out_of_order_find_each_other_and_are_forgotten(
    case: Case, spark: SparkSession
) -> None:
    duck = duckdb.connect()
    with quick_engine(spark) as engine:
        streams = pushed(engine, duck, random.Random(5))
        query = engine.register(case.text)
        engine.await_idle(PATIENCE_S)
        expected = sorted_rows(duck.sql(case.expected).to_arrow_table())
        assert len(expected) > 100
        assert sorted_rows(query.results()) == expected
        assert query.status.late == 0
        assert state_rows(engine) > 100
        for stream in streams:  # brings the punctuation along
            stream.push([{"ts": 1_200}])
        engine.await_idle(PATIENCE_S)
        assert state_rows(engine) <= 2 * len(streams)


def test_windows_of_combinations_close_when_they_are_complete(spark: SparkSession) -> None:
    duck = duckdb.connect()
    with quick_engine(spark) as engine:
        pushed(engine, duck, random.Random(6))
        query = engine.register(WINDOWED)
        engine.await_idle(PATIENCE_S)
        rows = query.results()
        for at in (0, 1):
            rows = rows.set_column(at, rows.schema.names[at], rows.column(at).cast(pa.int64()))
        expected = sorted_rows(duck.sql(EXPECTED_WINDOWS).to_arrow_table())
        assert len(expected) > 50
        assert sorted_rows(rows) == expected
        assert state_rows(engine) == 0


def test_windows_are_those_of_slots_that_live() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "__slots": pa.array([[1, 2], [2], [3]], pa.list_(pa.int32())),
            "__latest_us": [4, 11, 5],
            "__until_us": [21, 13, 9],
            "__c0": ["a", "b", "c"],
        }
    )
    slots = {
        1: SlotSpec(1, (), WindowSpec(20, 10)),
        2: SlotSpec(2, (), WindowSpec(10, 5), from_us=5),
    }
    [found] = expanded(batch, slots, ["0.x"])
    ends_us = found.column("__end").cast(pa.int64()).to_numpy() - SHIFT_US
    rows = zip(found.column("__slot").to_pylist(), ends_us.tolist(), strict=True)
    assert list(rows) == [(1, 10), (1, 20), (2, 15), (2, 20)]
    assert found.column("__range_us").to_pylist() == [20, 20, 10, 10]
    assert found.column("0.x").to_pylist() == ["a"] * 4


PAIRS = (
    "SELECT x.v AS a, y.v AS b, z.v AS c FROM A x [RANGE 10 SECONDS], B y [RANGE 10 SECONDS],"
    " C z [RANGE 5 SECONDS] WHERE x.id = y.id AND y.name = z.name"
)


def scripted(engine: Engine, directory: Path) -> list[ScriptedStream]:
    return [
        ScriptedStream(engine, name, COLUMNS, event_time="ts", directory=directory / name)
        for name in "ABC"
    ]


def tuple_of(v: int, ts: float, id_: int | None = 1, name: str | None = "n") -> dict[str, object]:
    return {"id": id_, "name": name, "v": v, "ts": ts}


def results(engine: Engine, name: str) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in engine.query(name).results().to_pylist())


def test_queries_share_a_chain_that_goes_on_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark, tmp_path / "w") as engine:
        a, b, _ = scripted(engine, tmp_path)
        engine.register(PAIRS, name="all")
        engine.register(f"{PAIRS} AND x.v > 10 AND z.v < 31", name="some")
        assert [ring["queries"] for ring in engine.rings()] == [2]
        assert "2. z, at most 5 seconds older" in engine.query("some").explain()
        a.push([tuple_of(10, 0), tuple_of(11, 1), tuple_of(12, 1, id_=None), tuple_of(13, 1, 2)])
        b.push([tuple_of(20, 0.5), tuple_of(20, 0.5), tuple_of(21, 2, name=None)])
        engine.await_idle(PATIENCE_S)
    with quick_engine(spark, tmp_path / "w") as engine:
        a, b, c = scripted(engine, tmp_path)
        c.push([tuple_of(30, 10), tuple_of(31, 10.5), tuple_of(32, 10.6)])
        engine.await_idle(PATIENCE_S)
        found = [(10, 20, 30), (10, 20, 30), *[(11, 20, v) for v in (30, 30, 31, 31)]]
        assert results(engine, "all") == found
        assert results(engine, "some") == [(11, 20, 30)] * 2
        for stream in (a, b, c):  # the second one brings the punctuation along
            stream.push([tuple_of(90, 100, 9, "far")])
            stream.push([tuple_of(0, 100, None, None)])
        engine.await_idle(PATIENCE_S)
        b.push([tuple_of(91, 95, 9, "far"), tuple_of(92, 89, 9, "far")])
        engine.await_idle(PATIENCE_S)
        found += [(90, 90, 90), (90, 91, 90)]  # late, but in reach of what comes; the other is lost
        assert results(engine, "all") == found
        status = engine.query("all").status
        assert (status.late, status.lost) == (2, 1)


def test_dataframes_of_users_are_chained(spark: SparkSession, tmp_path: Path) -> None:
    ddl = COLUMNS.replace("name STRING, ", "")
    with quick_engine(spark) as engine:
        for name in "AB":
            (tmp_path / name).mkdir()
            files = spark.readStream.schema(ddl).parquet(str(tmp_path / name))
            engine.stream(name, files, event_time="ts")
        engine.register(
            "SELECT x.v AS a, y.v AS b FROM A x [RANGE 9 SECONDS], B y [RANGE 9 SECONDS]"
            " WHERE x.v < y.v AND y.v % 2 = 0",
            name="pairs",
        )

        def push(name: str, *found: tuple[int, float]) -> None:
            rows = [{"id": 1, "v": v, "ts": ts} for v, ts in found]
            table = spark.createDataFrame(rows).selectExpr(
                "int(id)", "bigint(v)", "timestamp_seconds(ts) AS ts"
            )
            table.coalesce(1).write.mode("append").parquet(str(tmp_path / name))
            engine.await_idle(PATIENCE_S)

        push("A", (10, 0.0), (20, 1.0))
        push("B", (11, 2.0), (12, 2.0), (30, 20.0))
        assert results(engine, "pairs") == [(10, 12)]
        for second in (100.0, 200.0, 300.0):
            push("A", (0, second))
            push("B", (2, second))
        assert results(engine, "pairs") == [(0, 2), (0, 2), (0, 2), (10, 12)]
        assert state_rows(engine) < 5
