"""Queries that Spark refuses a plan for: who is told, who goes on, what is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Engine, EngineError
from penstock.runtime.query import Query
from penstock.runtime.rings import ring
from penstock.testing import ScriptedStream, quick_engine

GOOD = "CREATE QUERY good AS SELECT id FROM S WHERE upper(name) = 'A'"
BAD = "CREATE QUERY bad AS SELECT id FROM S WHERE reverse(name) = 'a'"


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


@pytest.fixture
def stream(engine: Engine) -> ScriptedStream:
    """With a ring that derives lower(name) and nothing else."""
    stream = ScriptedStream(engine, "S", "id INT, name STRING")
    engine.register("SELECT id FROM S WHERE lower(name) < 'z'", name="first")
    stream.push([{"id": 1, "name": "a"}])
    engine.await_idle()
    return stream


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark refuses plans that reverse anything."""
    made = ring.ring_frame

    def refuse_or_make(*given: Any) -> Any:
        if any("reverse" in attribute.sql for attribute in given[5].derived):
            raise RuntimeError("no such plan")
        return made(*given)

    monkeypatch.setattr(ring, "ring_frame", refuse_or_make)


def ids(query: Query) -> list[int]:
    return sorted(query.results().column("id").to_pylist())


def shown(engine: Engine) -> dict[str, tuple[str, str | None]]:
    [answer] = engine.execute("SHOW QUERIES")
    return {row[0]: (row[1], row[-1]) for row in answer.rows}


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert holds()


def test_others_of_the_script_run(engine: Engine, stream: ScriptedStream) -> None:
    served = "CREATE QUERY served AS SELECT id FROM S WHERE lower(name) = 'a'"
    with pytest.raises(EngineError, match=r"^Spark does not start bad: no such plan$"):
        engine.execute(f"{GOOD}; {BAD}; {served}")
    assert [q.name for q in engine.queries()] == ["first", "good", "served"]
    assert shown(engine)["bad"] == ("refused", "no such plan")
    stream.push([{"id": 2, "name": "a"}])
    engine.await_idle()
    assert ids(engine.query("good")) == ids(engine.query("served")) == [2]
    assert ids(engine.query("first")) == [1, 2]


def test_whoever_comes_after_a_refusal_is_not_refused_for_it(
    engine: Engine, stream: ScriptedStream
) -> None:
    with pytest.raises(EngineError, match="no such plan"):
        engine.execute(BAD)
    engine.execute(GOOD)  # before there is another epoch
    stream.push([{"id": 2, "name": "a"}])
    engine.await_idle()
    assert ids(engine.query("good")) == [2]
    bad = engine.register("SELECT id FROM S WHERE id > 1", name="bad")  # the name is free
    assert shown(engine)["bad"] == ("running", None)
    bad.drop()
    assert "bad" not in shown(engine)


def test_the_author_is_told_and_nobody_else(engine: Engine, stream: ScriptedStream) -> None:
    inside, done = threading.Event(), threading.Event()
    told: list[Exception] = []

    def look() -> None:
        try:
            with engine.together():
                inside.set()
                done.wait(60)
        except Exception as error:
            told.append(error)

    other = threading.Thread(target=look)
    other.start()
    assert inside.wait(60)
    with pytest.raises(EngineError, match="bad: no such plan"):
        engine.execute(BAD)
    done.set()
    other.join(60)
    assert told == []


def test_a_block_that_fails_leaves_its_refusals_to_nobody(
    engine: Engine, stream: ScriptedStream
) -> None:
    with suppress(KeyError), engine.together():
        query = engine.register(BAD)
        raise KeyError
    engine.execute("SHOW RINGS")
    assert (query.status.state, query.status.error) == ("refused", "no such plan")


def test_a_query_that_a_sink_registers_has_the_error_as_its_state(
    engine: Engine, stream: ScriptedStream
) -> None:
    later: list[Query] = []

    def register(_: object) -> None:
        if not later:
            later.append(engine.register(BAD, sink=lambda _: None))

    engine.register("SELECT id FROM S WHERE lower(name) < 'y'", name="caller", sink=register)
    stream.push([{"id": 2, "name": "a"}])
    eventually(lambda: bool(later) and later[0].status.state == "refused")
    assert later[0].status.error == "no such plan"
    assert shown(engine)["bad"] == ("refused", "no such plan")
    caller = engine.query("caller")
    assert list(engine._sinks.functions) == [caller.slot]
    assert caller.status.state == "running"
    with pytest.raises(EngineError, match="dropped"):
        later[0].subscribe()
