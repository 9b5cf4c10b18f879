"""The engine as its users meet it, on a real Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock import Engine, EngineError, PenstockError, QueryError, WorkspaceError
from penstock.testing import ScriptedStream, quick_engine

READINGS = "id INT, temp DOUBLE, ts TIMESTAMP"


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


def _reading(id_: int, temp: float, ts: float) -> dict[str, Any]:
    return {"id": id_, "temp": temp, "ts": ts}


def test_queries_of_one_ring_have_sinks_of_their_own(engine: Engine, tmp_path: Path) -> None:
    readings = ScriptedStream(engine, "Readings", READINGS, event_time="ts")
    called: list[pa.Table] = []

    def fail(rows: pa.Table) -> None:
        raise OSError("disk full")

    text = "SELECT id, temp FROM Readings WHERE temp > {}"
    kept = engine.register(text.format(10), name="kept")
    memory = engine.register(text.format(20), name="memory", sink="memory")
    function = engine.register(text.format(30), name="function", sink=called.append)
    broken = engine.register(text.format(0), name="broken", sink=fail)
    out = {"sink": "json", "path": str(tmp_path / "out")}
    engine.register(text.format(0), name="files", sink=out)
    readings.push([_reading(i, 10.0 * i, i) for i in range(6)])
    engine.await_idle()
    readings.push([_reading(9, 90.0, 9)])
    engine.await_idle()
    assert len(engine.rings()) == 1
    assert sorted(kept.results().column("id").to_pylist()) == [2, 3, 4, 5, 9]
    assert sorted(memory.results().column("id").to_pylist()) == [3, 4, 5, 9]
    assert [sorted(t.column("id").to_pylist()) for t in called] == [[4, 5], [9]]
    assert function.results().num_rows == 0
    assert broken.status.state == "quarantined"
    assert "disk full" in str(broken.status.error)
    assert sorted(broken.results().column("id").to_pylist()) == [1, 2, 3, 4, 5, 9]
    assert len(list((tmp_path / "out").glob("files-*.json"))) == 2
    # the same text under the same name gives a quarantined query a new function
    again = engine.register(text.format(0), name="broken", sink=called.append)
    readings.push([_reading(10, 100.0, 10)])
    engine.await_idle()
    assert again.slot == broken.slot
    assert again.status.state == "running"
    assert [t.column("id").to_pylist() for t in called[-2:]] == [[10], [10]]


def test_results_can_be_followed_live_and_queries_may_share_files(
    engine: Engine, tmp_path: Path
) -> None:
    readings = ScriptedStream(engine, "Readings", READINGS, event_time="ts")
    into = f"INTO (sink = 'parquet', path = '{tmp_path / 'out'}', layout = 'batch')"
    for name, above in (("warm", 10), ("hot", 30)):
        engine.execute(
            f"CREATE QUERY {name} AS SELECT id FROM Readings WHERE temp > {above} {into}"
        )
    with pytest.raises(PenstockError, match="have a column _queries already"):
        engine.register(f"SELECT id AS _queries FROM Readings {into}")
    hot = engine.query("hot")
    live, closed = hot.subscribe(), hot.subscribe(limit=1)
    closed.close()
    readings.push([_reading(i, 10.0 * i, i) for i in range(6)])
    engine.await_idle()
    rows = live.get(timeout=60)
    assert rows is not None
    assert sorted(rows.column("id").to_pylist()) == [4, 5]
    [file] = (tmp_path / "out").iterdir()
    found = {r["id"]: sorted(r["_queries"]) for r in pq.read_table(file).to_pylist()}
    assert found == {2: ["warm"], 3: ["warm"], 4: ["hot", "warm"], 5: ["hot", "warm"]}
    hot.drop()
    assert list(live) == []
    with pytest.raises(EngineError, match="query hot is dropped"):
        hot.subscribe()
    to_the_end = engine.query("warm").subscribe()
    engine.stop()
    assert list(to_the_end) == []


def test_a_later_query_reads_on_and_an_earliest_one_reads_all(engine: Engine) -> None:
    readings = ScriptedStream(engine, "Readings", READINGS, event_time="ts")
    engine.register("SELECT id FROM Readings", name="first")
    readings.push([_reading(1, 1.0, 1)])
    engine.await_idle()
    later = engine.register("SELECT id, temp + 0 AS t FROM Readings")  # another composition
    window = engine.register("SELECT count(*) AS n FROM Readings [RANGE 10 SECONDS]")
    every = engine.register("CREATE QUERY e WITH (from = 'earliest') AS SELECT id FROM Readings")
    assert "first window" in window.notes[0]
    readings.push([_reading(2, 2.0, 2), _reading(3, 3.0, 12), _reading(4, 4.0, 40)])
    engine.await_idle()
    assert later.results().column("id").to_pylist() == [2, 3, 4]
    assert sorted(every.results().column("id").to_pylist()) == [1, 2, 3, 4]
    assert window.results().column("n").to_pylist() == [1]  # not the window of 1 and 2
    with pytest.raises(QueryError, match="no option form"):
        engine.register("CREATE QUERY f WITH (form = 'earliest') AS SELECT id FROM Readings")


def test_a_stream_dropped_and_made_again_starts_anew(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    readings = ScriptedStream(engine, "Readings", READINGS, event_time="ts", directory=folder)
    first = engine.register("SELECT id FROM Readings", name="q")
    readings.push([_reading(1, 1.0, 1)])
    engine.await_idle()
    with pytest.raises(EngineError, match="is read by 1 queries: q"):
        engine.drop_stream("Readings")
    engine.execute("DROP STREAM Readings CASCADE")
    assert first.status.state == "dropped"
    assert folder.exists()
    ScriptedStream(engine, "Readings", READINGS, event_time="ts", directory=folder)
    again = engine.register("SELECT id FROM Readings", name="q")
    engine.await_idle()
    assert again.results().column("id").to_pylist() == [1]


def test_windows_may_be_named_in_group_by_and_arrival_times_may_be_null(
    spark: SparkSession,
) -> None:
    schema = f"{READINGS}, arrived TIMESTAMP"
    with quick_engine(spark, bounded=True) as engine:
        readings = ScriptedStream(
            engine, "Readings", schema, event_time="ts", arrival_time="arrived"
        )
        query = engine.register(
            "SELECT window_start, id, count(*) AS n, unix_seconds(window_end) AS e FROM Readings"
            " [RANGE 10 SECONDS] GROUP BY window_start, window_end, id"
            " HAVING window_end IS NOT NULL"
        )
        readings.push([_reading(1, 1.0, 1), _reading(1, 1.0, 2), _reading(1, 1.0, 25)])
        engine.finish(120)
        rows = query.results().select(["id", "n", "e"]).to_pylist()
        assert sorted(r["e"] for r in rows) == [10, 30]
        assert sorted(r["n"] for r in rows) == [1, 2]


def test_a_session_with_other_settings_gets_the_same_answers_and_keeps_them(
    spark: SparkSession,
) -> None:
    other = spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", "false")
    other.conf.set("spark.sql.session.timeZone", "Asia/Seoul")
    with quick_engine(other, bounded=True) as engine:
        readings = ScriptedStream(engine, "Readings", READINGS, event_time="ts")
        hours = engine.register("SELECT hour(ts) AS h, try_divide(id, 0) AS x FROM Readings")
        readings.push([_reading(1, 1.0, 3600)])
        engine.finish(120)
        assert hours.results().to_pylist() == [{"h": 1, "x": None}]
    assert other.conf.get("spark.sql.ansi.enabled") == "false"
    assert other.conf.get("spark.sql.session.timeZone") == "Asia/Seoul"


def test_a_failing_expression_is_told_and_leaves_other_rings_alone(engine: Engine) -> None:
    readings = ScriptedStream(engine, "Readings", READINGS, event_time="ts")
    bad = engine.register("SELECT 1 / id AS x FROM Readings")
    good = engine.register("SELECT id FROM Readings")
    readings.push([_reading(0, 1.0, 1)])
    engine.await_idle()
    assert bad.status.state == "quarantined"
    assert "ivision by zero" in str(bad.status.error)
    bad.drop()
    engine.await_idle()
    assert good.results().num_rows == 1


def test_a_dataframe_that_spark_will_not_run_is_refused(
    engine: Engine, spark: SparkSession
) -> None:
    rate = spark.readStream.format("rate").load()
    engine.stream("Counts", rate.groupBy("value").count())
    with pytest.raises(EngineError, match="does not start"):
        engine.register("SELECT value FROM Counts")
    assert engine.queries() == []
    with pytest.raises(EngineError, match="is not streaming"):
        engine.stream("Static", spark.range(3))


def test_nobody_has_to_wait_while_rings_start_for_a_dataframe(
    engine: Engine, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: list[bool] = []

    def ask() -> None:
        if engine._guard.acquire(timeout=5):
            free.append(True)
            engine._guard.release()

    def hand_over(*_: object) -> None:
        other = Thread(target=ask)
        other.start()
        other.join()

    monkeypatch.setattr(engine._rings, "hand_over", hand_over)
    engine.stream("Ticks", spark.readStream.format("rate").load())
    assert free == [True]


def test_nothing_changes_on_an_error(engine: Engine) -> None:
    script = """
        CREATE STREAM Rooms (room STRING, ts TIMESTAMP)
          WITH (source = 'generator', rows = 10, event_time = 'ts');
        CREATE QUERY q AS SELECT rom FROM Rooms;
    """
    with pytest.raises(QueryError) as error:
        engine.execute(script)
    assert (error.value.line, error.value.column) == (4, 34)
    assert "did you mean room?" in str(error.value)
    assert engine.catalog.get("Rooms") is None
    for text, message in (
        ("SELECT * FROM Nothing", "stream Nothing not found"),
        ("CREATE STREAM D AS SELECT 1 AS x FROM Nothing", "stream Nothing not found"),
        (
            "CREATE STREAM `a/b` (x INT) WITH (source = 'file', path = 'x.csv')",
            "cannot be the name",
        ),
        ("CREATE STREAM X (x INT) WITH (source = 'fiel', path = 'x.csv')", "source fiel"),
        ("DROP QUERY nothing", "query nothing not found"),
        ("SET triger = 5", "setting triger is not known"),
    ):
        with pytest.raises(QueryError, match=message):
            engine.execute(text)
    with pytest.raises(PenstockError):
        engine.register("DROP QUERY x")


def test_expressions_are_judged_by_spark_in_words(engine: Engine) -> None:
    ScriptedStream(engine, "Readings", READINGS, event_time="ts")
    ScriptedStream(engine, "Others", READINGS, event_time="ts")
    for text, message in (
        ("SELECT nosuch(id) AS x FROM Readings", "function nosuch not found"),
        ("SELECT id FROM Readings WHERE upper(id, 2) = 'A'", "refused by Spark"),
        ("SELECT sum(DISTINCT id) AS s FROM Readings [RANGE 1 SECOND]", r"sum\(DISTINCT"),
        (
            "SELECT A.id FROM Readings A [RANGE 1 MINUTE], Others B [RANGE 1 MINUTE]"
            " WHERE nosuch(A.id) = B.id",
            "function nosuch not found",
        ),
    ):
        with pytest.raises(QueryError, match=message) as error:
            engine.register(text)
        assert "SQLSTATE" not in str(error.value)


def test_explain_tells_the_way_of_a_query(engine: Engine) -> None:
    ScriptedStream(engine, "Readings", READINGS, event_time="ts")
    text = engine.explain("SELECT id, max(temp) AS m FROM Readings [RANGE 1 MINUTE] GROUP BY id")
    assert "in the source's reader" in text
    assert "RANGE 1 minute" in text
    assert "max(temp)" in text
    assert "a new one" in text
    derived = "SELECT id FROM Readings WHERE upper(cast(id AS STRING)) = 'A'"
    assert "evaluated in Spark's own code" in engine.explain(derived)
    engine.execute("SET native_queries = 0")
    assert "in mapInArrow" in engine.explain(derived)


def test_an_endless_stream_is_refused_in_a_bounded_run(spark: SparkSession) -> None:
    with quick_engine(spark, bounded=True) as engine:
        engine.execute(
            "CREATE STREAM G (id INT, ts TIMESTAMP) WITH (source = 'generator', event_time = 'ts')"
        )
        with pytest.raises(QueryError, match="stream G never ends"):
            engine.register("SELECT id FROM G")


def test_a_second_engine_on_a_workspace_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    refused = pytest.raises(WorkspaceError, match="is in use by process")
    with quick_engine(spark, tmp_path / "w"), refused:
        Engine(spark, tmp_path / "w")
    quick_engine(spark, tmp_path / "w").stop()


def test_a_ring_is_starting_until_spark_has_asked_for_work(engine: Engine) -> None:
    stream = ScriptedStream(engine, "S", "id INT")
    with engine.together():
        engine.register("SELECT id FROM S", name="q")
        assert [ring["state"] for ring in engine.rings()] == ["starting"]
    stream.push([{"id": number} for number in range(7)])
    engine.await_idle()
    [ring] = engine.rings()
    assert ring["state"] == "running"
    assert ring["rows_per_s"] == round(ring["rows_per_s"], 1)
    assert ring["tuples_per_s"] == round(ring["tuples_per_s"], 1)
    [told] = engine.execute("RESUME QUERY q")
    assert told.message == "query q is running"  # nothing is wrong with it
