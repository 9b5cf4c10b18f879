"""The report of the geofence benchmark, on little data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench import geofence
from penstock.bench.geofence import Sizes, contend
from penstock.bench.geofence.data import random_case, zip_case
from penstock.bench.geofence.speed import kernel_row
from penstock.bench.report import Report
from penstock.kernels.fences import Fences

TINY = Sizes(points=3000, checked=1000, polygons=(10, 50))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_DATA", str(tmp_path_factory.mktemp("no_data")))
        return contend(TINY, True, {})


def test_the_summary_has_the_agreed_keys(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path / "r.json")
    summary = json.loads((tmp_path / "r.json").read_text())["summary"]
    assert report.agrees
    assert summary["equal"] is True
    for figure in ("kernel_points_per_s", "kernel_vs_strtree"):
        assert set(summary[figure]) == {"10", "50"}
        assert all(value > 0 for value in summary[figure].values())
    assert summary["kernel_real_points_per_s"] == {}  # the data is absent


def test_real_fences_are_compared_where_they_are(shared_data: Path, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(shared_data))
    report = contend(replace(TINY, polygons=(20,)), True, {})
    assert report.agrees
    assert set(report.summary["kernel_real_vs_strtree"]) == {"zip 20", "county 100"}


def test_random_polygons_cover_the_square_about_once() -> None:
    row, _ = kernel_row(random_case(500, 20_000, seed=1), checked=100)
    assert row["fences_per_point"] == pytest.approx(1, abs=0.15)


def test_fences_that_lose_a_point_are_seen(monkeypatch) -> None:
    right = Fences.locate

    def forgetful(self: Fences, xs, ys, relation="within"):
        located = right(self, xs, ys, relation)
        return replace(located, fences=located.fences - 1)

    monkeypatch.setattr(Fences, "locate", forgetful)
    assert not kernel_row(random_case(10, 1000, seed=1), checked=1000)[1]


def test_zip_areas_are_distinct(shared_data: Path, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(shared_data))
    fences = zip_case(1000, 10, seed=1).fences
    assert len({fence.wkb for fence in fences}) == 1000


def test_the_plot_is_written_with_its_figures(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    geofence.draw(report, tmp_path / "plots")
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"kernel.csv", "kernel.png"}
