"""The report of the rings benchmark, on few queries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.bench import rings
from penstock.bench.report import Report
from penstock.bench.rings import Sizes, allocate

TINY = Sizes(queries=120, shares=(0.0, 0.5, 1.0))


@pytest.fixture(scope="module")
def report() -> Report:
    return allocate(TINY, True, {})


def test_the_summary_has_the_agreed_keys(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path / "r.json")
    summary = json.loads((tmp_path / "r.json").read_text())["summary"]
    assert report.agrees
    assert summary["allocations_valid"] is True
    assert list(summary["threads"]) == ["0", "50", "100"]
    assert all(set(t) == {"ots", "gts", "hmts", "rots"} for t in summary["threads"].values())
    assert summary["compositions_of_similar_queries"] == 10


def test_only_rings_profit_from_queries_that_are_alike(report: Report) -> None:
    threads = report.summary["threads"]
    none, all_ = threads["0"], threads["100"]
    assert none["gts"] == all_["gts"] == 120
    assert all_["ots"] > all_["hmts"] > 120  # no thread is shared
    assert all_["rots"] < threads["50"]["rots"] < none["rots"] <= none["hmts"]
    assert all_["rots"] < all_["hmts"] / 4


def test_a_ring_that_may_take_more_is_needed_less(report: Report) -> None:
    threads = [row["threads"] for row in report.series["maximum"]]
    assert threads == sorted(threads, reverse=True)
    assert threads[-1] < threads[0]


def test_rings_that_stay_need_not_be_made_again(report: Report) -> None:
    made = report.summary["threads_made_again"]
    assert made["rots"] < made["hmts"] < made["ots"]


def test_every_plot_is_written_with_its_figures(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    rings.draw(report, tmp_path / "plots")
    written = {path.name for path in (tmp_path / "plots").iterdir()}
    assert written == {f"{n}.{kind}" for n in report.series for kind in ("csv", "png")}
