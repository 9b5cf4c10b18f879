"""Queries that move from ring to ring: no window starts anew, nothing is lost or comes twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock import Engine
from penstock.runtime.query import Query
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
    called.drop()
    stream.push(readings(range(20, 22)))
    engine.await_idle()
    assert rows(stay)[-1] == (21,)
    assert len(got) == 2


def test_open_windows_go_along(engine: Engine) -> None:
    stream = stream_of(engine)
    queries = [engine.register(WINDOWS.format(n)) for n in (10, 20, 30)]
    stream.push(readings(range(12)))
    before = {query.slot: query.status.rows for query in queries}
    split(engine, *queries[1:])
    stream.push(readings(range(12, 40)))
    split(engine, queries[2])
    stream.push(readings(range(40, 90)))
    engine.await_idle()
    assert len({query.status.ring for query in queries}) == 3
    for query, range_s in zip(queries, (10, 20, 30), strict=True):
        assert query.status.rows > before[query.slot]
        assert rows(query) == expected_windows(range_s, 5, 90)
        assert (query.status.late, query.status.lost) == (0, 0)


def expected_windows(range_s: int, slide_s: int, end: int) -> list[tuple[Any, ...]]:
    """Of ids that are their times, from 0 on, all windows that begin at 0 or later and closed."""
    found = []
    for last in range(slide_s, end, slide_s):
        for room in (0, 1):
            ids = [n for n in range(max(0, last - range_s), last) if n % 2 == room]
            if ids:
                found.append((f"r{room}", len(ids), sum(ids)))
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


def test_rings_are_split_under_load_and_merged_without_it(engine: Engine) -> None:
    engine.execute("SET ring_maximum = 0.001; SET ring_settle = 2")
    stream = stream_of(engine)
    with engine.together():
        queries = [engine.register(f"SELECT id FROM S WHERE id >= {n}") for n in range(4)]
    pushed, deadline = 0, time.monotonic() + 90
    while len(engine.rings()) < 2:
        assert time.monotonic() < deadline, [list(ring.items()) for ring in engine.rings()]
        size = 30_000 if pushed % 2 else 1  # what fills a ring is what more tuples take more
        stream.push(readings(range(pushed, pushed + size)))
        pushed += size
        engine.await_idle()
    assert any("went to" in str(ring["note"]) for ring in engine.rings())
    while len({query.status.ring for query in queries}) > 1:
        assert time.monotonic() < deadline, [list(ring.items()) for ring in engine.rings()]
        time.sleep(0.1)
    stream.push(readings(range(pushed, pushed + 100)))
    engine.await_idle()
    for number, query in enumerate(queries):
        assert rows(query) == [(n,) for n in range(number, pushed + 100)]
