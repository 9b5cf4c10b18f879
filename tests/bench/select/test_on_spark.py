from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.bench.select import on_spark
from penstock.bench.select.on_spark import APART, IN_MAP, IN_READER, NARROWING, NUMPY, RIVALS
from penstock.bench.select.workload import Workload
from penstock.bench.selecting import Input, Running, run, same_matches, write_input
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import matched_rows

GIVEN = Input(files=2, rows_per_file=1000, files_per_batch=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "files"
    write_input(path, on_spark.rows_of(Workload(1)), GIVEN)
    return path


@pytest.mark.slow
def test_every_engine_finds_what_numpy_finds_one_predicate_after_the_other(
    spark, files: Path
) -> None:
    workload = Workload(4, predicates=2)
    rows, expected = on_spark.checked(files, workload)
    assert rows == GIVEN.rows_per_file
    assert expected.size > 10
    engines = on_spark.engines(spark, workload, GIVEN)
    assert set(engines) == {IN_READER, IN_MAP, *RIVALS}
    for name, start in engines.items():
        outcome = run(files, GIVEN, 300.0, start)
        assert outcome.finished, name
        assert outcome.rows == GIVEN.rows, name
        assert outcome.pairs.size > expected.size, name
        assert same_matches(workload.k, rows, expected, outcome.pairs), name


def _stopped(inbox: Path, directory: Path, *, after_id: int) -> Running:
    """An engine that logs one row beside that of the first file and is not done in time."""
    log = ResultLog(directory / "log")
    for batch, (id_, slot) in enumerate([(-1, 5), (after_id, 7)]):
        table = pa.table({"id": pa.array([id_]), "__slot": pa.array([slot])})
        log.append(batch, matched_rows(table, ["id"]))
    answers = iter([True, False])
    return Running([directory / "log"], np.array([5, 7]), lambda _: next(answers), lambda: None)


def test_an_engine_that_is_stopped_counts_for_the_files_that_it_delivered(files: Path) -> None:
    outcome = run(files, GIVEN, 1.0, partial(_stopped, after_id=1500))
    assert (outcome.rows, outcome.finished, outcome.cpu_s) == (2000, False, None)
    assert outcome.pairs.tolist() == [1500 * 2 + 1]


def test_an_engine_that_delivered_only_the_first_file_has_no_rate(files: Path) -> None:
    outcome = run(files, GIVEN, 1.0, partial(_stopped, after_id=-7))
    assert (outcome.rows, outcome.rows_per_s, outcome.pairs.size) == (0, 0.0, 0)


def test_fewer_rows_are_compared_with_the_matches_of_just_these() -> None:
    expected = np.array([1, 4, 25])  # of ten queries: 1 and 4 of tuple 0, 5 of tuple 2
    assert same_matches(10, 3, expected, expected)
    assert same_matches(10, 1, np.array([1, 4]), expected)
    assert not same_matches(10, 1, np.array([1]), expected)
    assert not same_matches(10, 3, np.array([1, 4]), expected)


def test_the_better_native_form_counts_extrapolated_or_not() -> None:
    rates = {
        ("1", IN_READER): 400.0,
        ("1", IN_MAP): 200.0,
        ("1", APART): 100.0,
        ("1", "native, join"): 50.0,
        ("1", NUMPY): 80.0,
        ("1", NARROWING): 160.0,
        ("1000", IN_READER): 300.0,
        ("1000", IN_MAP): 150.0,
        ("1000", APART): 1.0,
        ("1000", "native, join"): 30.0,
        ("10000", IN_READER): 250.0,
        ("10000", IN_MAP): 125.0,
    }
    rows = [
        {"queries": int(k), "engine": engine, "rows_per_s": rate, "register_s": 1.0}
        for (k, engine), rate in rates.items()
    ]
    slow = {"queries": 1000, "engine": NUMPY, "rows_per_s": None}
    found = on_spark.summary([*rows, slow])
    assert found["spark_tuples_per_s"] == {"1": 400.0, "1000": 300.0, "10000": 250.0}
    assert found["native_best"] == {"1": APART, "1000": "native, join"}
    assert found["ratio_vs_native"] == {"1": 4.0, "1000": 10.0}
    assert found["ratio_vs_numpy"] == {"1": 5.0}
    assert found["ratio_vs_numpy_narrowing"] == {"1": 2.5}


def test_who_takes_long_reads_one_micro_batch() -> None:
    def files(engine: str, k: int) -> int:
        return on_spark._share(engine, k, on_spark.QUICK).files

    given = on_spark.QUICK.given
    assert files(IN_READER, 100_000) == files(NUMPY, 1000) == given.files
    assert files("native, join", 1000) == files(NUMPY, 10_000) == given.files_per_batch


def test_a_query_each_is_extrapolated_as_far_as_native_forms_are_compared() -> None:
    sizes = on_spark.Sizes(Input(1, 1000), (1, 10, 100, 1000, 10_000), 1.0, 1, 0)
    rows = [
        {"queries": 1, "engine": APART, "rows_per_s": 1000.0},
        {"queries": 10, "engine": APART, "rows_per_s": 100.0},
    ]
    found = on_spark.extrapolated(rows, sizes)
    assert [(row["queries"], row["rows_per_s"]) for row in found] == [(100, 10.0), (1000, 1.0)]
    assert all(row["note"] == "extrapolated from 1 and 10 queries" for row in found)
    assert on_spark.extrapolated([*rows[:1], rows[1] | {"rows_per_s": None}], sizes) == []
