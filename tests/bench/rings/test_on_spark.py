"""Experiment 2 of the rings benchmark, with two kinds of queries and few tuples."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest
from rich.console import Console

from penstock.bench.report import Report
from penstock.bench.resources import usage
from penstock.bench.rings import churn, live, on_spark
from penstock.bench.rings.flowing import Seen
from penstock.bench.rings.on_spark import OURS, summary
from penstock.bench.rings.spark_parts import by_queries
from penstock.bench.tuples import Tuples, write_tuples


@pytest.mark.slow
def test_rings_deliver_what_a_query_each_delivers(spark, tmp_path: Path) -> None:
    few = Tuples(2, 2000, 4, groups=5, format="json")
    write_tuples(tmp_path / "files", few)
    sizes = on_spark.Sizes(few, few, 1, queries=(2,), native=(2,), kinds=2)
    rows = on_spark.compared(spark, tmp_path / "files", 2, sizes)
    assert all(row["equal_rows"] is True for row in rows)
    assert [row["running"] for row in rows] == [2, 2]
    assert rows[0]["results"] == rows[1]["results"]
    assert all(float(row["tuples_per_s"] or 0) > 0 for row in rows)


@pytest.mark.slow
def test_queries_come_and_go_without_a_restart(spark) -> None:
    sizes = churn.Sizes(2.0, 1.0, 0.5, 0.5, per_s=20, standing=8, rate=500, kinds=1, trigger_ms=200)
    samples, found, undisturbed = churn.churn(spark, sizes)
    assert undisturbed
    assert found["restarts"] == 0
    assert 1 < found["per_s"] < 40  # what was late is caught up with, if the machine can
    assert len(samples) >= 4
    assert all(sample["python_mb"] and sample["threads"] for sample in samples)
    Report("churn", True, samples, found).show(Console(file=(told := io.StringIO())))
    assert "memory_growth_mb" in told.getvalue()


@pytest.mark.slow
def test_a_query_that_joins_a_ring_is_live_soon(spark) -> None:
    sizes = live.Sizes(rate=2000, trigger_ms=200, steady_s=0.5, kinds=1)
    row, untouched = live.join_running(spark, 5, sizes)
    assert untouched
    assert row["rings"] == 1
    assert 0 < float(row["live_p50_s"] or 0) <= float(row["live_p99_s"] or 0) < 60
    assert float(row["first_result_p50_s"] or 0) >= float(row["live_p50_s"] or 0)


def test_growth_is_that_of_the_last_samples_over_the_first() -> None:
    names = ("python_mb", "jvm_mb", "workers_mb", "workers", "threads", "open_files", "sqlite_mb")
    every = (*names, "workspace_files", "workspace_mb")
    samples = [{"at_s": float(n), **dict.fromkeys(every, 10.0 * n)} for n in range(7)]
    grown = churn.growth(samples, edge_s=1.0)
    assert grown == dict.fromkeys(every, 50.0)
    assert churn.leaks(grown) == ["threads", "sqlite_mb"]
    assert churn.leaks({**grown, "threads": 2.0, "sqlite_mb": -1.0}) == []


def test_a_version_is_live_from_the_first_epoch_that_carries_it() -> None:
    seen = Seen()
    for number, version in ((1, 3), (1, 3), (2, 3), (4, 7)):
        seen.note(number, version)
    assert seen.epochs == [1, 2, 4]
    assert (seen.has(7), seen.has(8)) == (True, False)
    assert seen.when(3) == seen.times[0]
    assert seen.when(4) == seen.times[2]
    assert seen.interval_s == (seen.times[2] - seen.times[0]) / 3


def test_figures_are_told_by_number_of_queries() -> None:
    ours = {"engine": OURS, "queries": 64, "running": 10, "tuples_per_s": 900.0}
    ours["format"] = "json"
    ours |= {"driver_mb": 500.0, "driver_cpu_s": 3.0}
    native = ours | {"engine": "native memory", "tuples_per_s": 30.0}
    wait = {"queries": 64, "live_p50_s": 0.5, "live_p99_s": 0.9, "trigger_s": 1, "interval_s": 1.1}
    found = by_queries([ours, native], [wait])
    assert found["64"]["rings"] == 10
    assert found["64"]["register_to_live_s"]["p99"] == 0.9
    alike = ours | {"engine": f"{OURS}, one kind", "tuples_per_s": 1500.0}
    others = [row | {"format": "parquet"} for row in (ours, native | {"tuples_per_s": 90.0})]
    ratios = summary([ours, native, alike, *others], "memory")
    assert ratios["ratio_vs_native_64_parquet"] == 10.0
    assert ratios["ratio_vs_native_64"] == 30.0
    assert ratios["ratio_vs_native_64_of_one_kind"] == 50.0


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="not Linux")
def test_what_a_process_uses_is_seen() -> None:
    before = usage()
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    held = bytearray(b"x" * 200_000_000)
    after = usage()
    assert 0.1 < after.python_cpu_s - before.python_cpu_s < 20
    assert 150 < after.python_mb - before.python_mb < 250
    assert after.threads >= 1
    assert after.files >= 3
    assert len(held) == 200_000_000
