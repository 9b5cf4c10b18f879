"""Disorder: drop ratio, latency and buffer of every estimator on the same replayed streams.

Experiments 1 to 4 are those of Kim et al. (`paper`), 5 and 6 go beyond them: eight families of
delays, each with several seeds, and real traces (`contest`). Those are replays without Spark; the
last one runs on it (`on_spark`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.bench.disorder import contest, on_spark, paper, parts
from penstock.bench.disorder.families import FAMILIES, HARD, bounded_normal
from penstock.bench.disorder.following import following
from penstock.bench.disorder.speed import kernel_rows
from penstock.bench.disorder.traces import TRACES
from penstock.bench.machine import machine
from penstock.bench.real_data import NotHere
from penstock.bench.report import Report, Value

Row = dict[str, Value]
_KEPT = 1.02  # of the target: what `quantile` may lose at most for the report to agree


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the paper's experiments: tuples, what is varied, and after how many tuples to decide."""

    tuples: int
    ratios: Sequence[float]
    bounds: Sequence[float]
    sigmas: Sequence[float]
    buffer_bounds: Sequence[float]
    buffer_sigmas: Sequence[float]
    exceptions: Sequence[float]
    grid_step: int
    loss_step: int
    family_tuples: int
    seeds: int
    all_trace_steps: bool
    part_families: tuple[str, ...]


FULL = Sizes(
    tuples=1_000_000,
    ratios=(0.01, 0.02, 0.03, 0.04, 0.05),
    bounds=range(4, 21, 2),
    sigmas=range(1, 7),
    buffer_bounds=range(3, 21),
    buffer_sigmas=[n / 10 for n in range(8, 31, 2)],
    exceptions=(20, 40, 80, 160, 320),
    grid_step=1000,
    loss_step=10,
    family_tuples=1_000_000,
    seeds=5,
    all_trace_steps=True,
    part_families=parts.FAMILIES,
)
QUICK = Sizes(
    tuples=200_000,
    ratios=(0.01, 0.05),
    bounds=(4, 14, 20),
    sigmas=(1, 3, 6),
    buffer_bounds=(3, 8, 14, 20),
    buffer_sigmas=(0.8, 1.4, 2.0, 3.0),
    exceptions=(20, 80),
    grid_step=1000,
    loss_step=100,
    family_tuples=1_000_000,
    seeds=1,
    all_trace_steps=False,
    part_families=(),
)


def measure(quick: bool) -> Report:
    on = machine()
    say("on Spark")
    spark = on_spark.measure(quick)
    report = contend(QUICK if quick else FULL, quick, on)
    return replace(
        report,
        rows=[*report.rows, *_spark_rows(spark)],
        summary=report.summary | {"spark": spark},
        agrees=report.agrees and spark["drop_ratio"] <= _KEPT * contest.TARGET,
    )


def contend(sizes: Sizes, quick: bool, on: dict[str, Any]) -> Report:
    paper_rows, series = _paper(sizes)
    family_rows, families, scores = _families(sizes)
    hard_rows = _hard_cases(sizes)
    trace_rows, traces = _traces(sizes)
    say("experiment 8, parts of quantile")
    part_rows = parts.rows(sizes.family_tuples, sizes.part_families)
    say("kernel speed")
    kernel = kernel_rows()
    promise = contest.promise(scores)
    summary = {
        "families": families,
        "target": contest.TARGET,
        **promise,
        "kernel_tuples_per_s": kernel[0]["tuples_per_s"],
        "traces": traces,
    }
    say("how the estimators follow a change")
    series |= following(sizes.family_tuples)
    series |= {"families": family_rows, "hard_cases": hard_rows, "traces": trace_rows}
    rows = [*paper_rows, *family_rows, *hard_rows, *trace_rows, *part_rows, *kernel]
    agrees = float(promise["worst_drop_over_target"] or 0) <= _KEPT
    return Report("disorder", quick, rows, summary, agrees, on, "experiment", series)


def _spark_rows(spark: dict[str, Any]) -> list[Row]:
    figures = ("drop_ratio", "worst_stretch", "latency_s", "latency_p95_s")
    engines = [{"engine": "penstock", **spark}] + [
        {"engine": f"native, watermark {native['watermark_s']} s", **native}
        for native in spark["native"]
    ]
    return [
        {"experiment": "7 on Spark", **{key: engine[key] for key in ("engine", *figures)}}
        for engine in engines
    ]


def draw(report: Report, directory: Path) -> None:
    """Write the plots of a report, and what they show as CSV."""
    from penstock.bench.disorder.plots import draw_all

    draw_all(report.series, directory)


def say(text: str) -> None:
    print(f"disorder: {text}", file=sys.stderr, flush=True)


def _paper(sizes: Sizes) -> tuple[list[Row], dict[str, list[Row]]]:
    grid: list[Row] = []
    for bound in sizes.bounds:
        say(f"experiment 1, bound {bound} s")
        for sigma in sizes.sigmas:
            grid += paper.drop_ratios(sizes.ratios, bound, sigma, sizes.tuples, sizes.grid_step)
    say("experiment 2")
    by_bound = [paper.buffers(b, 1, sizes.tuples, contest.STEP) for b in sizes.buffer_bounds]
    by_sigma = [paper.buffers(10, s, sizes.tuples, contest.STEP) for s in sizes.buffer_sigmas]
    say("experiment 3")
    lost = paper.losses(bounded_normal(10, 1, paper.SEED, sizes.tuples), sizes.loss_step)
    say("experiment 4")
    sizes_s = (None, *sizes.exceptions)
    exceptions = [paper.exceptions(s, sizes.tuples, contest.STEP) for s in sizes_s]
    rows = [
        *paper.drop_summary(grid), *by_bound, *by_sigma, *paper.loss_rows(lost), *exceptions
    ]  # fmt: skip
    parts: list[Row] = [
        {"part": part, **dict(zip(lost, counts, strict=True))}
        for part, counts in enumerate(zip(*lost.values(), strict=True))
    ]
    return rows, {
        "drop_ratio": grid,
        "buffer_by_bound": by_bound,
        "buffer_by_sigma": by_sigma,
        "losses": parts,
        "exception": exceptions,
    }


def _families(sizes: Sizes) -> tuple[list[Row], dict[str, Any], list[contest.Score]]:
    rows: list[Row] = []
    brief: dict[str, Any] = {}
    scores: list[contest.Score] = []
    for name in FAMILIES:
        say(f"experiment 5, {name} delays, {sizes.seeds} seeds")
        found = contest.compete_on_family(name, sizes.seeds, sizes.family_tuples)
        of_family = contest.family_rows(name, found)
        rows += of_family
        brief[name] = contest.brief(of_family)
        scores += found["quantile"]
    return rows, brief, scores


def _hard_cases(sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    for name in HARD:
        say(f"hard case {name}, {sizes.seeds} seeds")
        found = contest.compete_on_family(name, sizes.seeds, sizes.family_tuples)
        rows += contest.family_rows(name, found, "5 a hard case, worst of the seeds")
    return rows


def _traces(sizes: Sizes) -> tuple[list[Row], dict[str, Any]]:
    rows: list[Row] = []
    brief: dict[str, Any] = {}
    for name in TRACES:
        say(f"experiment 6, trace {name}")
        try:
            of_trace = contest.trace_rows(name, sizes.all_trace_steps)
        except NotHere as why:
            say(f"trace {name} is skipped: {why}")
            brief[name] = {"skipped": str(why)}
            continue
        rows += of_trace
        brief[name] = contest.brief_trace(name, of_trace)
    return rows, brief
