import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench import disorder
from penstock.bench.disorder import QUICK, contend, contest, paper, parts
from penstock.bench.disorder.families import FAMILIES, bounded_normal, family
from penstock.bench.disorder.replay import replay
from penstock.bench.report import Report
from penstock.control.estimators import Quantile

ESTIMATORS = {
    "oracle",
    "quantile",
    "normal",
    "max",
    "fixed_p95",
    "fixed_p99",
    "fixed_max",
    "fixed_tuples",
}
TINY = replace(
    QUICK,
    tuples=20_000,
    ratios=(0.05,),
    bounds=(4,),
    sigmas=(1,),
    buffer_bounds=(4,),
    buffer_sigmas=(1,),
    exceptions=(9,),
    family_tuples=20_000,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PENSTOCK_DATA", str(tmp_path_factory.mktemp("no_data")))
        return contend(TINY, True, {})


def test_the_summary_has_the_agreed_keys(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path / "r.json")
    summary = json.loads((tmp_path / "r.json").read_text())["summary"]
    assert set(summary) >= {
        "families",
        "target",
        "worst_drop_over_target",
        "least_drop_over_target",
        "worst_latency_vs_oracle",
        "worst_stretch_over_target",
        "kernel_tuples_per_s",
        "traces",
    }
    assert set(summary["families"]) == set(FAMILIES)
    for by_estimator in summary["families"].values():
        assert set(by_estimator) == ESTIMATORS
        for figures in by_estimator.values():
            assert set(figures) == {"drop_ratio", "latency_vs_oracle", "buffer_mean"}
    assert summary["kernel_tuples_per_s"] > 100_000


def test_a_hard_case_is_shown_and_in_no_figure_of_the_summary(report: Report) -> None:
    shown = {str(row["family"]) for row in report.rows if "family" in row}
    assert shown - set(FAMILIES) == {"long_outage"}
    assert "long_outage" not in json.dumps(report.summary)


def test_spark_rows_hold_our_run_and_every_watermark_that_was_tried() -> None:
    figures = {"drop_ratio": 0.01, "worst_stretch": 0.02, "latency_p95_s": 12.0}
    tried = [{"watermark_s": 9.5, "latency_s": 11.0, **figures}]
    rows = disorder._spark_rows({"latency_s": 3.0, "native": tried, **figures})
    assert [row["engine"] for row in rows] == ["penstock", "native, watermark 9.5 s"]
    assert [row["latency_s"] for row in rows] == [3.0, 11.0]


def test_a_trace_that_is_absent_is_named_with_the_reason(report: Report) -> None:
    assert "ooo/d-1.csv" in report.summary["traces"]["d-1"]["skipped"]


def test_every_plot_is_written_with_its_figures(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    disorder.draw(report, tmp_path / "plots")
    written = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {f"{name}.csv" for name, rows in report.series.items() if rows} <= written
    assert {"drop_ratio.png", "buffer.png", "losses.png", "families.png"} <= written


@pytest.mark.parametrize("name", FAMILIES)
def test_quantile_keeps_the_promise_without_waiting_much_longer_than_the_oracle(name) -> None:
    trace = family(name, 7, 200_000)
    those = contest.contestants(trace, contest.STEP)
    oracle, quantile = (replay(trace, those[n], contest.STEP) for n in ("oracle", "quantile"))
    assert oracle.drop_ratio <= contest.TARGET
    assert 0.85 * contest.TARGET <= quantile.drop_ratio <= 1.02 * contest.TARGET
    assert quantile.latency_us() <= 1.05 * oracle.latency_us()


def test_a_fixed_delay_as_long_as_the_longest_loses_nothing_and_is_late() -> None:
    scores = contest.compete(family("pareto", 0, 50_000), contest.STEP)
    assert scores["fixed_max"].drop_ratio == 0
    assert scores["fixed_max"].latency_vs_oracle > 5
    assert scores["fixed_p95"].drop_ratio > contest.TARGET
    assert 0 < scores["fixed_tuples"].drop_ratio < 0.05


def test_figures_of_several_seeds_are_the_worst_of_them() -> None:
    scores = [contest.Score(0.02, 1.0, 0.9, 5.0, 0.03), contest.Score(0.01, 2.0, 1.1, 4.0, 0.02)]
    (row,) = contest.family_rows("f", {"quantile": scores})
    assert (row["drop_ratio"], row["least_drop_ratio"], row["worst_stretch"]) == (0.02, 0.01, 0.03)
    assert (row["latency_s"], row["latency_vs_oracle"], row["buffer_mean"]) == (2.0, 1.1, 5.0)
    assert contest.promise(scores)["worst_drop_over_target"] == 2.0
    assert contest.promise(scores)["least_drop_over_target"] == 1.0


def test_max_loses_at_the_start_and_normal_evenly() -> None:
    lost = paper.losses(bounded_normal(10, 1, 0, 200_000), 100)
    assert sum(lost["max"][:10]) > 0.9 * sum(lost["max"])
    assert sum(lost["normal"][:10]) < 0.3 * sum(lost["normal"])


def test_one_exceptional_delay_moves_max_and_no_other() -> None:
    without, with_it = (paper.exceptions(s, 50_000, 100) for s in (None, 20))
    assert float(with_it["max_waiting"]) > 2 * float(without["max_waiting"])
    for name in ("normal", "quantile"):
        assert with_it[f"{name}_waiting"] == pytest.approx(without[f"{name}_waiting"], rel=0.05)


def test_each_part_is_switched_off_by_a_constant_that_quantile_has() -> None:
    assert all(hasattr(Quantile, constant) for constant, _ in parts.PARTS.values())
    found = {row["without"]: row for row in parts.rows(150_000, ("step",))}
    assert set(found) == {"-", *parts.PARTS}
    whole, unchanged = found["-"], found["change"]
    assert float(str(unchanged["latency_vs_oracle"])) > float(str(whole["latency_vs_oracle"]))
