"""Golden queries run straight and with other parallelism give the same rows and the same counts.

The third way, killed and started again, is in tests/chaos.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.golden.golden import answers, expected_answers, golden_rows, run_golden, write_golden

from penstock import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("parallelism", [1, 4])
def test_rows_and_counts_are_right_whatever_the_parallelism(
    spark: SparkSession, tmp_path: Path, parallelism: int
) -> None:
    files = golden_rows(seed=1)
    write_golden(files, tmp_path / "in")
    expected = expected_answers(files)
    assert expected["windows"]["late"] > expected["windows"]["lost"] > 100
    settings = {"parallelism": parallelism, "trigger_ms": 10}
    with Engine(spark, tmp_path / "w", bounded=True, settings=settings) as engine:
        run_golden(engine, tmp_path / "in", tmp_path / "out")
        assert answers(engine, tmp_path / "out") == expected


def test_an_engine_that_is_stopped_and_started_again_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = golden_rows(seed=2)
    write_golden(files[:12], tmp_path / "in")
    with Engine(spark, tmp_path / "w", settings={"trigger_ms": 10}) as engine:
        run_golden(engine, tmp_path / "in", tmp_path / "out", flush=False)
    more = tmp_path / "more"
    write_golden(files, more)
    for path in sorted(more.iterdir())[12:]:
        path.rename(tmp_path / "in" / path.name)
    with Engine(spark, tmp_path / "w", bounded=True, settings={"parallelism": 3}) as engine:
        run_golden(engine, tmp_path / "in", tmp_path / "out")
        assert answers(engine, tmp_path / "out") == expected_answers(files)


def test_windows_close_after_a_start_to_which_no_tuple_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = golden_rows(seed=2)
    write_golden(files, tmp_path / "in")
    with Engine(spark, tmp_path / "w", settings={"trigger_ms": 10}) as engine:
        run_golden(engine, tmp_path / "in", tmp_path / "out", flush=False)
    with Engine(spark, tmp_path / "w", bounded=True, settings={"trigger_ms": 10}) as engine:
        run_golden(engine, tmp_path / "in", tmp_path / "out")
        assert answers(engine, tmp_path / "out") == expected_answers(files)
