"""DRATIO end to end: the promise, exact counts, sources apart, idle streams, odd clocks."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.processes import PATIENCE_S, kill, started, told, wait_for
from tests.golden.ratios import (
    FILES,
    QUERIES,
    RATIO,
    ROWS,
    expected_hop,
    ratio_rows,
    run_ratios,
    write_ratio_rows,
)

from penstock.testing import ManualClock, ScriptedStream, quick_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNER = "tests.chaos.ratio_runner"


@pytest.fixture(scope="module")
def straight(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ratios") / "in"
    write_ratio_rows(ratio_rows(1), folder)
    with quick_engine(spark, bounded=True) as engine:
        return run_ratios(engine, folder)


def test_what_is_late_follows_exactly_from_the_punctuations(straight: dict[str, Any]) -> None:
    files = ratio_rows(1)
    expected = expected_hop(files, straight["punctuations"]["hop"])
    assert straight["hop"] == {k: expected[k] for k in ("rows", "late", "lost")}
    assert straight["metrics"]["hop"]["below"] == expected["below"]
    times = [p for _, p in sorted(straight["punctuations"]["hop"].items())]
    assert times == sorted(times)


def test_the_promise_is_kept_and_spent(straight: dict[str, Any]) -> None:
    metrics = straight["metrics"]["hop"]
    assert metrics["rows"] == FILES * ROWS
    assert 0.5 * RATIO < metrics["ratio"] <= 1.02 * RATIO


def test_nothing_is_dropped_silently(straight: dict[str, Any]) -> None:
    for name in ("apart", "mixed"):
        counted = sum(n for _, _, n in straight[name]["rows"])
        assert counted + straight[name]["lost"] == FILES * ROWS
    for name in QUERIES:
        kept = sum(n for query, _, n in straight["kept"] if query == name)
        assert kept == straight[name]["late"]


def test_each_source_keeps_its_own_promise(straight: dict[str, Any]) -> None:
    """The slow source is 5% of the tuples: a promise for all of them might lose it wholly."""
    for name in ("apart", "mixed"):
        sources = dict(straight["metrics"][name]["sources"])
        assert len(sources) == 20
        slow = sources.pop("=0")
        # 12 s behind the others: some are lost until it is known, then as few as of the others
        assert slow["ratio"] <= 4 * RATIO
        assert max(s["ratio"] for s in sources.values()) <= 2 * RATIO
    lags = {k: s["lag_us"] for k, s in straight["metrics"]["apart"]["sources"].items()}
    assert all(lag < 10_000_000 for k, lag in lags.items() if k != "=0")  # nobody waits for it
    assert lags["=0"] > 12_000_000
    keys = [(end, k) for end, k, _ in straight["apart"]["rows"]]
    assert len(keys) == len(set(keys)), "a window was reported twice"
    assert straight["apart"]["lost"] > 0


@pytest.mark.slow
def test_a_killed_engine_keeps_the_same_promise(tmp_path: Path, straight: dict[str, Any]) -> None:
    """kill -9 in the middle, two tasks instead of one: the same punctuations, rows and counters."""
    write_ratio_rows(ratio_rows(1), tmp_path / "in")
    with started(RUNNER, tmp_path) as process:
        _wait_for_files(tmp_path / "w", FILES // 2, process)
        assert process.poll() is None, told(tmp_path)
        kill(process)
    with started(RUNNER, tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    last = (tmp_path / "stdout").read_text(encoding="utf-8").splitlines()[-1]
    assert json.loads(last) == straight


def _wait_for_files(workspace: Path, files: int, process: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: _files_read(workspace) >= files or process.poll() is not None)


def _files_read(workspace: Path) -> int:
    """How many files the ring that is furthest has begun to read."""
    catalog = f"file:{workspace / 'catalog.sqlite'}?mode=ro"
    try:
        with closing(sqlite3.connect(catalog, uri=True)) as db:
            rows = db.execute("SELECT count(*) FROM consumed GROUP BY ring").fetchall()
    except sqlite3.Error:
        return 0
    return max((n for (n,) in rows), default=0)


def test_an_idle_stream_closes_its_windows_by_the_clock(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(100_000_000)
    with quick_engine(spark, clock_us=clock) as engine:
        schema = "k INT, ts TIMESTAMP, got TIMESTAMP"
        stream = ScriptedStream(
            engine, "S", schema, event_time="ts", arrival_time="got", directory=tmp_path
        )
        query = engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS DRATIO 1%]")
        stream.push([{"k": 1, "ts": 99, "got": 99.5}, {"k": 1, "ts": 98, "got": 99.6}])
        engine.await_idle()
        clock.advance(29)
        engine.await_idle()
        assert query.results().num_rows == 0
        clock.advance(2)
        engine.await_idle()
        assert query.results()["n"].to_pylist() == [2]
        assert query.status.late == 0


@pytest.mark.parametrize("arrival", [True, False])
def test_absurd_times_move_nothing_and_are_counted(
    spark: SparkSession, tmp_path: Path, arrival: bool
) -> None:
    with quick_engine(spark) as engine:
        schema = "k INT, ts TIMESTAMP, got TIMESTAMP"
        stream = ScriptedStream(
            engine,
            "S",
            schema,
            event_time="ts",
            arrival_time="got" if arrival else None,
            directory=tmp_path,
        )
        query = engine.register("SELECT count(*) AS n FROM S [RANGE 10 SECONDS DRATIO 1%]")
        stream.push([{"k": 0, "ts": t, "got": t} for t in range(1000, 1030)])
        engine.await_idle()
        odd = [4_000_000_000, -60_000_000_000, None]  # the year 2096, the year 68, none at all
        stream.push([{"k": 1, "ts": t, "got": 1030} for t in odd])
        engine.await_idle()
        stream.push([{"k": 2, "ts": t, "got": t} for t in range(1030, 1060)])
        engine.await_idle()
        stream.push([{"k": 3, "ts": 1061, "got": 1061}])
        engine.await_idle()
        metrics = query.disorder
        assert (metrics["ahead"], metrics["behind"], metrics["untimed"]) == (1, 1, 1)
        assert metrics["below"] == 0
        ends = [int(r["window_end"].timestamp()) for r in query.results().to_pylist()]
        assert sorted(ends) == [1010, 1020, 1030, 1040, 1050, 1060]
        assert query.results()["n"].to_pylist() == [10] * 6
        assert query.status.lost == 1  # the one of the year 68
