"""Registrations against what happens to their streams and rings meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Engine, EngineError
from penstock.language import parse
from penstock.language.ast import BareSelect
from penstock.runtime.planning import Plan
from penstock.runtime.sinks.spec import SinkSpec
from penstock.testing import quick_engine

TEXT = "SELECT id FROM S WHERE id > 0"
STREAM = (
    "CREATE STREAM S (id {}, x DOUBLE, y DOUBLE, ts TIMESTAMP)"
    " WITH (source = 'generator', rows = 10, event_time = 'ts')"
)


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark, bounded=True) as made:  # nothing starts
        made.execute(STREAM.format("INT"))
        yield made


def planned(engine: Engine, text: str = TEXT) -> Plan:
    [statement] = parse(text)
    assert isinstance(statement, BareSelect)
    return engine.plan(statement.select)


def start(engine: Engine, plan: Plan) -> None:
    engine.start_query(plan, TEXT, "q", SinkSpec())


def test_a_stream_that_was_dropped_meanwhile_gets_no_query(engine: Engine) -> None:
    plan = planned(engine)
    engine.drop_stream("S")
    with pytest.raises(EngineError, match="stream S was dropped or changed meanwhile"):
        start(engine, plan)
    assert (engine.rings(), engine.queries()) == ([], [])


def test_a_stream_that_is_another_one_now_gets_no_query(engine: Engine) -> None:
    plan = planned(engine)
    engine.drop_stream("S")
    engine.execute(STREAM.format("STRING"))
    with pytest.raises(EngineError, match="stream S was dropped or changed meanwhile"):
        start(engine, plan)


def test_how_disorder_is_judged_may_change_meanwhile(engine: Engine) -> None:
    plan = planned(engine)
    engine.execute("SET S.estimator = 'max'")
    start(engine, plan)
    assert [q.name for q in engine.queries()] == ["q"]


def test_nobody_registers_for_a_stream_while_it_is_dropped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = engine._manager.forget
    plan, late = planned(engine), planned(engine, "SELECT id FROM S.late")

    def register_and_forget(stream: str) -> None:
        for wanted in (plan, late):
            with pytest.raises(EngineError, match="was dropped or changed meanwhile"):
                start(engine, wanted)
        forget(stream)

    monkeypatch.setattr(engine._manager, "forget", register_and_forget)
    engine.drop_stream("S")
    assert engine.queries() == []
    engine.execute(STREAM.format("INT"))  # the name can be used again
    start(engine, plan)


def test_regions_that_are_others_now_get_no_query(engine: Engine, tmp_path: Path) -> None:
    zones = tmp_path / "zones.csv"

    def create(zone: str) -> None:
        zones.write_text(f'zone,wkt\n{zone},"POLYGON ((0 0, 1 0, 1 1, 0 0))"\n')
        engine.execute(f"CREATE REGIONS Zones FROM '{zones}'")

    create("a")
    joined = "SELECT id, zone FROM S s, Zones z WHERE ST_Within(ST_Point(s.x, s.y), z.geom)"
    plan = planned(engine, joined)
    for others in (None, "b"):
        engine.drop_regions("Zones")
        if others is not None:
            create(others)
        with pytest.raises(EngineError, match="regions Zones were dropped or changed meanwhile"):
            start(engine, plan)
        if others is None:
            create("a")
    engine.drop_regions("Zones")
    create("a")
    start(engine, plan)


def test_a_query_whose_ring_cannot_be_opened_is_taken_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(engine._rings._opener, "open", refuse)
    with pytest.raises(OSError, match="disk full"):
        engine.register(TEXT, name="q", sink=lambda _: None)
    monkeypatch.undo()
    assert (engine.rings(), engine.queries(), engine._sinks.functions) == ([], [], {})
    start(engine, planned(engine))
    assert [q.name for q in engine.queries()] == ["q"]
