"""Geofences on Spark, on little data: every engine finds the same, and slips are seen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.bench.geofence import on_spark, spark_forms
from penstock.bench.geofence.data import Case, random_case
from penstock.bench.geofence.on_spark import BOXES, OURS, TREE, UDF, Sizes, expected_pairs, summary
from penstock.bench.selecting import Input

TINY = Input(files=2, rows_per_file=1000, files_per_batch=1)
SIZES = Sizes(TINY, Input(1, 1000, 1), Input(1, 100, 1), repetitions=1)


@pytest.fixture(scope="module")
def case() -> Case:
    return random_case(12, 500, seed=3)


@pytest.mark.slow
def test_every_engine_finds_the_fences_of_all_points(spark, case: Case) -> None:
    rows = {row["engine"]: row for row in on_spark.compare(spark, case, SIZES)}
    assert {name: row["points"] for name, row in rows.items()} == {
        OURS: 2000,
        TREE: 1000,
        BOXES: 1000,
        UDF: 100,
    }
    assert all(row["equal_matches"] for row in rows.values())
    assert all(row["points_per_s"] > 0 for row in rows.values())


def test_the_forms_of_shapely_agree_with_the_kernel(case: Case, tmp_path: Path) -> None:
    fences = tmp_path / "fences.parquet"
    spark_forms.write_fences(case, fences)
    expected = expected_pairs(case, case.xs.size)
    assert expected.size > 100
    for find in (spark_forms.find_in_tree, spark_forms.find_in_boxes):
        rows, numbers = find(str(fences), case.xs, case.ys)
        assert np.array_equal(np.sort(rows * len(case.fences) + numbers), expected)
    points = enumerate(zip(case.xs.tolist(), case.ys.tolist(), strict=True))
    found = [
        row * len(case.fences) + number
        for row, (x, y) in points
        for number in spark_forms.find_for_row(str(fences), x, y)
    ]
    assert found == expected.tolist()


def test_points_come_again_after_the_last_and_their_ids_go_on(case: Case) -> None:
    size, count = case.xs.size, len(case.fences)
    batch = on_spark.rows_of(case)(range(-2, 3))
    places = [size - 2, size - 1, 0, 1, 2]
    assert batch.column("x").to_pylist() == case.xs[places].tolist()
    twice, once = expected_pairs(case, 2 * size), expected_pairs(case, size)
    assert np.array_equal(twice, np.concatenate([once, once + size * count]))


def test_ratios_are_to_each_rival_and_real_polygons_keep_their_name() -> None:
    rates = {
        ("random", 10, OURS): 100.0,
        ("random", 10, TREE): 20.0,
        ("random", 10, BOXES): 25.0,
        ("random", 10, UDF): 1.0,
        ("zip", 10, OURS): 80.0,
        ("zip", 10, TREE): 40.0,
        ("zip", 10, BOXES): 10.0,
        ("zip", 10, UDF): None,
    }
    keys = ("data", "polygons", "engine", "points_per_s")
    rows = [dict(zip(keys, (*key, rate), strict=True)) for key, rate in rates.items()]
    found = summary(rows)
    assert found["spark_points_per_s"] == {"10": 100.0, "zip 10": 80.0}
    assert found["vs_udf"] == {"10": 100.0}
    assert found["vs_strtree"] == {"10": 5.0, "zip 10": 2.0}
    assert found["vs_strtree_prepared"] == {"10": 4.0, "zip 10": 8.0}


def test_the_plot_shows_all_engines(case: Case) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    from penstock.bench.geofence import plots

    rows = [
        {"data": "random", "polygons": count, "engine": engine, "points_per_s": 10.0}
        for count in (10, 100)
        for engine in (OURS, TREE, BOXES, UDF)
    ]
    (axes,) = plots._on_spark(rows).axes
    assert [line.get_label() for line in axes.lines] == [OURS, TREE, BOXES, UDF]
