from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.bench.contest import WindowQuery, run_native, run_penstock, same_rows
from penstock.bench.tuples import Tuples, write_tuples
from penstock.bench.window import extrapolate, many_queries

TUPLES = Tuples(files=1, rows_per_file=3000, minutes=12, groups=5)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "files"
    write_tuples(path, TUPLES)
    return path


def test_no_tuple_is_later_than_the_slack_and_the_last_file_passes_all_windows(files: Path) -> None:
    tables = [pq.read_table(f) for f in sorted(files.iterdir())]
    assert tables[1].num_rows == TUPLES.rows
    latest = 0
    for table in tables:
        ts_us = table.column("ts").cast(pa.int64()).to_pylist()
        for ts in ts_us:
            assert ts >= latest - 10_000_000
            latest = max(latest, ts)
    assert min(ts_us) > latest - 1 > 0
    assert set(tables[-1].column("w").to_pylist()) == set(range(1000))


def test_both_engines_deliver_the_same_windows(spark, files: Path) -> None:
    queries = [WindowQuery(), many_queries(2)[1]]
    ours = run_penstock(spark, files, queries, files_per_batch=1)
    native = run_native(spark, files, queries, 1, "memory")
    for mine, theirs in zip(ours.results, native.results, strict=True):
        assert mine.num_rows > 20
        assert same_rows(mine, theirs)
    assert ours.seconds > 0
    assert native.seconds > 0


def test_rows_that_differ_in_one_count_or_sum_are_not_the_same() -> None:
    columns = {
        "window_start": [0],
        "window_end": [1],
        "key": [1],
        "n": [3],
        "s": [0.3],
        "m": [0.2],
        "a": [0.1],
    }
    rows = pa.table(columns)
    assert same_rows(rows, rows)
    assert same_rows(rows, pa.table(columns | {"s": [0.1 + 0.2]}))
    assert not same_rows(rows, pa.table(columns | {"n": [4]}))
    assert not same_rows(rows, pa.table(columns | {"s": [0.31]}))
    assert not same_rows(rows, rows.slice(0, 0))


def test_many_queries_are_of_one_composition_and_all_different() -> None:
    queries = many_queries(100)
    assert len({q.text for q in queries}) == 100


def test_native_time_is_extrapolated_along_a_line_and_never_shrinks() -> None:
    assert extrapolate((2, 4), (3.0, 5.0), 10) == 11.0
    assert extrapolate((2, 4), (5.0, 3.0), 10) == 3.0
