"""A ring that goes on with another plan: nothing is lost, nothing comes twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock import Engine, EngineError
from penstock.control import mode
from penstock.runtime import compile
from penstock.runtime.query import Query
from penstock.runtime.rings.ring import Ring
from penstock.schema import arrow_type
from penstock.testing import ScriptedStream, quick_engine

COLUMNS = "id BIGINT, name STRING"


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def put(inbox: Path, number: int, rows: int = 100) -> None:
    """Tuples number·rows …, each with a name of its number."""
    ids = range(number * rows, (number + 1) * rows)
    table = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"N{i}" for i in ids]})
    pq.write_table(table, inbox / f".{number}.tmp")
    (inbox / f".{number}.tmp").rename(inbox / f"{number:05d}.parquet")


def hand_over(engine: Engine, inbox: Path) -> None:
    files = engine.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    engine.stream("S", files.parquet(str(inbox)))


def ids(query: Query) -> list[int]:
    return sorted(query.results().column("id").to_pylist())


def modes(engine: Engine) -> list[str]:
    return [ring["selection"] for ring in engine.rings()]


def test_queries_with_other_derived_attributes_share_a_ring_that_learns_to_derive_them(
    engine: Engine,
) -> None:
    engine.execute("SET native_queries = 0")
    stream = ScriptedStream(engine, "S", COLUMNS)
    plain = engine.register("SELECT id FROM S WHERE name = 'n1'")
    lower = engine.register("SELECT id FROM S WHERE lower(name) = 'n1'")
    stream.push([{"id": 1, "name": "N1"}])
    engine.await_idle()
    length = engine.register("SELECT id FROM S WHERE char_length(name) = 2")
    other = engine.register("SELECT id FROM S WHERE lower(name) = 'n2'")
    stream.push([{"id": 2, "name": "N2"}, {"id": 3, "name": None}])
    engine.await_idle()
    assert len(engine.rings()) == 2  # one in the source's reader, one that Spark derives for
    assert [ids(q) for q in (plain, lower, length, other)] == [[], [1], [2], [2]]
    lower.drop()
    stream.push([{"id": 4, "name": "n1"}])
    engine.await_idle()
    assert [ids(q) for q in (plain, length, other)] == [[4], [2, 4], [2]]


def test_windows_that_are_open_go_on_in_the_next_plan(engine: Engine) -> None:
    columns = COLUMNS + ", ts TIMESTAMP"
    stream = ScriptedStream(engine, "S", columns, event_time="ts", slack="0 s")
    text = "SELECT count(*) AS n FROM S [RANGE 10 SECONDS] WHERE "
    first = engine.register(text + "lower(name) = 'a'")
    stream.push([{"id": n, "name": "A", "ts": n} for n in range(5)])
    engine.await_idle()
    [running] = engine.spark.streams.active
    second = engine.register(text + "char_length(name) = 1")
    for begin, end in ((5, 10), (10, 20), (40, 41)):
        stream.push([{"id": n, "name": "A", "ts": n} for n in range(begin, end)])
    engine.await_idle()
    assert [query.runId for query in engine.spark.streams.active] != [running.runId]
    assert first.results()["n"].to_pylist() == [10, 10]
    assert second.results()["n"].to_pylist() == [10]  # the first that begins after what was seen


def test_few_queries_run_in_sparks_own_code_and_change_over_as_they_grow(
    engine: Engine, inbox: Path
) -> None:
    hand_over(engine, inbox)
    with engine.together():
        first = engine.register("SELECT id FROM S WHERE id < 250 AND char_length(name) < 4")
        all_ = engine.register("SELECT id FROM S")
    put(inbox, 0)
    engine.await_idle()
    assert modes(engine) == ["spark"]
    assert "Spark's own code" in first.explain()
    assert engine.metrics()["streams"]["S"]["rows"] == 100
    third = engine.register("SELECT id FROM S WHERE endswith(name, '3')")
    assert modes(engine) == ["stage"]
    put(inbox, 1)
    engine.await_idle()
    late = engine.register("SELECT id FROM S WHERE name = 'N250'")  # no other plan for this one
    put(inbox, 2)
    engine.await_idle()
    assert ids(first) == list(range(100))
    assert ids(all_) == list(range(300))
    assert ids(third) == list(range(103, 300, 10))
    assert ids(late) == [250]
    assert len(engine.rings()) == 1


def test_results_have_the_same_types_whoever_selects(engine: Engine, inbox: Path) -> None:
    columns = (
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10,2), "
        "i DECIMAL(38,4), j STRING, k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n BINARY"
    )
    files = engine.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
    engine.stream("T", files.parquet(str(inbox)))
    row = engine.spark.sql(
        "SELECT true a, 1Y b, 2S c, 3 d, 4L e, float('nan') f, -0.0D g, 1.25BD h, 2.5BD i, 'x' j, "
        "DATE '1960-01-01' k, TIMESTAMP '1960-01-01 00:00:00.5' l, "
        "TIMESTAMP_NTZ '2200-01-01 00:00:00' m, X'00ff' n UNION ALL SELECT "
        + ", ".join(["NULL"] * 14)
    )
    row = row.selectExpr(*(f"CAST({n} AS {t}) {n}" for n, t in map(str.split, columns.split(", "))))
    query = engine.register("SELECT * FROM T WHERE d IS NULL OR d > 0")
    for number, place in enumerate(("spark", "stage")):
        assert modes(engine) == [place]
        row.coalesce(1).write.mode("append").parquet(str(inbox))
        engine.await_idle()
        if number == 0:
            engine.register("SELECT * FROM T WHERE d > 1")
    found = query.results()  # tables of different types would not go together
    assert found.num_rows == 4
    assert found.schema.types == [
        arrow_type(f.type) for f in engine.catalog.require("T").schema.fields
    ]
    rows = [repr(r) for r in found.to_pylist()]
    assert sorted(rows[:2]) == sorted(rows[2:])


def test_calm_queries_go_back_to_sparks_own_code_while_tuples_flow(
    engine: Engine, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mode, "CALM_S", 0.5)
    hand_over(engine, inbox)
    queries = [engine.register("SELECT id FROM S WHERE id >= 0")]
    done = threading.Event()

    def feed() -> None:
        number = 0
        while not done.wait(0.2):
            read = engine.metrics()["streams"]["S"]["rows"]
            if 100 * number - read < 500:  # a slow machine must be able to keep up
                put(inbox, number)
                number += 1

    feeder = threading.Thread(target=feed)
    feeder.start()
    seen: list[str] = []
    try:
        deadline = time.monotonic() + 300
        while seen.count("spark") < 3 and time.monotonic() < deadline:
            now = modes(engine)
            if now != seen[-1:]:
                seen += now
            if seen[-1:] == ["spark"] and len(queries) < 3 and queries[-1].results().num_rows:
                queries.append(engine.register("SELECT id FROM S WHERE id >= 0"))
            time.sleep(0.1)
    finally:
        done.set()
        feeder.join()
    engine.await_idle(600)
    assert seen[:5] == ["spark", "stage", "spark", "stage", "spark"]
    last = 100 * len(list(inbox.iterdir())) - 1
    for query in queries:
        found = ids(query)
        assert found == list(range(found[0], last + 1))


def test_own_streams_with_derived_attributes_run_in_sparks_own_code_too(engine: Engine) -> None:
    stream = ScriptedStream(engine, "S", COLUMNS + ", ts TIMESTAMP", event_time="ts")
    query = engine.register("SELECT id FROM S WHERE lower(name) = 'a' OR lower(name) IS NULL")
    stream.push([{"id": n, "name": name, "ts": n} for n, name in enumerate(["A", "b", None])])
    engine.await_idle()
    assert modes(engine) == ["spark"]
    assert ids(query) == [0, 2]
    assert engine.metrics()["streams"]["S"]["rows"] == 3


def test_queries_registered_while_their_ring_starts_all_get_their_rows(
    engine: Engine, inbox: Path
) -> None:
    hand_over(engine, inbox)
    put(inbox, 0, 1)
    queries: list[Query] = []

    def register(number: int) -> None:
        time.sleep(0.05 * number)
        queries.append(engine.register(f"SELECT id FROM S WHERE id >= {number}"))

    threads = [threading.Thread(target=register, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    put(inbox, 1)
    engine.await_idle()
    assert len(queries) == 6
    assert all(set(range(100, 200)) <= set(ids(query)) for query in queries)


def test_a_dataframe_with_state_is_never_selected_inside_its_own_plan(
    engine: Engine, inbox: Path
) -> None:
    files = engine.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    frame = files.parquet(str(inbox)).selectExpr("*", "timestamp_seconds(id + 1000) AS ts")
    counted = frame.withWatermark("ts", "0 seconds").groupBy("ts").count()
    engine.stream("S", counted.selectExpr("unix_seconds(ts) - 1000 AS id", "count"))
    first = engine.register("SELECT id, count FROM S WHERE id < 50")
    assert modes(engine) == ["stage"]
    put(inbox, 0)
    engine.await_idle()
    second = engine.register("SELECT id, count FROM S WHERE id >= 150")
    put(inbox, 1)
    put(inbox, 2)
    engine.await_idle()
    assert ids(first) == list(range(50))
    assert ids(second) == list(range(150, 300))


def test_conditions_drawn_at_random_are_drawn_once(engine: Engine, inbox: Path) -> None:
    hand_over(engine, inbox)
    with engine.together():
        half = engine.register("SELECT id FROM S WHERE rand(1) < 0.5")
        tenth = engine.register("SELECT id FROM S WHERE rand(2) < 0.1")
    put(inbox, 0, 4000)
    engine.await_idle()
    assert 1800 < len(ids(half)) < 2200
    assert 300 < len(ids(tenth)) < 500


def test_a_function_may_register_a_query_on_the_stream_that_calls_it(
    engine: Engine, inbox: Path
) -> None:
    hand_over(engine, inbox)
    later: list[Query] = []

    def register(rows: pa.Table) -> None:
        if not later:
            later.append(engine.register("SELECT id FROM S WHERE id >= 50"))

    caller = engine.register("SELECT id FROM S", sink=register)
    put(inbox, 0)
    engine.await_idle()
    put(inbox, 1)
    engine.await_idle()
    assert caller.status.state == "running"
    assert ids(later[0])[-100:] == list(range(100, 200))


def test_a_plan_that_spark_refuses_leaves_the_ring_as_it_was(
    engine: Engine, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_over(engine, inbox)
    first = engine.register("SELECT id FROM S WHERE id >= 0")
    put(inbox, 0)
    engine.await_idle()
    start = Ring.start

    def refuse(self: Ring, *args: Any) -> None:
        if args[-1].generation.native is None:
            raise RuntimeError("no such plan")
        start(self, *args)

    monkeypatch.setattr(Ring, "start", refuse)
    with pytest.raises(EngineError, match="no such plan"):
        engine.register("SELECT id FROM S WHERE id >= 1", name="second")
    text = "CREATE QUERY third AS SELECT id FROM S WHERE id >= 2"
    with pytest.raises(EngineError, match="Spark does not start third: no such plan"):
        engine.execute(text)
    with pytest.raises(EngineError, match="fourth"), engine.together():
        engine.register("SELECT id FROM S WHERE id >= 3", name="fourth", sink=lambda _: None)
    assert not engine._sinks.functions
    monkeypatch.undo()
    put(inbox, 1)
    engine.await_idle()
    assert ids(first) == list(range(200))
    assert [q.name for q in engine.queries()] == [first.name]


def test_a_ring_that_began_with_punctuation_beside_its_tuples_goes_on_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workspaces of earlier versions: Spark's log has two sources for such a ring."""

    def stream(engine: Engine) -> ScriptedStream:
        inbox, columns = tmp_path / "inbox", "id INT, ts TIMESTAMP"
        fixed = {"estimator": "fixed", "slack": "0 seconds"}
        return ScriptedStream(engine, "S", columns, event_time="ts", directory=inbox, **fixed)

    with monkeypatch.context() as earlier, quick_engine(spark, tmp_path / "w") as engine:
        earlier.setattr(compile, "tells_punctuation", lambda *_: False)
        tuples = stream(engine)
        engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS]", name="counted")
        tuples.push([{"id": 1, "ts": 1.0}, {"id": 2, "ts": 12.0}])
        engine.await_idle()
    (offsets,) = (tmp_path / "w" / "rings").glob("*/offsets/0")
    assert len(offsets.read_text().splitlines()) == 2 + 2  # the format, Spark's figures, sources
    with quick_engine(spark, tmp_path / "w") as engine:
        tuples = stream(engine)
        tuples.push([{"id": 3, "ts": 13.0}, {"id": 4, "ts": 41.0}])
        engine.await_idle()
        assert [ring["state"] for ring in engine.rings()] == ["running"]
        assert engine.query("counted").results().column("n").to_pylist() == [1, 2]
