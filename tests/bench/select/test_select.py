import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench import select
from penstock.bench.report import Report
from penstock.bench.select import QUICK, contend, on_spark

TINY = replace(
    QUICK,
    one_attribute_tuples=2000,
    predicates=(10, 70),
    tuples=20_000,
    orders=50,
    seeds=1,
    attributes=(4, 8),
    stretch=20_000,
    period=1600,
    queries=(10, 300),
)
METHODS = {"macs", "sas", "macssas", "ticket", "ticket, by queries", "best", "worst", "delayed"}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_DATA", str(tmp_path_factory.mktemp("no_data")))
        return contend(TINY, True, {})


def test_the_summary_has_the_agreed_keys(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path / "r.json")
    summary = json.loads((tmp_path / "r.json").read_text())["summary"]
    assert report.agrees
    for figure in ("kernel_tuples_per_s", "numpy_tuples_per_s", "kernel_add_query_ms", "memory_mb"):
        assert set(summary[figure]) == {"10", "300"}
        assert all(value > 0 for value in summary[figure].values())
    assert set(summary["visits"]) == {"D1", "D2", "D3"}  # the census is absent
    assert all(set(methods) == METHODS for methods in summary["visits"].values())
    assert summary["macssas_vs_best"] <= 1.1
    assert summary["ticket_vs_macssas"] > 1


def test_every_experiment_has_rows(report: Report) -> None:
    assert {str(row["experiment"])[0] for row in report.rows} == set("12456")


def test_the_census_is_compared_where_it_is(shared_data, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(shared_data))
    rows, agrees = select._census(TINY)
    assert agrees
    assert {row["data"] for row in rows} == {"census", "census (model)"}
    of_macssas = [row for row in rows if row["method"] == "macssas"]
    assert all(float(row["worst_vs_best"]) <= 1.1 for row in of_macssas)


def test_what_spark_found_joins_the_report(report: Report, monkeypatch, tmp_path: Path) -> None:
    rows = [
        {"queries": k, "engine": engine, "rows_per_s": rate}
        for engine, k, rate in (("penstock", 1, 9.0), ("penstock", 10, 8.0), ("native", 1, 7.0))
    ]
    monkeypatch.setattr(on_spark, "measure", lambda _: (rows, {"spark_tuples_per_s": {}}, False))
    monkeypatch.setattr(select, "contend", lambda *_: report)
    both = select.measure(quick=True)
    assert both.agrees is False
    assert [row["experiment"] for row in both.rows[-3:]] == ["7 on Spark"] * 3
    assert set(both.summary) - set(report.summary) == {"spark_tuples_per_s"}
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    select.draw(both, tmp_path)
    assert {"on_spark.csv", "on_spark.png"} <= {path.name for path in tmp_path.iterdir()}


def test_every_plot_is_written_with_its_figures(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    select.draw(report, tmp_path / "plots")
    written = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {f"{name}.csv" for name in report.series} <= written
    assert {
        f"{name}.png" for name in ("one_attribute", "orders", "dropping", "adapting", "kernel")
    } <= written
