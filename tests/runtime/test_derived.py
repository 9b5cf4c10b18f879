"""Derived streams in a live engine: who runs, what is complete, restarts, drops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.exchange.processes import NodeProcess

from penstock import Engine
from penstock.errors import PenstockError
from penstock.testing import ScriptedStream, quick_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id INT, ts TIMESTAMP"
PATIENCE_S = 60.0


@pytest.fixture
def started(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Engine, ScriptedStream]]:
    with Engine(spark, tmp_path / "w", settings={"trigger_ms": 10}) as engine:
        yield (
            engine,
            ScriptedStream(engine, "S", COLUMNS, event_time="ts", slack="2 seconds"),
        )


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _tuples(*seconds: int) -> list[dict[str, int]]:
    return [{"id": second, "ts": second} for second in seconds]


def _column(engine: Engine, query: str, column: str) -> list[int]:
    return sorted(engine.query(query).results().column(column).to_pylist())


def _shown(engine: Engine, what: str) -> dict[str, dict[str, object]]:
    """A table of SHOW by its first column."""
    [answer] = engine.execute(f"SHOW {what}")
    return {row[0]: dict(zip(answer.columns, row, strict=True)) for row in answer.rows}


def test_explain_names_the_place_in_the_ring_that_a_query_is_in(
    started: tuple[Engine, ScriptedStream],
) -> None:
    """Nobody may share the ring that makes a stream, and it never turns to Spark's own code."""
    engine, source = started
    engine.execute("CREATE STREAM Hot AS SELECT id, ts FROM S WHERE abs(id) = 2")
    engine.register("SELECT id FROM Hot WHERE id > 0")
    source.push(_tuples(1, 2))
    engine.await_idle(PATIENCE_S)
    ring = engine.query("Hot (stream)").status.ring
    assert _shown(engine, "RINGS")[ring]["selection"] == "stage"
    told = str(engine.execute("EXPLAIN Hot")[0].text)
    assert "evaluated in Spark's own code" not in told
    assert "evaluated in Spark's own code" in str(
        engine.execute("EXPLAIN SELECT id, ts FROM S WHERE abs(id) = 2")[0].text
    )


def test_punctuation_and_lateness_travel_with_the_stream(
    started: tuple[Engine, ScriptedStream],
) -> None:
    """Windows over a derived stream close and lose what they would lose over its source."""
    engine, source = started
    with engine.together():
        engine.execute("CREATE STREAM Few AS SELECT id, ts AS at FROM S WHERE id % 10 = 0")
        engine.execute("CREATE STREAM Same AS SELECT at, id FROM Few")
        text = "SELECT count(*) AS n FROM {} [RANGE 10 SECONDS] WHERE id % 10 = 0"
        direct = engine.register(text.format("S"), name="direct")
        derived = engine.register(text.format("Same"), name="derived")
    # the last tuples of each push are in no window of Few, yet show how far S has come
    for push in (_tuples(0, 1, 7), _tuples(10, 13), _tuples(20, 5, 33), _tuples(0, 10, 30, 47)):
        source.push(push)
        engine.await_idle(PATIENCE_S)
    assert engine.catalog.require("Same").event_time == "at"
    assert derived.results().to_pylist() == direct.results().to_pylist()
    assert len(derived.results()) == 4
    assert derived.status.late == direct.status.late == 2
    assert derived.disorder["punctuation_us"] == direct.disorder["punctuation_us"] == 45_000_000
    assert derived.disorder["estimator"] == "upstream"


def test_windows_over_a_stream_close_when_nothing_more_comes(spark: SparkSession) -> None:
    """The last tuples bring the punctuation that closes windows, and no tuple comes after them."""
    with quick_engine(spark) as engine:
        fixed = {"estimator": "fixed", "slack": "0 seconds"}
        source = ScriptedStream(engine, "S", COLUMNS, event_time="ts", **fixed)
        engine.execute("CREATE STREAM E AS SELECT id, ts FROM S WHERE id > 0")
        engine.register("SELECT count(*) AS n FROM E [RANGE 10 SECONDS]", name="counted")
        for second in (1, 2, 15):
            source.push(_tuples(second))
        _until(lambda: _column(engine, "counted", "n") == [2])


def test_windows_over_a_stream_close_in_the_end_though_it_went_on_without_tuples(
    spark: SparkSession,
) -> None:
    """What the ring that derives it has reached lies beyond all windows of its reader."""
    with quick_engine(spark, bounded=True) as engine:
        source = ScriptedStream(engine, "S", COLUMNS, event_time="ts")
        engine.execute("CREATE STREAM E AS SELECT id, ts FROM S WHERE id < 5")
        engine.register("SELECT count(*) AS n FROM E [RANGE 10 SECONDS]", name="counted")
        source.push(_tuples(1, 2, 100))
        engine.finish(PATIENCE_S)
        assert _column(engine, "counted", "n") == [2]


def test_a_stream_flows_from_its_first_reader_on_and_starts_again_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, settings = tmp_path / "in", {"trigger_ms": 10}
    with Engine(spark, tmp_path / "w", settings=settings) as engine:
        source = ScriptedStream(engine, "S", COLUMNS, event_time="ts", directory=folder)
        engine.execute("CREATE STREAM Even AS SELECT id, ts FROM S WHERE id % 2 = 0")
        engine.execute("CREATE STREAM Fours AS SELECT id, ts FROM Even WHERE id % 4 = 0")
        source.push(_tuples(1, 2, 4))
        engine.await_idle(PATIENCE_S)
        assert engine.query("Even (stream)").status.rows == 0  # nobody asked
        engine.register("SELECT id FROM Fours", name="quads")
        engine.register("SELECT id FROM Even", name="twos")
        engine.await_idle(PATIENCE_S)
        assert _column(engine, "quads", "id") == [4]
        ring = engine.query("quads").status.ring
        next(q for q in spark.streams.active if q.name == f"penstock-{ring}").stop()
        _until(lambda: engine.query("quads").status.state == "failed")
        source.push(_tuples(12))
        _until(lambda: engine.query("Fours (stream)").status.rows == 2)
        assert _shown(engine, "EXCHANGE")["Fours"]["lag"] != 0
    with Engine(spark, tmp_path / "w", settings=settings) as engine:
        source = ScriptedStream(engine, "S", COLUMNS, event_time="ts", directory=folder)
        source.push(_tuples(6, 8))
        engine.await_idle(PATIENCE_S)
        assert _column(engine, "quads", "id") == [4, 8, 12]
        assert _column(engine, "twos", "id")[-3:] == [6, 8, 12]
        assert _shown(engine, "EXCHANGE")["Fours"]["unsafe"] == 0
        assert _shown(engine, "STREAMS")["Fours"]["source"] == "derived"
        assert "Even (derived)" in engine.execute("EXPLAIN Fours")[0].text
        with pytest.raises(PenstockError, match="read by 2 queries"):
            engine.execute("DROP STREAM Even")
        with pytest.raises(PenstockError, match="makes stream Fours"):
            engine.execute("DROP QUERY `Fours (stream)`")
        engine.execute("DROP STREAM S CASCADE")
        assert (engine.queries(), engine.registry.streams()) == ([], [])
        assert list((tmp_path / "w" / "exchange" / "queues").glob("q_*")) == []


def test_where_tuples_enter_is_measured_and_tells_the_other_nodes(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        NodeProcess(tmp_path / "one") as one,
        NodeProcess(tmp_path / "two") as two,
        Engine(spark, tmp_path / "w") as engine,
        one.client() as there,
    ):
        ScriptedStream(engine, "S", COLUMNS, event_time="ts")
        engine.execute(f"SET exchange_token_file = '{tmp_path / 'one' / 'token'}'")
        at = "CREATE STREAM {} WITH (node = '{}') AS SELECT id, ts FROM {}"
        engine.execute(at.format("First", one.address.uri, "S"))
        engine.execute(at.format("Second", two.address.uri, "First"))
        _until(lambda: there.stats()["tells"] == [two.address.uri])
        first, second = map(engine.catalog.require, ("First", "Second"))
        _until(lambda: engine.exchange.describe(first)["measured"])
        assert not engine.exchange.describe(second)["measured"]


def test_a_node_that_dies_and_returns_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """The queue is on a node of its own, which is killed while tuples go through."""
    with (
        NodeProcess(tmp_path / "node") as node,
        Engine(spark, tmp_path / "w", settings={"trigger_ms": 10}) as engine,
    ):
        source = ScriptedStream(engine, "S", COLUMNS, event_time="ts")
        engine.execute(f"SET exchange_node = '{node.address.uri}'")
        with pytest.raises(PenstockError, match="the token of node"):
            engine.execute("CREATE STREAM Even AS SELECT id, ts FROM S")
        engine.execute(f"SET exchange_token_file = '{tmp_path / 'node' / 'token'}'")
        with engine.together():
            engine.execute("CREATE STREAM Even AS SELECT id, ts FROM S WHERE id % 2 = 0")
            engine.register("SELECT id FROM Even", name="twos")
        source.push(_tuples(*range(10)))
        engine.await_idle(PATIENCE_S)
        node.kill()
        source.push(_tuples(*range(10, 20)))
        time.sleep(0.5)
        node.start()
        node.wait_until_up()
        engine.await_idle(PATIENCE_S)
        assert _column(engine, "twos", "id") == list(range(0, 20, 2))
        assert not (tmp_path / "w" / "exchange").exists()
