"""Joins on Spark: restarts, users' DataFrames, tuples that come late, tables without room."""

from __future__ import annotations

import os
import random
import re
import signal
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.chaos.processes import command_of, descendants

from penstock import Engine
from penstock.errors import EngineError
from penstock.runtime.derived.progress import roll_back
from penstock.testing import ScriptedStream, quick_engine

PATIENCE_S = 600.0
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
        engine.await_idle(PATIENCE_S)
    with quick_engine(spark, tmp_path / "w") as engine:
        a, b = streams(engine, tmp_path)
        b.push(rows((1, 30, 3), (2, 40, 12.5), (3, 50, 13)))
        engine.await_idle(PATIENCE_S)
        assert results(engine, "all") == [(1, 10, 30), (1, 11, 30)]
        assert results(engine, "some") == [(1, 11, 30)]
        a.push(rows((9, 90, 100)))
        b.push(rows((9, 90, 100)))
        engine.await_idle(PATIENCE_S)
        b.push(rows((1, 31, 4)))  # far behind: whom it could meet is forgotten
        engine.await_idle(PATIENCE_S)
        assert results(engine, "all") == [(1, 10, 30), (1, 11, 30), (9, 90, 90)]
        status = engine.query("all").status
        assert (status.rows, status.late, status.lost) == (3, 1, 1)


def offsets(checkpoint: Path) -> dict[str, list[str]]:
    """What each micro-batch has read up to, without Spark's own figures."""
    entries = (checkpoint / "offsets").glob("[0-9]*")
    return {path.name: path.read_text().splitlines()[2:] for path in entries}


def test_a_join_that_goes_back_to_its_beginning_has_the_same_micro_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also those that only close windows, and none with more epochs than it had."""
    pairs = "A [RANGE 2 SECONDS], B [RANGE 2 SECONDS]"
    with quick_engine(spark, tmp_path / "w") as engine:
        text = f"SELECT A.id, count(*) AS n FROM {pairs} WHERE A.id = B.id GROUP BY A.id"
        both = streams(engine, tmp_path)
        engine.register(text, name="all")
        for stream in both:
            for n in range(3):
                stream.push(rows((n, n, 2 * n)))
                engine.await_idle(PATIENCE_S)
        found = engine.query("all").results().to_pylist()
        [checkpoint] = (tmp_path / "w" / "rings").iterdir()
    ran = offsets(checkpoint)
    roll_back(checkpoint, -1)
    with quick_engine(spark, tmp_path / "w") as engine:
        streams(engine, tmp_path)
        engine.await_idle(PATIENCE_S)
        again = offsets(checkpoint)
        assert {batch: again[batch] for batch in ran} == ran
        assert engine.query("all").results().to_pylist() == found != []


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
            engine.await_idle(PATIENCE_S)

        push("A", (1, 10, 0.0), (2, 20, 1.0))
        push("B", (1, 11, 2.0), (1, 12, 2.0), (2, 30, 20.0))
        assert results(engine, "pairs") == [(1, 10, 12)]
        for second in (100.0, 200.0, 300.0):
            push("A", (1, 99, second), (2, 99, second), (5, 0, second))
            push("B", (1, 0, second), (2, 0, second), (5, 9, second))
        [ring] = engine.rings()
        assert ring["join"]["state_tuples"] <= 12  # of 23: those of 100 s and before are gone
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
            engine.await_idle(PATIENCE_S)
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
        engine.await_idle(PATIENCE_S)
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
        engine.await_idle(PATIENCE_S)
        assert results(engine, "all") == sorted(expected)


def test_queries_added_together_each_find_all_of_theirs(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whatever the order in which the selection of an input names the slots of a tuple."""
    conditions = {"over50": (50, 100), "over10": (10, 100), "under80": (-1, 80), "any": (-1, 100)}
    a_rows = [(n % 3, n * 7 % 100, n) for n in range(30)]
    b_rows = [(n % 3, n * 11 % 100, n) for n in range(30)]
    with quick_engine(spark) as engine:
        a, b = streams(engine, tmp_path)
        with engine.together():
            for name, (low, high) in conditions.items():
                engine.register(
                    f"{PAIRS} WHERE A.id = B.id AND A.v > {low} AND B.v < {high}", name=name
                )
        assert len(engine.rings()) == 1
        a.push(rows(*a_rows))
        b.push(rows(*b_rows))
        engine.await_idle(PATIENCE_S)
        for name, (low, high) in conditions.items():
            assert results(engine, name) == sorted(
                (i, v, w)
                for (i, v, s), (j, w, t) in product(a_rows, b_rows)
                if i == j and abs(s - t) <= 10 and v > low and w < high
            )


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


def test_a_query_with_too_many_combinations_can_be_dropped_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What is said of the ring names the query; others that reach less far have done no harm."""
    with quick_engine(spark, tmp_path / "w") as engine:
        a, b = streams(engine, tmp_path)
        text = "SELECT x.v AS x, y.v AS y, B.v AS b FROM A x [RANGE {0}], A y [RANGE {0}],"
        text += " B [RANGE {0}] WHERE x.id = y.id AND y.id = B.id"
        engine.register(text.format("1 SECOND"), name="near")
        engine.register(text.format("1 DAY"), name="far")
        assert len(engine.rings()) == 1
        a.push(rows(*((1, n, n) for n in range(3000))))
        engine.await_idle(PATIENCE_S)
        b.push(rows((1, 7, 2999)))
        with pytest.raises(EngineError, match=r"8,\d*,\d* combinations or more, for far:"):
            engine.await_idle(PATIENCE_S)
        assert "DROP it" in (engine.query("near").status.error or "")
        engine.execute("DROP QUERY far; RESUME QUERY near")
        engine.await_idle(PATIENCE_S)
        pairs = product((2998, 2999), repeat=2)
        assert results(engine, "near") == sorted((x, y, 7) for x, y in pairs)


def test_a_joins_tables_are_made_again_when_workers_die(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What a worker had in memory is nowhere else but in the state."""
    with quick_engine(spark, tmp_path / "w") as engine:
        a, b = streams(engine, tmp_path)
        with engine.together():
            engine.register(f"{PAIRS} WHERE A.id = B.id", name="pairs")
            keys = "SELECT A.id FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS]"
            engine.register(f"{keys} WHERE A.id = B.id", name="keys")
        for turn in range(3):
            a.push(rows((1, turn, turn)))
            engine.await_idle(PATIENCE_S)
            for pid in descendants(os.getpid()):
                if "pyspark.worker" in command_of(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            b.push(rows((1, 10 + turn, turn)))
            engine.await_idle(PATIENCE_S)
        assert results(engine, "pairs") == [(1, n, 10 + m) for n in range(3) for m in range(3)]
        assert results(engine, "keys") == [(1,)] * 9


def test_a_join_keeps_the_drop_ratio_of_each_input(spark: SparkSession, tmp_path: Path) -> None:
    """Every pair that is missing has a tuple that was late; late are no more than was said."""
    rng, ratio, count = random.Random(3), 0.02, 4000
    with quick_engine(spark, tmp_path / "w", bounded=True) as engine:
        made: dict[str, list[tuple[int, int, float]]] = {}
        for name, stream in zip("AB", streams(engine, tmp_path), strict=True):
            waits = sorted((n / 20 + rng.expovariate(0.5), n) for n in range(count))
            made[name] = [(rng.randrange(100), n, n / 20) for _, n in waits]
            for first in range(0, count, count // 20):
                stream.push(rows(*made[name][first : first + count // 20]))
        text = PAIRS.replace("SECONDS]", f"SECONDS DRATIO {100 * ratio}%]")
        with engine.together():
            engine.register(f"{text} WHERE A.id = B.id", name="pairs")
            for name in "AB":
                engine.register(f"SELECT v FROM {name}.late", name=f"late{name}")
        engine.finish(PATIENCE_S)
        late = {n: {v for (v,) in results(engine, f"late{n}")} for n in "AB"}
        found, figures = set(results(engine, "pairs")), engine.metrics()["streams"]
    pairs = {
        (id_, v, w)
        for id_, v, _ in made["A"]
        for key, w, _ in made["B"]
        if id_ == key and abs(v - w) <= 10 * 20
    }
    assert found <= pairs
    assert all(v in late["A"] or w in late["B"] for _, v, w in pairs - found)
    for name in "AB":
        [ring] = figures[name]["rings"]
        assert ring["estimator"] == "quantile"
        assert 0 < ring["ratio"] <= 1.5 * ratio
