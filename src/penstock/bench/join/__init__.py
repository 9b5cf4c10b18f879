"""The m-way join on a bit-vector hash table, against MJoin and a chain of symmetric hash joins.

Experiments 1 to 3 are those of Kwon, Kim, Lee, Kim, on the kernels (`experiments`); then follow
the same joins on Spark, beside chains of its own (`on_spark`). `pieces` runs it in parts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.bench.join.data import Shape
from penstock.bench.join.experiments import (
    OTHER_BYTES,
    VICTIMS,
    Findings,
    by_selectivity,
    only_keys,
    over_budget,
)
from penstock.bench.machine import machine
from penstock.bench.report import Report, Value

_KEY_ONLY_SELECTIVITY = 0.5
_REPEATS = 2  # of experiment 3, for the summary


@dataclass(frozen=True, slots=True)
class Sizes:
    """keys: of each stream in experiments 1 and 2; few_keys: in 3, where each is a candidate.

    repeats: tuples per key and stream in 3, on average.
    """

    keys: int
    runs: int
    few_keys: int
    selectivities: Sequence[float] = (0.25, 0.5, 1)
    other_bytes: Sequence[int] = (0, OTHER_BYTES, 256)
    repeats: Sequence[int] = (1, _REPEATS, 4)


FULL = Sizes(keys=1_000_000, runs=8, few_keys=50_000)
QUICK = Sizes(keys=200_000, runs=8, few_keys=10_000)


def measure(quick: bool) -> Report:
    from penstock.bench.join import on_spark

    report = contend(QUICK if quick else FULL, quick, machine())
    return with_spark(report, *on_spark.measure(quick))


def with_spark(
    report: Report, rows: Sequence[dict[str, Value]], summary: dict[str, Any], agrees: bool
) -> Report:
    """The report of the kernels with what was measured on Spark."""
    from penstock.bench.join.spark_summary import fastest

    agrees = agrees and report.agrees
    return replace(
        report,
        rows=[*report.rows, *({"experiment": f"4 on Spark, {row['part']}", **row} for row in rows)],
        summary=report.summary | summary | {"results_equal": agrees},
        agrees=agrees,
        series=report.series | {"on_spark": fastest(rows)},
    )


def contend(sizes: Sizes, quick: bool, on: dict[str, Any]) -> Report:
    joins = _joined([_by_selectivity(sizes, share) for share in sizes.selectivities])
    say("experiment 2")
    shape = Shape(_KEY_ONLY_SELECTIVITY, sizes.keys)
    keys = only_keys(shape, sizes.other_bytes, sizes.runs, seed=0)
    flushes = _joined([_over_budget(sizes, repeats) for repeats in sizes.repeats])
    parts = {"selectivity": joins, "only_keys": keys, "over_budget": flushes}
    agrees = all(part.same for part in parts.values())
    summary = {
        "biht_vs_mjoin": {
            f"{share:g}": _figure(joins, "vs_mjoin", join="biht", selectivity=share)
            for share in sizes.selectivities
        },
        "key_only_vs_mjoin": _figure(
            keys, "key_table_vs_this", join="mjoin", other_bytes=OTHER_BYTES
        ),
        "key_only_vs_counting_mjoin": _figure(keys, "key_table_vs_this", join="mjoin, counting"),
        "flushes": _by_victims(flushes, "flushes"),
        "results_before_disk": _by_victims(flushes, "results_before_disk"),
        "results_equal": agrees,
    }
    rows = [row for part in parts.values() for row in part.rows]
    series = {name: part.course for name, part in parts.items()}
    return Report("join", quick, rows, summary, agrees, on, "experiment", series)


def draw(report: Report, directory: Path) -> None:
    """Write the plots of a report, and what they show as CSV."""
    from penstock.bench.join.plots import draw_all

    draw_all(report.series, directory)


def say(text: str) -> None:
    print(f"join: {text}", file=sys.stderr, flush=True)


def _by_selectivity(sizes: Sizes, selectivity: float) -> Findings:
    say(f"experiment 1, selectivity {selectivity:g}")
    return by_selectivity(Shape(selectivity, sizes.keys), sizes.runs, seed=0)


def _over_budget(sizes: Sizes, repeats: int) -> Findings:
    say(f"experiment 3, {repeats} tuples per key and stream")
    return over_budget(Shape(selectivity=1, keys=sizes.few_keys, repeats=repeats), seed=0)


def _joined(found: Sequence[Findings]) -> Findings:
    return Findings(
        [row for findings in found for row in findings.rows],
        [row for findings in found for row in findings.course],
        all(findings.same for findings in found),
    )


def _by_victims(findings: Findings, figure: str) -> dict[str, Value]:
    return {
        victims: _figure(findings, figure, victims=victims, repeats=_REPEATS) for victims in VICTIMS
    }


def _figure(findings: Findings, figure: str, **about: Value) -> Value:
    """A figure of the one row of which this is said."""
    (row,) = [row for row in findings.rows if about.items() <= row.items()]
    return row[figure]
