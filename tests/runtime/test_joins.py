"""Joins on Spark: restarts, users' DataFrames, tuples that come late, tables without room."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Engine
from penstock.testing import ScriptedStream, quick_engine

COLUMNS = "id INT, v INT, ts TIMESTAMP"
PAIRS = "SELECT A.id, A.v AS a, B.v AS b FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS]"


def rows(*found: tuple[int, int, float]) -> list[dict[str, object]]:
    return [{"id": id_, "v": v, "ts": ts} for id_, v, ts in found]


def streams(engine: Engine, directory: Path) -> list[ScriptedStream]:
    return [
        ScriptedStream(engine, name, COLUMNS, event_time="ts", directory=directory / name)
        for name in "AB"
    ]


def results(engine: Engine, name: str) -> list[tuple[int, ...]]:
    return sorted(tuple(row.values()) for row in engine.query(name).results().to_pylist())


def test_a_join_goes_on_after_a_restart_and_counts_what_is_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark, tmp_path / "w") as engine:
        a, _ = streams(engine, tmp_path)
        engine.register(f"{PAIRS} WHERE A.id = B.id", name="all")
        engine.register(f"{PAIRS} WHERE A.id = B.id AND A.v > 10 AND B.v < 40", name="some")
        assert len(engine.rings()) == 1
        a.push(rows((1, 10, 0), (1, 11, 1), (2, 20, 2)))
        engine.await_idle()
    with quick_engine(spark, tmp_path / "w") as engine:
        a, b = streams(engine, tmp_path)
        b.push(rows((1, 30, 3), (2, 40, 12.5), (3, 50, 13)))
        engine.await_idle()
        assert results(engine, "all") == [(1, 10, 30), (1, 11, 30)]
        assert results(engine, "some") == [(1, 11, 30)]
        a.push(rows((9, 90, 100)))
        b.push(rows((9, 90, 100)))
        engine.await_idle()
        b.push(rows((1, 31, 4)))  # far behind: whom it could meet is forgotten
        engine.await_idle()
        assert results(engine, "all") == [(1, 10, 30), (1, 11, 30), (9, 90, 90)]
        status = engine.query("all").status
        assert (status.rows, status.late, status.lost) == (3, 1, 1)


def test_dataframes_of_users_are_joined_and_forgotten_in_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark) as engine:
        for name in "AB":
            (tmp_path / name).mkdir()
            files = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / name))
            engine.stream(name, files, event_time="ts")
        engine.register(f"{PAIRS} WHERE A.id = B.id AND A.v + 1 < B.v", name="pairs")

        def push(name: str, *found: tuple[int, int, float]) -> None:
            table = spark.createDataFrame(rows(*found)).selectExpr(
                "int(id)", "int(v)", "timestamp_seconds(ts) AS ts"
            )
            table.coalesce(1).write.mode("append").parquet(str(tmp_path / name))
            engine.await_idle()

        push("A", (1, 10, 0.0), (2, 20, 1.0))
        push("B", (1, 11, 2.0), (1, 12, 2.0), (2, 30, 20.0))
        assert results(engine, "pairs") == [(1, 10, 12)]
        for second in (100.0, 200.0, 300.0):
            push("A", (5, 0, second))
            push("B", (5, 9, second))
        ring = engine.rings()[0]
        assert results(engine, "pairs") == [(1, 10, 12), *[(5, 0, 9)] * 3]
        disorder = engine.metrics()["streams"]["A"]["rings"][0]
        assert disorder["punctuation_us"] is not None
        assert ring["kind"] == "join"


def test_what_has_no_room_is_joined_when_the_inputs_pause(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark, tmp_path / "w", settings={"join_memory": 1}) as engine:
        a, b = streams(engine, tmp_path)
        engine.register(f"{PAIRS} WHERE A.id = B.id", name="all")
        for n in range(3):
            a.push(rows(*((i, n, n) for i in range(20))))
            b.push(rows(*((i, 10 + n, n) for i in range(20))))
            engine.await_idle()
        expected = sorted((i, a, 10 + b) for i in range(20) for a in range(3) for b in range(3))
        assert results(engine, "all") == expected
        [told] = engine.execute("EXPLAIN ANALYZE all")
        text = told.text or ""
        assert "tables    60 + 60 tuples with 20 keys, 100.00% of their bits set, 20 keys" in text
        assert "selectivities 1, 1:" in text
        assert "at selectivity 1 (seen)" in text
        assert "state     120 tuples" in text
        flushes = re.search(r"flushed (\d+) of \d+ buckets \((\d+) flushes\)", text)
        assert flushes is not None
        assert int(flushes[2]) > 0
        assert "disorder  A, " in text
    with quick_engine(spark, tmp_path / "w") as engine:
        a, b = streams(engine, tmp_path)
        a.push(rows((5, 7, 3)))
        engine.await_idle()
        assert results(engine, "all") == sorted([*expected, *((5, 7, 10 + n) for n in range(3))])


def test_sixteen_streams_each_with_a_range_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    names, ranges_s = [f"x{n}" for n in range(16)], [9, 2, 5, 9] * 4
    sources = [f"{'AB'[n % 2]} x{n} [RANGE {s} SECONDS]" for n, s in enumerate(ranges_s)]
    equal = " AND ".join(f"x0.id = {name}.id" for name in names[1:])
    items = ", ".join(f"{name}.v AS {name}" for name in names)
    tuples = {"A": [(1, 10, 0), (1, 11, 6), (2, 12, 0)], "B": [(1, 20, 5), (2, 21, 8), (3, 22, 8)]}
    expected = []
    for id_ in (1, 2, 3):
        found = {name: [t for t in tuples[name] if t[0] == id_] for name in "AB"}
        for members in product(*(found["AB"[n % 2]] for n in range(16))):
            latest = max(ts for _, _, ts in members)
            if all(latest - m[2] <= s for m, s in zip(members, ranges_s, strict=True)):
                expected.append(tuple(v for _, v, _ in members))
    assert len(expected) == 17  # of 256 with equal keys
    with quick_engine(spark) as engine:
        a, b = streams(engine, tmp_path)
        engine.register(f"SELECT {items} FROM {', '.join(sources)} WHERE {equal}", name="all")
        a.push(rows(*tuples["A"]))
        b.push(rows(*tuples["B"]))
        engine.await_idle()
        assert results(engine, "all") == sorted(expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT A.id FROM A, A WHERE A.id = A.id", "used twice"),
        (f"{PAIRS} WHERE A.id = C.id", "not a stream of this query"),
    ],
)
def test_refusals_say_what_to_do(spark: SparkSession, text: str, message: str) -> None:
    with quick_engine(spark) as engine:
        ScriptedStream(engine, "A", COLUMNS, event_time="ts")
        ScriptedStream(engine, "B", COLUMNS, event_time="ts")
        with pytest.raises(Exception, match=message) as error:
            engine.register(text)
        assert "\n" in str(error.value)
        assert engine.rings() == []
