"""Rings without work sleep, and wake for whatever happens; each has a pool of its own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Engine
from penstock.runtime.engine import Engine as RunningEngine
from penstock.testing import ScriptedStream, quick_engine

SCHEMA = "id INT, ts TIMESTAMP"
LONG = {"idle_pause": "50 s"}  # a ring that is not woken would answer too late for any test here
SOON_S = 12.0


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark, settings=LONG) as made:
        yield made


def asked(engine: RunningEngine) -> list[str]:
    """From now on, each question for work that Spark asks."""
    keeper, questions = engine._manager.running.epochs, list[str]()
    plan = keeper.plan

    def counted(ring: str, start: int) -> int:
        questions.append(ring)
        return plan(ring, start)

    keeper.plan = counted  # type: ignore[method-assign]
    return questions


def sleep_well(engine: RunningEngine) -> None:
    """Let all rings find out that there is nothing, and think that it has been so for long."""
    engine.await_idle()
    time.sleep(0.3)
    for ring in engine._manager.running.snapshot():
        ring.pace._stirred_s -= 10_000


def test_an_idle_ring_asks_once_in_a_while_wakes_for_a_query_and_stops_at_once(
    engine: Engine,
) -> None:
    stream = ScriptedStream(engine, "S", SCHEMA, event_time="ts")
    first = engine.register("SELECT id FROM S WHERE id > 0")
    stream.push([{"id": 1, "ts": 0}])
    sleep_well(engine)
    questions = asked(engine)
    time.sleep(1.5)
    assert len(questions) <= 2  # without pauses about a hundred
    stream.push([{"id": 2, "ts": 0}])
    engine.await_idle()
    assert sorted(first.results()["id"].to_pylist()) == [1, 2]
    sleep_well(engine)
    stream.push([{"id": 3, "ts": 0}])
    time.sleep(0.2)
    second = engine.register("SELECT id FROM S WHERE id > 1")
    deadline = time.monotonic() + SOON_S
    while not second.results().num_rows and time.monotonic() < deadline:
        time.sleep(0.05)
    assert second.results()["id"].to_pylist() == [3]
    sleep_well(engine)
    begin = time.perf_counter()
    engine.stop()
    assert time.perf_counter() - begin < SOON_S


def test_windows_close_without_waiting_for_more_tuples(engine: Engine) -> None:
    stream = ScriptedStream(engine, "S", SCHEMA, event_time="ts", slack="0 s")
    query = engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS]")
    with query.subscribe() as results:
        stream.push([{"id": 1, "ts": 5}, {"id": 2, "ts": 25}])
        found = results.get(timeout=60)
    assert found is not None
    assert found["n"].to_pylist() == [1]


@pytest.mark.parametrize("key", ["A.id = B.id", "A.id < B.id + 1"])
def test_tuples_of_any_input_of_a_join_end_its_sleep(spark: SparkSession, key: str) -> None:
    with quick_engine(spark, settings={"idle_pause": "300 ms"}) as engine:
        streams = [ScriptedStream(engine, name, SCHEMA, event_time="ts") for name in "AB"]
        query = engine.register(
            f"SELECT A.id FROM A [RANGE 10 SECONDS], B [RANGE 10 SECONDS] WHERE {key}"
        )
        streams[0].push([{"id": 1, "ts": 0}])
        sleep_well(engine)
        questions = asked(engine)
        time.sleep(1)
        assert len(questions) <= 4
        with query.subscribe() as results:
            streams[1].push([{"id": 1, "ts": 1}])
            found = results.get(timeout=SOON_S)
        assert found is not None
        assert found["id"].to_pylist() == [1]


def test_readers_of_a_derived_stream_wake_when_it_gets_tuples(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark, tmp_path / "w", settings=LONG) as engine:
        stream = ScriptedStream(engine, "S", SCHEMA, event_time="ts")
        engine.execute("CREATE STREAM Hot AS SELECT id, ts FROM S WHERE id > 0")
        query = engine.register("SELECT id FROM Hot")
        stream.push([{"id": 1, "ts": 0}])
        sleep_well(engine)
        with query.subscribe() as results:
            stream.push([{"id": 2, "ts": 0}])
            [maker] = [r for r in engine._manager.running.snapshot() if r.feeds is not None]
            maker.pace.stir()
            found = results.get(timeout=SOON_S)
        assert found is not None
        assert found["id"].to_pylist() == [2]


def test_a_dataframe_is_read_to_its_end_when_somebody_waits_for_it(
    engine: Engine, tmp_path: Path
) -> None:
    spark = engine.spark
    (tmp_path / "in").mkdir()
    frame = spark.readStream.schema("id INT, ts TIMESTAMP").json(str(tmp_path / "in"))
    engine.stream("S", frame, event_time="ts", slack=0)
    query = engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS]")
    for number in range(3):
        sleep_well(engine)  # Spark has asked the files and waits for the punctuation
        line = f'{{"id": 1, "ts": "2026-01-01 00:0{number}:00"}}'
        (tmp_path / "in" / f"{number}.json").write_text(line)
        engine.await_idle()
        assert engine.metrics()["streams"]["S"]["rows"] == number + 1
    assert query.results()["n"].to_pylist() == [1, 1]


def test_each_ring_has_a_pool_of_its_own_and_pools_are_used_again(spark: SparkSession) -> None:
    context, seen = spark.sparkContext, dict[str, str | None]()

    def note(name: str, _: object) -> None:
        seen[name] = context.getLocalProperty("spark.scheduler.pool")

    with quick_engine(spark, settings=LONG) as engine:
        engine._sinks.terminal = note
        stream = ScriptedStream(engine, "S", SCHEMA, event_time="ts")
        for name in ("a", "b", "c"):
            column = "id" if name == "a" else f"id + {len(name)} AS x, '{name}' AS y"
            engine.register(f"SELECT {column} FROM S", name=name, sink="terminal")
            if name == "b":
                engine.drop_query("a")
                ring = engine._manager.running.snapshot()[0]
                engine._manager.running.retire(ring.id)
        stream.push([{"id": 1, "ts": 0}])
        engine.await_idle()
    assert seen == {"b": "penstock-1", "c": "penstock-0"}
    assert context.getLocalProperty("spark.scheduler.pool") is None


def engine_threads() -> Counter[str]:
    """Those of penstock, but who waits for a ring; of Spark's workers any number may ask."""
    names = (thread.name for thread in threading.enumerate())
    return Counter(n for n in names if "penstock" in n and not n.startswith("penstock-idle"))


def test_many_that_come_and_go_leave_nothing_behind(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("penstock.runtime.registry.queries.KEPT_DROPPED", 50)
    monkeypatch.setattr("penstock.runtime.registry.queries._PURGED_EVERY", 32)
    with quick_engine(spark, tmp_path / "w") as engine:
        stream = ScriptedStream(engine, "S", "id INT, name STRING, ts TIMESTAMP", event_time="ts")
        stays = engine.register("SELECT id FROM S WHERE name <> 'x'", name="stays")
        stream.push([{"id": 0, "name": "n0", "ts": 0}])
        engine.await_idle()
        [ring] = engine._manager.running.snapshot()
        running, threads = ring._query.runId, Counter[str]()
        for number in range(400):
            text = f"SELECT id FROM S WHERE name = 'n{number}' OR name = 'm{number}'"
            query = engine.register(text, sink="memory")
            if number % 50 == 0:
                stream.push([{"id": number, "name": f"n{number}", "ts": number}])
                engine.await_idle()
                assert query.results()["id"].to_pylist() == [number]
            query.drop()
            if number == 50:
                threads = engine_threads()
        assert ring._query.runId == running
        assert stays.status.rows == 9
        assert len(engine._sinks.functions) == len(engine._sinks.memory) == 0
        assert len(ring.dispatcher.sinks) == len(ring.dispatcher.columns) == 1
        [rows] = engine.registry.read("SELECT count(*) FROM queries")
        assert rows[0] <= 1 + 50 + 32
        assert engine_threads() <= threads


def test_rings_of_queries_of_their_own_go_with_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("penstock.runtime.registry.queries.KEPT_DROPPED", 1)
    monkeypatch.setattr("penstock.runtime.registry.queries._PURGED_EVERY", 1)
    with quick_engine(spark, tmp_path / "w") as engine:
        stream = ScriptedStream(engine, "S", SCHEMA, event_time="ts")
        stream.push([{"id": 1, "ts": 0}])
        rings = []
        for _ in range(4):
            query = engine.register("SELECT id FROM S", start="earliest")
            rings.append(query.status.ring)
            engine.await_idle()
            query.drop()
            deadline = time.monotonic() + 60
            while engine.rings() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not engine.rings()
            assert query.results()["id"].to_pylist() == [1]  # it is remembered
        stream.push([{"id": 2, "ts": 1}])
        query = engine.register("SELECT id FROM S")
        engine.await_idle()
        assert query.results()["id"].to_pylist() == [2]
        left = {path.name for path in (tmp_path / "w" / "results").iterdir()}
        assert query.status.ring in left
        assert len(left) <= 1 + 2
        assert not left & set(rings[:2])
        [consumed] = engine.registry.read("SELECT count(*) FROM consumed")
        assert consumed[0] <= 1 + 2


def test_show_rings_tells_what_they_have_to_do(spark: SparkSession) -> None:
    with quick_engine(spark) as engine:
        engine.execute(
            "CREATE STREAM G (id INT, ts TIMESTAMP) WITH (source = 'generator', rate = 2000,"
            " event_time = 'ts', generate = 'id: uniform(1, 20)')"
        )
        text = "SELECT id, count(*) AS n FROM G [RANGE 1 HOUR] WHERE id > {} GROUP BY id"
        for least in (0, 5):
            engine.register(text.format(least))
        deadline, shown = time.monotonic() + 60, dict[str, object]()
        while time.monotonic() < deadline:
            [shown] = engine.rings()
            if shown.get("tuples_per_s") and shown.get("backlog") and shown.get("state_rows"):
                break
            time.sleep(0.2)
    assert (shown["kind"], shown["queries"], shown["state"]) == ("window", 2, "running")
    assert (shown["error"], shown["note"]) == (None, None)
    number, unit = str(shown["backlog"]).split(" ", 1)
    assert number.replace(",", "").isdigit()
    assert unit
    for name in ("batch", "batch_ms", "rows_per_s", "state_rows", "state_bytes", "tuples_per_s"):
        assert isinstance(shown[name], int | float), name
        assert shown[name] >= (name != "batch"), (name, shown[name])
    assert isinstance(shown["capacity"], float)
    assert 0 <= shown["capacity"] < 10
