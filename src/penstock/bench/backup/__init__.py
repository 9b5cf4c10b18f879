"""Upstream backup: what is lost, what measuring and recovering cost, and whether kills do harm.

Experiments 1 and 2 are those of the paper on adaptive upstream backup (`loss`, `monitoring`); 3
compares ways to survive a node (`schemes`), 4 is the price when nothing is slow, 5 kills nodes,
backup servers and consumers at random (`kills`). All nodes are processes of their own; no Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from penstock.bench.backup.kills import kill_rows
from penstock.bench.backup.loss import MODES, loss_rows, overhead_rows
from penstock.bench.backup.monitoring import monitoring_rows
from penstock.bench.backup.schemes import scheme_rows
from penstock.bench.machine import machine
from penstock.bench.report import Report, Value

Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Sizes:
    """seconds: of each rate and mode; turns and restarts of Spark: of experiment 3; pairs: of short
    turns, of 4."""

    rates: Sequence[int]
    seconds: float
    monitored_rates: Sequence[int]
    turns: int
    restarts: int
    pairs: int
    kills: int


_PAPER = (1_000, 5_000, 10_000, 20_000, 30_000, 40_000, 50_000)
FULL = Sizes((*_PAPER, 100_000, 200_000, 500_000, 1_000_000), 10.0, _PAPER, 7, 3, 1_000, 200)
QUICK = Sizes((1_000, 20_000, 50_000), 4.0, (1_000, 10_000, 50_000), 3, 1, 300, 10)


def measure(quick: bool) -> Report:
    return contend(QUICK if quick else FULL, quick, machine())


def contend(sizes: Sizes, quick: bool, on: dict[str, Any]) -> Report:
    with TemporaryDirectory(prefix="penstock-bench-") as directory:
        root = Path(directory)
        say("experiment 1, loss")
        loss = loss_rows(sizes.rates, sizes.seconds, root / "loss")
        say("experiment 2, monitoring")
        monitoring = monitoring_rows(sizes.monitored_rates, sizes.seconds, root / "monitoring")
        say("experiment 3, recovery")
        schemes = scheme_rows(sizes.turns, sizes.restarts, root / "schemes")
        say("experiment 4, nothing slow")
        overhead = overhead_rows(sizes.pairs, root / "overhead")
        say(f"experiment 5, {sizes.kills} kills")
        kills = kill_rows(sizes.kills, seed=0, directory=root / "kills")
    rows = [*loss, *monitoring, *schemes, *overhead, *kills]
    series = {"loss": loss, "monitoring": monitoring, "recovery": schemes}
    figures = summary(loss, monitoring, overhead, kills)
    return Report("backup", quick, rows, figures, agrees(rows), on, "experiment", series)


def summary(
    loss: Sequence[Row], monitoring: Sequence[Row], overhead: Sequence[Row], kills: Sequence[Row]
) -> dict[str, Any]:
    (killed,) = kills
    return {
        "loss": {
            mode: {str(row["rate"]): row["lost_share"] for row in loss if row["mode"] == mode}
            for mode in MODES
        },
        "kills": killed["kills"],
        "lost": killed["lost"],
        "duplicated": killed["duplicated"],
        "recovery_s": {"p50": killed["recovery_p50_s"], "p99": killed["recovery_p99_s"]},
        "overhead_adaptive": next(r["more"] for r in overhead if r["mode"] == "adaptive"),
        "monitor_cpu": {
            name: mean(float(r["monitor_cpu"] or 0) for r in monitoring if r["measured"] == name)
            for name in ("all", "partial")
        },
    }


def agrees(rows: Sequence[Row]) -> bool:
    """Nothing is lost but by `plain`, and nothing comes twice."""
    return all(
        not row.get("duplicated") and (not row.get("lost") or row.get("mode") == "plain")
        for row in rows
    )


def draw(report: Report, directory: Path) -> None:
    """Write the plots of a report, and what they show as CSV."""
    from penstock.bench.backup.plots import draw_all

    draw_all(report.series, directory)


def say(text: str) -> None:
    print(f"backup: {text}", file=sys.stderr, flush=True)
