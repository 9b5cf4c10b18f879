"""The report of the backup benchmark, on little data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from penstock.bench import backup
from penstock.bench.backup import Sizes, agrees, contend
from penstock.bench.backup.traffic import SCHEMA, TUPLE_BYTES, tuples
from penstock.bench.report import Report

TINY = Sizes(
    rates=(1_000, 50_000),
    seconds=1.5,
    monitored_rates=(1_000, 50_000),
    turns=1,
    restarts=0,
    pairs=5,
    kills=6,
)


@pytest.fixture(scope="module")
def report() -> Report:
    return contend(TINY, True, {})


@pytest.mark.slow
def test_the_summary_has_the_agreed_keys_and_only_plain_loses(
    report: Report, tmp_path: Path
) -> None:
    report.write(tmp_path / "r.json")
    summary = json.loads((tmp_path / "r.json").read_text())["summary"]
    assert report.agrees
    assert set(summary) == {
        "loss",
        "kills",
        "lost",
        "duplicated",
        "recovery_s",
        "overhead_adaptive",
        "monitor_cpu",
    }
    assert (summary["kills"], summary["lost"], summary["duplicated"]) == (6, 0, 0)
    assert summary["loss"].pop("plain")["50000"] > 0.1
    for by_rate in summary["loss"].values():
        assert set(by_rate.values()) == {0}
    assert summary["monitor_cpu"]["partial"] < summary["monitor_cpu"]["all"]


@pytest.mark.slow
def test_every_plot_is_written_with_its_figures(report: Report, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    backup.draw(report, tmp_path / "plots")
    written = {path.name for path in (tmp_path / "plots").iterdir()}
    assert written == {f"{name}.{end}" for name in report.series for end in ("csv", "png")}


@pytest.mark.parametrize(
    ("row", "fine"),
    [
        ({"mode": "plain", "lost": 5, "duplicated": 0}, True),
        ({"mode": "plain", "lost": 5, "duplicated": 1}, False),
        ({"mode": "block", "lost": 1, "duplicated": 0}, False),
        ({"scheme": "active", "lost": 0, "duplicated": 2}, False),
        ({"measured": "all"}, True),
    ],
)
def test_a_loss_is_seen(row: dict, fine: bool) -> None:
    assert agrees([row]) is fine


def test_tuples_are_numbered_and_as_large_as_said() -> None:
    batch = tuples(7, 1000)
    assert batch.schema == SCHEMA
    assert np.array_equal(batch.column(0).to_numpy(), np.arange(7, 1007))
    assert batch.nbytes == 1000 * TUPLE_BYTES
