"""Queries that move from ring to ring: no window starts anew, nothing is lost or comes twice."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Engine, EngineError
from penstock.control.ring_balance import Split
from penstock.runtime.query import Query
from penstock.runtime.rings.moving import _ALIGN_S
from penstock.testing import ScriptedStream, quick_engine

COLUMNS = "id BIGINT, room STRING, ts TIMESTAMP"
WINDOWS = (
    "SELECT room, count(*) AS n, sum(id) AS s FROM S [RANGE {} SECONDS SLIDE 5 SECONDS]"
    " GROUP BY room"
)


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


def stream_of(engine: Engine, name: str = "S", **given: Any) -> ScriptedStream:
    return ScriptedStream(engine, name, COLUMNS, event_time="ts", slack="0 s", **given)


def readings(numbers: range, rooms: int = 2) -> list[dict[str, Any]]:
    return [{"id": n, "room": f"r{n % rooms}", "ts": n} for n in numbers]


def rows(query: Query) -> list[tuple[Any, ...]]:
    """What a query made, without the bounds of windows."""
    found = query.results()
    return sorted(tuple(row.values()) for row in found.select(shown(found)).to_pylist())


def shown(table: pa.Table) -> list[str]:
    return [name for name in table.column_names if not name.startswith("window")]


def split(engine: Engine, *queries: Query) -> str:
    engine.await_idle()
    return engine._manager.split(queries[0].status.ring, [query.slot for query in queries])


def test_selections_go_on_in_a_copy_of_their_ring(engine: Engine) -> None:
    stream, got = stream_of(engine), []
    stay = engine.register("SELECT id FROM S WHERE id >= 0")
    go = engine.register("SELECT id FROM S WHERE id % 2 = 0 AND id >= 0")
    called = engine.register("SELECT id FROM S WHERE id > 5", sink=got.append)
    stream.push(readings(range(10)))
    copy = split(engine, called)
    assert called.status.ring == copy != stay.status.ring
    stream.push(readings(range(10, 20)))
    engine.await_idle()
    assert rows(stay) == [(n,) for n in range(20)]
    assert rows(go) == [(n,) for n in range(0, 20, 2)]
    assert sorted(pa.concat_tables(got).column("id").to_pylist()) == list(range(6, 20))
    assert called.status.rows == 14
    engine._slots.drop(called.slot)
    assert called.slot not in engine._rings.open_rings[copy].dispatcher.sinks
    stream.push(readings(range(20, 22)))
    engine.await_idle()
    assert rows(stay)[-1] == (21,)
    assert len(got) == 2


def test_without_room_for_a_copy_the_ring_goes_on_as_it_was(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(engine)
    query = engine.register(WINDOWS.format(5))
    stream.push(readings(range(3)))
    engine.await_idle()
    checkpoints = engine.workspace.path / "rings"

    copytree = shutil.copytree

    def full(source: str, target: str) -> None:
        if source.endswith("metadata"):
            raise OSError(errno.ENOSPC, "No space left on device")
        shutil.copyfile(source, target)

    def copy(source: Path, target: Path, *how: Any) -> None:
        copytree(source, target, *(how or (False, None, full)))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copytree", copy)
        with pytest.raises(EngineError, match=r"could not be copied.*No space left"):
            split(engine, query)
    assert [path.name for path in checkpoints.iterdir()] == [query.status.ring]
    stream.push(readings(range(3, 11)))
    engine.await_idle()
    assert sum(row[1] for row in rows(query)) == 10
    assert engine.rings()[0]["state"] == "running"


def test_a_ring_is_not_split_while_spark_would_do_again_what_was_delivered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Done again for fewer queries, it would take the place of what the others had."""
    monkeypatch.setattr("penstock.runtime.rings.ring._DELIVERED_S", 0.2)
    stream = stream_of(engine)
    stay, go = (engine.register(f"SELECT id FROM S WHERE id >= {n}") for n in range(2))
    stream.push(readings(range(5)))
    engine.await_idle()
    commits = engine.workspace.checkpoint(go.status.ring) / "commits"
    last = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    away = last.rename(commits.parent / "away")
    with pytest.raises(EngineError, match="cannot stop between"):
        split(engine, go)
    away.rename(last)
    stream.push(readings(range(5, 10)))
    copy = split(engine, go)
    stream.push(readings(range(10, 15)))
    engine.await_idle()
    assert go.status.ring == copy != stay.status.ring
    assert rows(stay) == [(n,) for n in range(15)]
    assert rows(go) == [(n,) for n in range(1, 15)]


def test_nothing_stops_and_nothing_is_left_where_no_query_can_move(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(engine)
    queries = [engine.register(f"SELECT id FROM S WHERE id >= {n}") for n in range(2)]
    stream.push(readings(range(3)))
    engine.await_idle()
    [ring] = engine._manager.running.snapshot()
    run, checkpoints = ring._query.runId, engine.workspace.path / "rings"
    ring.dispatcher.closed.add(queries[1].slot)
    with pytest.raises(EngineError, match="have to stay"):
        split(engine, queries[1])
    assert ring._query.runId == run
    movable = ring.dispatcher.movable
    answers = iter([[queries[0].slot], []])  # what could move is gone when the ring stands still
    with monkeypatch.context() as patch:
        patch.setattr(type(ring.dispatcher), "movable", lambda *_: next(answers))
        with pytest.raises(EngineError, match="have to stay"):
            split(engine, queries[0])
    assert movable([queries[0].slot]) == [queries[0].slot]
    assert [path.name for path in checkpoints.iterdir()] == [ring.id]
    stream.push(readings(range(3, 5)))
    engine.await_idle()
    assert rows(queries[0]) == [(n,) for n in range(5)]


def test_slots_do_not_change_over_before_spark_has_noted_what_was_delivered(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.rings.moving._ALIGN_S", 0.5)
    stream = stream_of(engine)
    stay, go = (engine.register(f"SELECT id FROM S WHERE id >= {n}") for n in range(2))
    stream.push(readings(range(5)))
    copy = split(engine, go)
    stream.push(readings(range(5, 10)))
    engine.await_idle()
    commits = engine.workspace.checkpoint(copy) / "commits"
    last = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    away = last.rename(commits.parent / "away")
    assert not engine._manager.hand_slots(copy, stay.status.ring, [go.slot])
    away.rename(last)
    monkeypatch.setattr("penstock.runtime.rings.moving._ALIGN_S", 60.0)
    assert engine._manager.hand_slots(copy, stay.status.ring, [go.slot])
    stream.push(readings(range(10, 15)))
    engine.await_idle()
    assert rows(stay) == [(n,) for n in range(15)]
    assert rows(go) == [(n,) for n in range(1, 15)]


def test_a_ring_that_keeps_up_is_not_held_for_one_that_is_behind(engine: Engine) -> None:
    engine.execute("SET sink_patience = 300")
    stream, go_on, seen = stream_of(engine), Event(), []

    def slow(rows: pa.Table) -> None:
        go_on.wait(200)

    stay = engine.register("SELECT id FROM S WHERE id >= 0", sink=slow)
    go = engine.register("SELECT id FROM S WHERE id >= 1")
    other = engine.register("SELECT id FROM S WHERE id >= 2", sink=seen.append)
    ring, manager = stay.status.ring, engine._manager
    go_on.set()
    stream.push(readings(range(5)))
    copy = split(engine, other)
    go_on.clear()
    for n in range(5, 9):
        stream.push(readings(range(n, n + 1)))
    wait_for(lambda: len(seen) == 5)
    before = time.monotonic()
    manager._carry_out(Split(ring, (go.slot,), copy))
    assert time.monotonic() - before < _ALIGN_S / 2
    assert go.status.ring == ring
    shown = {found["ring"]: found["note"] for found in engine.rings()}
    assert f"could not go to {copy}" in shown[ring]
    row = next(row for row in engine.registry.rings() if row.id == ring)
    facts = manager._balance._facts(row, engine._rings.open_rings[ring])
    assert not facts.portable  # so it is a copy that is decided on next
    stream.push(readings(range(9, 10)))
    wait_for(lambda: len(seen) == 6)
    go_on.set()
    engine.await_idle()
    assert rows(go) == [(n,) for n in range(1, 10)]


def test_rings_can_start_while_slots_wait_to_change_over(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(engine)
    stay, go = (engine.register(f"SELECT id FROM S WHERE id >= {n}") for n in range(2))
    stream.push(readings(range(5)))
    copy, rings, reached, waits = split(engine, go), engine._rings, Event(), [True]
    engine.await_idle()
    at_horizon = type(rings.epochs)._is_at_horizon

    def slowly(keeper: Any, state: Any) -> bool:
        reached.set()
        return not waits[0] and at_horizon(keeper, state)

    monkeypatch.setattr("penstock.runtime.rings.moving._ALIGN_S", 120.0)
    monkeypatch.setattr(type(rings.epochs), "_is_at_horizon", slowly)
    done: list[bool] = []
    hand = engine._manager.hand_slots
    mover = Thread(target=lambda: done.append(hand(copy, stay.status.ring, [go.slot])))
    mover.start()
    assert reached.wait(60)
    assert rings.starting.acquire(timeout=30)  # somebody starts a ring
    waits[0] = False
    mover.join(0.5)
    assert not done
    assert go.status.ring == copy  # nobody changes over meanwhile
    rings.starting.release()
    mover.join(60)
    assert done == [True]
    assert go.status.ring == stay.status.ring


def wait_for(what: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


Shown = Callable[[list[int]], tuple[Any, ...]]
# of one ring: what each shows of its aggregates, and what HAVING compares them with
OWN: dict[int, tuple[str, int, Shown]] = {
    10: ("count(*) AS n, sum(id) AS s", 0, lambda ids: (len(ids), sum(ids))),
    20: ("max(id) AS m", 2, lambda ids: (max(ids),)),
    30: ("avg(id) AS a, min(id) AS low", 6, lambda ids: (sum(ids) / len(ids), min(ids))),
}


def test_open_windows_go_along(engine: Engine) -> None:
    stream = stream_of(engine)
    window = "FROM S [RANGE {} SECONDS SLIDE 5 SECONDS] GROUP BY room HAVING count(id) > {}"
    queries = [
        engine.register(f"SELECT room, {items} {window.format(range_s, more_than)}")
        for range_s, (items, more_than, _) in OWN.items()
    ]
    assert len({query.status.ring for query in queries}) == 1
    stream.push(readings(range(12)))
    before = {query.slot: query.status.rows for query in queries}
    split(engine, *queries[1:])
    stream.push(readings(range(12, 40)))
    split(engine, queries[2])
    stream.push(readings(range(40, 90)))
    engine.await_idle()
    assert len({query.status.ring for query in queries}) == 3
    for query, (range_s, (_, more_than, shows)) in zip(queries, OWN.items(), strict=True):
        assert query.status.rows > before[query.slot]
        assert rows(query) == expected_windows(range_s, 5, 90, more_than, shows)
        assert (query.status.late, query.status.lost) == (0, 0)


def expected_windows(
    range_s: int, slide_s: int, end: int, more_than: int = 0, shows: Shown = OWN[10][2]
) -> list[tuple[Any, ...]]:
    """Of ids that are their times, from 0 on, all windows that begin at 0 or later and closed."""
    found = []
    for last in range(slide_s, end, slide_s):
        for room in (0, 1):
            ids = [n for n in range(max(0, last - range_s), last) if n % 2 == room]
            if len(ids) > more_than:
                found.append((f"r{room}", *shows(ids)))
    return sorted(found)


def test_joined_tuples_go_along(engine: Engine) -> None:
    left, right = stream_of(engine, "A"), stream_of(engine, "B")
    text = (
        "SELECT a.id AS x, b.id AS y FROM A [RANGE 100 SECONDS] a, B [RANGE 100 SECONDS] b"
        " WHERE a.id = b.id AND a.id >= {}"
    )
    queries = [engine.register(text.format(n)) for n in (0, 5)]
    left.push(readings(range(10)))
    split(engine, queries[1])
    right.push(readings(range(10)))
    engine.await_idle()
    assert rows(queries[0]) == [(n, n) for n in range(10)]
    assert rows(queries[1]) == [(n, n) for n in range(5, 10)]


def test_a_users_dataframe_is_read_on_from_the_same_tuple(engine: Engine, tmp_path: Path) -> None:
    frame = engine.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    (tmp_path / "in").mkdir()
    engine.stream("S", frame.parquet(str(tmp_path / "in")), event_time="ts", slack="0 s")
    queries = [engine.register(WINDOWS.format(n)) for n in (10, 20)]
    for number, ids in enumerate((range(12), range(12, 60))):
        table = engine.spark.createDataFrame(
            [(n, f"r{n % 2}") for n in ids], "id BIGINT, room STRING"
        ).selectExpr("id", "room", "timestamp_seconds(id) AS ts")
        table.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        engine.await_idle()
        if number == 0:
            split(engine, queries[1])
    engine.await_idle()
    assert rows(queries[0]) == expected_windows(10, 5, 60)
    assert rows(queries[1]) == expected_windows(20, 5, 60)


def test_rings_that_have_read_the_same_become_one(engine: Engine) -> None:
    stream = stream_of(engine)
    queries = [engine.register(f"SELECT id FROM S WHERE id >= {n}") for n in (0, 5)]
    stream.push(readings(range(10)))
    first, copy = queries[0].status.ring, split(engine, queries[1])
    stream.push(readings(range(10, 20)))
    assert engine._manager.hand_slots(copy, first, [queries[1].slot])
    stream.push(readings(range(20, 30)))
    engine.await_idle()
    assert [query.status.ring for query in queries] == [first, first]
    assert rows(queries[0]) == [(n,) for n in range(30)]
    assert rows(queries[1]) == [(n,) for n in range(5, 30)]
    assert queries[1].status.rows == 25


def test_a_restarted_engine_finds_every_query_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark, tmp_path / "w") as engine:
        stream = stream_of(engine, directory=tmp_path / "in")
        names = [engine.register(WINDOWS.format(n), name=f"q{n}").name for n in (10, 20)]
        stream.push(readings(range(12)))
        split(engine, engine.query("q20"))
    (tmp_path / "w" / "rings" / "window-000000").mkdir()  # of a copy that was cut short
    with quick_engine(spark, tmp_path / "w") as engine:
        stream_of(engine, directory=tmp_path / "in").push(readings(range(12, 60)))
        engine.await_idle()
        assert len(list((tmp_path / "w" / "rings").iterdir())) == 2
        for name, range_s in zip(names, (10, 20), strict=True):
            assert rows(engine.query(name)) == expected_windows(range_s, 5, 60)


def test_a_copy_does_not_deliver_again_what_its_ring_delivered(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not even if Spark's note of it is lost, as with the power of a machine."""
    with quick_engine(spark, tmp_path / "w") as engine:
        stream = stream_of(engine, directory=tmp_path / "in")
        engine.register("SELECT id FROM S WHERE id >= 0", name="q0")
        go = engine.register("SELECT id FROM S WHERE id >= 1", name="q1")
        stream.push(readings(range(5)))
        copy = split(engine, go)
        engine.await_idle()
        commits = engine.workspace.checkpoint(copy) / "commits"
    max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name)).unlink()
    with quick_engine(spark, tmp_path / "w") as engine:
        stream_of(engine, directory=tmp_path / "in").push(readings(range(5, 8)))
        engine.await_idle()
        assert rows(engine.query("q0")) == [(n,) for n in range(8)]
        assert rows(engine.query("q1")) == [(n,) for n in range(1, 8)]


def test_what_was_kept_for_a_query_before_does_not_hold_back_what_its_copy_keeps(
    engine: Engine,
) -> None:
    """A copy's micro-batches go on with the numbers that its ring's had."""
    engine.execute("SET sink_retry = 0.2")
    stream, got, broken = stream_of(engine), [], [True]

    def moody(found: pa.Table) -> None:
        if broken[0]:
            raise OSError("disk full")
        got.extend(found.column("id").to_pylist())

    engine.register("SELECT id FROM S WHERE id >= 0")
    go = engine.register("SELECT id FROM S WHERE id >= 1", sink=moody)
    for at in range(0, 6, 2):  # before, and in the copy
        broken[0] = True
        stream.push(readings(range(at, at + 2)))
        wait_for(lambda: go.status.state == "quarantined")
        broken[0] = False
        go.resume()
        wait_for(lambda: go.status.state == "running")
        engine.await_idle()
        if at == 0:
            copy = split(engine, go)
    assert go.status.ring == copy
    assert got == [1, 2, 3, 4, 5]


def test_rings_are_split_under_load_and_merged_without_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.execute("SET ring_maximum = 0.001; SET ring_settle = 2")
    stream = stream_of(engine)
    with engine.together():
        queries = [engine.register(f"SELECT id FROM S WHERE id >= {n}") for n in range(4)]
    # others who load the machine make rings look as if they took all of it
    monkeypatch.setattr("penstock.runtime.rings.balance.is_full", lambda *_: False)
    pushed, deadline = 0, time.monotonic() + 300
    while len(engine.rings()) < 2:
        assert time.monotonic() < deadline, [list(ring.items()) for ring in engine.rings()]
        size = 30_000 if pushed % 2 else 1  # what fills a ring is what more tuples take more
        stream.push(readings(range(pushed, pushed + size)))
        pushed += size
        engine.await_idle()
    notes = [str(ring["note"]) for ring in engine.rings()]
    assert any("went to" in note or "took" in note for note in notes), notes
    while len({query.status.ring for query in queries}) > 1:
        assert time.monotonic() < deadline, [list(ring.items()) for ring in engine.rings()]
        time.sleep(0.1)
    stream.push(readings(range(pushed, pushed + 100)))
    engine.await_idle()
    for number, query in enumerate(queries):
        assert rows(query) == [(n,) for n in range(number, pushed + 100)]
