"""The report of the join benchmark, on little data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.bench import join
from penstock.bench.join import Sizes, contend, experiments
from penstock.bench.join.data import Shape
from penstock.bench.join.runs import biht
from penstock.bench.report import Report

TINY = Sizes(keys=10_000, runs=1, few_keys=1000)


@pytest.fixture(scope="module")
def report() -> Report:
    return contend(TINY, True, {})


def test_the_summary_has_the_agreed_keys(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path / "r.json")
    summary = json.loads((tmp_path / "r.json").read_text())["summary"]
    assert report.agrees
    assert summary["results_equal"] is True
    assert set(summary["biht_vs_mjoin"]) == {"0.25", "0.5", "1"}
    assert set(summary["flushes"]) == set(summary["results_before_disk"]) == {"bits", "random"}
    assert all(value > 0 for value in summary["biht_vs_mjoin"].values())
    assert summary["key_only_vs_mjoin"] > 0


def test_every_experiment_has_rows(report: Report) -> None:
    parts: dict[str, int] = {}
    for row in report.rows:
        parts[str(row["experiment"])[0]] = parts.get(str(row["experiment"])[0], 0) + 1
    assert parts == {"1": 9, "2": 8, "3": 6}


def test_looks_are_near_those_of_the_cost_model(report: Report) -> None:
    rows = [row for row in report.rows if row.get("looks_per_tuple") is not None]
    assert {row["join"] for row in rows} == {"biht", "mjoin"}
    for row in rows:
        assert row["looks_per_tuple"] == pytest.approx(row["expected_looks"], abs=0.03)


def test_a_join_that_loses_results_is_seen(monkeypatch) -> None:
    def forgetful(streams: int):
        table = biht(streams)
        return lambda batch: [piece[1:] for piece in table(batch)]

    monkeypatch.setitem(experiments.JOINS, "chain", forgetful)
    assert not experiments.by_selectivity(Shape(1, keys=100), runs=1, seed=0).same


def test_every_plot_is_written_with_its_figures(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    join.draw(report, tmp_path / "plots")
    written = {path.name for path in (tmp_path / "plots").iterdir()}
    plots = {*report.series, "selectivity_results", "over_budget_results"}
    assert written == {f"{name}.csv" for name in report.series} | {f"{n}.png" for n in plots}
