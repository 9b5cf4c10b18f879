"""A thousand queries come and go while the stream runs: one ring, never restarted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.testing import ScriptedStream, quick_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = 1000
EVERY = 125


def test_a_thousand_queries_are_registered_and_dropped_without_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark) as engine:
        schema = "id INT, push INT, ts TIMESTAMP"
        stream = ScriptedStream(engine, "S", schema, event_time="ts", directory=tmp_path / "s")

        def push(number: int) -> None:
            stream.push([{"id": i, "push": number, "ts": number} for i in range(QUERIES)])
            engine.await_idle()

        first = engine.register("SELECT id, push FROM S WHERE id = 0", "q0")
        push(0)
        [ring] = engine.rings()
        running = _streaming_query(spark, ring["ring"])
        queries, spent = [first], 0.0
        for i in range(1, QUERIES):
            started = time.perf_counter()
            queries.append(engine.register(f"SELECT id, push FROM S WHERE id = {i}", f"q{i}"))
            spent += time.perf_counter() - started
            if i % EVERY == 0:
                push(
                    i // EVERY
                )  # live at once: the query just registered sees this push, none before
        push(QUERIES // EVERY)
        print(f"{1000 * spent / QUERIES:.2f} ms per registration")
        assert spent / QUERIES < 0.1

        assert [r["ring"] for r in engine.rings()] == [ring["ring"]]
        assert engine.rings()[0]["queries"] == QUERIES
        for i in (0, 1, EVERY - 1, EVERY, EVERY + 1, QUERIES // 2, QUERIES - 1):
            since = -(-i // EVERY)
            expected = [(i, push) for push in range(since, QUERIES // EVERY + 1)]
            rows = queries[i].results().to_pylist()
            assert [(r["id"], r["push"]) for r in rows] == expected

        rows_before = queries[5].status.rows
        for query in queries[1:]:
            query.drop()
        push(100)
        assert [q.name for q in engine.queries()] == ["q0"]
        assert queries[5].status.state == "dropped"
        assert queries[5].status.rows == rows_before
        assert first.results()["push"].to_pylist()[-1] == 100
        assert _streaming_query(spark, ring["ring"]) == running


def _streaming_query(spark: SparkSession, ring: str) -> tuple[str, str]:
    [query] = [q for q in spark.streams.active if q.name == f"penstock-{ring}"]
    return str(query.id), str(query.runId)
