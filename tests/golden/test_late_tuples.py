"""Disorder, tuple by tuple: what is late, for which query, and where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock import Engine, Query
from penstock.testing import ScriptedStream, quick_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tuples(*times: float) -> list[dict[str, float]]:
    return [{"ts": t, "id": int(t)} for t in times]


def counts(query: Query) -> dict[int, int]:
    """Results of a count query by the end of their window, in seconds."""
    rows = query.results().to_pylist()
    ends = [int(r["window_end"].timestamp()) for r in rows]
    assert len(set(ends)) == len(ends), "a window was reported twice"
    return dict(sorted(zip(ends, [r["n"] for r in rows], strict=True)))


def scripted(engine: Engine, tmp_path: Path, **options: str) -> ScriptedStream:
    schema = "id INT, ts TIMESTAMP, arrived TIMESTAMP"
    return ScriptedStream(engine, "S", schema, event_time="ts", directory=tmp_path / "s", **options)


def test_a_fixed_slack_makes_exactly_those_tuples_late_that_come_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark) as engine:
        stream = scripted(engine, tmp_path, slack="5 seconds")
        with engine.together():
            hop = engine.register(
                "SELECT count(*) AS n FROM S [RANGE 10 SECONDS SLIDE 5 SECONDS]", "hop"
            )
            tumble = engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS]", "tumble")
            some = engine.register(
                "SELECT count(*) AS n FROM S [RANGE 10 SECONDS] WHERE id > 15", "some"
            )
            late = engine.register("SELECT * FROM S.late", "late")
        stream.push(tuples(1, 12, 33))  # complete up to 28
        engine.await_idle()
        assert counts(tumble) == {10: 1, 20: 1}
        stream.push(tuples(22, 14, 27, 19))  # 14 and 19 are too late for every window of theirs
        engine.await_idle()
        counted = {q.name: (q.status.late, q.status.lost) for q in (hop, tumble, some)}
        assert counted == {"hop": (3, 2), "tumble": (2, 2), "some": (1, 1)}
        stream.push(tuples(100))
        engine.await_idle()
        # 22 is late for the window that ends at 25, and still counts in the one that ends at 30
        assert counts(hop) == {5: 1, 10: 1, 15: 1, 20: 1, 30: 2, 35: 2, 40: 1}
        assert counts(tumble) == {10: 1, 20: 1, 30: 2, 40: 1}
        assert counts(some) == {30: 2, 40: 1}
        kept = [(r["id"], r["_query"], r["_lateness_ms"]) for r in late.results().to_pylist()]
        assert sorted(kept) == [
            (14, "hop", 14_000),
            (14, "tumble", 14_000),
            (19, "hop", 9_000),
            (19, "some", 9_000),
            (19, "tumble", 9_000),
            (22, "hop", 6_000),
        ]
        assert {r["_punctuation"].timestamp() for r in late.results().to_pylist()} == {28.0}


def test_a_tuple_that_misses_some_of_its_windows_is_in_the_others_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark) as engine:
        stream = scripted(engine, tmp_path, slack="0 seconds")
        window = "[RANGE 50 SECONDS SLIDE 10 SECONDS]"
        with engine.together():
            number = engine.register(f"SELECT count(*) AS n FROM S {window}", "number")
            listed = engine.register(f"SELECT collect_list(id) AS ids FROM S {window}", "listed")
            late = engine.register("SELECT * FROM S.late", "late")
        stream.push(tuples(125))
        engine.await_idle()
        stream.push(tuples(101))  # of the windows that end at 110 … 150, two are closed
        stream.push(tuples(300))
        engine.await_idle()
        assert counts(number) == {130: 2, 140: 2, 150: 2, 160: 1, 170: 1}
        ids = {int(r["window_end"].timestamp()): r["ids"] for r in listed.results().to_pylist()}
        assert {end for end, found in ids.items() if 101 in found} == {130, 140, 150}
        for query in (number, listed):
            assert (query.status.late, query.status.lost) == (1, 0)
        answer = engine.execute("SHOW QUERIES")[0]
        shown = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        assert [(q["late"], q["lost"]) for q in shown] == [(1, 0), (1, 0), (0, 0)]
        kept = sorted(late.results().to_pylist(), key=lambda r: r["_query"])
        assert [(r["id"], r["_query"], r["_lateness_ms"]) for r in kept] == [
            (101, "listed", 24_000),
            (101, "number", 24_000),
        ]
        for row in kept:
            assert row["_punctuation"].timestamp() == 125
            assert (row["_missed"], row["_lost"]) == (2, False)
            assert row["_first_missed"].timestamp() == 110
            assert row["_last_missed"].timestamp() == 120


def test_late_tuples_kept_without_what_they_missed_are_read_with_nulls(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark) as engine:
        scripted(engine, tmp_path, slack="5 seconds")
        path = engine.workspace.companion("S", "late") / "ring-000000000001.arrow"
        path.parent.mkdir(parents=True)
        table = pa.table({"id": [3], "_lateness_ms": [7], "_query": ["q"]})
        with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
        columns = "id, _lateness_ms, _query, _missed, _first_missed, _last_missed, _lost"
        late = engine.register(f"SELECT {columns} FROM S.late")
        engine.await_idle()
        assert [list(r.values()) for r in late.results().to_pylist()] == [[3, 7, "q"] + [None] * 4]


def test_the_largest_delay_seen_holds_the_punctuation_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark) as engine:
        stream = scripted(engine, tmp_path, estimator="max", arrival_time="arrived")
        with engine.together():
            query = engine.register("SELECT count(*) AS n FROM S [RANGE 5 SECONDS]")
            late = engine.register("SELECT id FROM S.late")
        stream.push([{"id": 1, "ts": 10, "arrived": 11}, {"id": 2, "ts": 20, "arrived": 20}])
        engine.await_idle()
        assert counts(query) == {15: 1}  # complete up to 20 - 1
        stream.push(
            [{"id": 3, "ts": 12, "arrived": 21}]
        )  # late; from now on delays of 9 are expected
        stream.push([{"id": 4, "ts": 16, "arrived": 22}])
        stream.push([{"id": 5, "ts": 29, "arrived": 29}])
        engine.await_idle()
        assert counts(query) == {15: 1, 20: 1}  # 29 - 9 = 20
        assert query.status.late == 1
        assert late.results()["id"].to_pylist() == [3]


def test_without_arrival_times_the_latest_event_time_is_the_clock(
    spark: SparkSession, tmp_path: Path
) -> None:
    with quick_engine(spark) as engine:
        stream = scripted(engine, tmp_path)
        query = engine.register("SELECT count(*) AS n FROM S [RANGE 2 SECONDS]")
        stream.push(tuples(10, 8, 11))  # 8 came 2 s after 10: complete up to 9
        engine.await_idle()
        assert counts(query) == {}
        stream.push(tuples(9, 7, 13))  # 7 is late, by 4 s: still complete up to 9 only
        engine.await_idle()
        assert (counts(query), query.status.late) == ({}, 1)
        stream.push(tuples(20))  # 20 - 4
        engine.await_idle()
        assert (counts(query), query.status.late) == ({10: 2, 12: 2, 14: 1}, 1)


def test_a_query_registered_midway_reports_only_windows_wholly_after_its_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = "SELECT count(*) AS n FROM S [RANGE 10 SECONDS]"
    with quick_engine(spark) as engine:
        stream = scripted(engine, tmp_path, slack="0 seconds")
        early = engine.register(text)
        stream.push(tuples(1, 12))
        engine.await_idle()
        later = engine.register(text)
        hop = engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS SLIDE 4 SECONDS]")
        assert early.status.ring == later.status.ring == hop.status.ring
        total = engine.register("SELECT sum(id) AS n FROM S [RANGE 10 SECONDS]")  # a new ring
        stream.push(tuples(15, 25))
        stream.push(tuples(35, 60))
        engine.await_idle()
        assert counts(early) == {10: 1, 20: 2, 30: 1, 40: 1}
        assert counts(later) == {30: 1, 40: 1}
        assert counts(total) == {30: 25, 40: 35}
        assert counts(hop) == {24: 1, 28: 1, 32: 1, 36: 1, 40: 1, 44: 1}


@pytest.mark.parametrize("drop", [False, True])
def test_windows_of_a_dropped_query_are_not_reported(
    spark: SparkSession, tmp_path: Path, drop: bool
) -> None:
    with quick_engine(spark) as engine:
        stream = scripted(engine, tmp_path, slack="0 seconds")
        seen: list[int] = []
        with engine.together():
            keep = engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS]")
            other = engine.register(
                "SELECT count(*) AS n FROM S [RANGE 10 SECONDS]",
                sink=lambda rows: seen.extend(rows["n"].to_pylist()),
            )
        stream.push(tuples(1, 2, 3))
        engine.await_idle()
        if drop:
            other.drop()
        stream.push(tuples(50))
        engine.await_idle()
        assert counts(keep) == {10: 3}
        assert seen == ([] if drop else [3])


def test_bad_records_are_kept_with_their_place_and_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,ts\n1,2024-01-01\nx,2024-01-01\n3,2024-01-01\n")
    (folder / "b.csv").write_text("id,ts\n4,2024-01-01\n5,never\n6,2024-01-01,more\n")
    with quick_engine(spark, bounded=True) as engine:
        engine.execute(
            "CREATE STREAM S (id INT, ts TIMESTAMP) WITH "
            f"(source = 'file', path = '{folder}', format = 'csv', event_time = 'ts')"
        )
        with engine.together():
            good = engine.register("SELECT id, ts FROM S")
            days = engine.register("SELECT count(*) AS n FROM S [RANGE 1 DAY]")
            bad = engine.register("SELECT * FROM S.bad")
        engine.finish()
        assert sorted(good.results()["id"].to_pylist()) == [1, 3, 4]
        assert days.results()["n"].to_pylist() == [3]
        found = sorted(
            (Path(r["file"]).name, r["position"], r["record"]) for r in bad.results().to_pylist()
        )
        assert found == [
            ("a.csv", 3, "x,2024-01-01"),
            ("b.csv", 3, "5,never"),
            ("b.csv", 4, "6,2024-01-01,more"),
        ]
        assert all(bad.results()["reason"].to_pylist())
