"""Every estimator on the same replay: what it loses, how late it is, how much it buffers.

The delay of the fixed ones is taken from the trace itself, as a user would who had measured it
well: a time behind the latest event time (Spark's watermark), or as many tuples as come in that
time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.bench.disorder.families import family
from penstock.bench.disorder.replay import ConstantDelay, Outcome, Trace, oracle_delay, replay
from penstock.bench.disorder.traces import TRACES
from penstock.bench.report import Value
from penstock.control.estimators import (
    Estimator,
    FixedTime,
    FixedTuples,
    Max,
    Normal,
    Quantile,
)
from penstock.control.profile import Profile

TARGET = 0.01
STEP = 100
STRETCH = 100_000  # tuples in a row over which the promise is judged, too


@dataclass(frozen=True, slots=True)
class Score:
    drop_ratio: float
    latency_s: float
    latency_vs_oracle: float
    buffer_mean: float
    worst_stretch: float


def contestants(trace: Trace, step: int) -> dict[str, Estimator]:
    delays = trace.arrival_us - trace.event_us
    p95, p99, most = (max(int(d), 0) for d in np.quantile(delays, (0.95, 0.99, 1.0)))
    interval_us = (trace.arrival_us[-1] - trace.arrival_us[0]) / trace.arrival_us.size
    return {
        "oracle": ConstantDelay(oracle_delay(trace, step, TARGET)),
        "quantile": Quantile(TARGET, Profile(TARGET)),
        "normal": Normal(TARGET),
        "max": Max(),
        "fixed_p95": FixedTime(p95),
        "fixed_p99": FixedTime(p99),
        "fixed_max": FixedTime(most),
        "fixed_tuples": FixedTuples(math.ceil(p99 / interval_us)),
    }


def compete(trace: Trace, step: int) -> dict[str, Score]:
    those = contestants(trace, step)
    oracle = replay(trace, those.pop("oracle"), step)
    best_us = oracle.latency_us()
    return {"oracle": score(oracle, best_us)} | {
        name: score(replay(trace, estimator, step, shown_to(estimator)), best_us)
        for name, estimator in those.items()
    }


def shown_to(estimator: Estimator) -> int:
    """How many of the newest event times an estimator must see."""
    return estimator.slack + 1 if isinstance(estimator, FixedTuples) else 0


def score(outcome: Outcome, best_us: float) -> Score:
    """best_us: the oracle's latency."""
    latency_us = outcome.latency_us()
    return Score(
        outcome.drop_ratio,
        latency_us / 1e6,
        latency_us / best_us,
        float(outcome.buffered().mean()),
        outcome.worst_stretch(STRETCH),
    )


def compete_on_family(name: str, seeds: int, tuples: int) -> dict[str, list[Score]]:
    """For each estimator, a score for each seed."""
    by_seed = [compete(family(name, seed, tuples), STEP) for seed in range(seeds)]
    return {estimator: [scores[estimator] for scores in by_seed] for estimator in by_seed[0]}


def family_rows(
    name: str, scores: dict[str, list[Score]], experiment: str = "5 families, worst of the seeds"
) -> list[dict[str, Value]]:
    """Each figure of the seed that is worst by it."""
    return [
        {
            "experiment": experiment,
            "family": name,
            "estimator": estimator,
            "drop_ratio": max(s.drop_ratio for s in of_seeds),
            "least_drop_ratio": min(s.drop_ratio for s in of_seeds),
            "worst_stretch": max(s.worst_stretch for s in of_seeds),
            "latency_s": max(s.latency_s for s in of_seeds),
            "latency_vs_oracle": max(s.latency_vs_oracle for s in of_seeds),
            "buffer_mean": max(s.buffer_mean for s in of_seeds),
        }
        for estimator, of_seeds in scores.items()
    ]


def trace_rows(name: str, all_steps: bool) -> list[dict[str, Value]]:
    """Raises NotHere where the trace is absent."""
    read, steps = TRACES[name]
    trace = read()
    return [
        {
            "experiment": "6 real traces",
            "trace": name,
            "tuples": trace.event_us.size,
            "step": step,
            "estimator": estimator,
            "drop_ratio": found.drop_ratio,
            "latency_s": found.latency_s,
            "latency_vs_oracle": found.latency_vs_oracle,
            "buffer_mean": found.buffer_mean,
        }
        for step in (steps if all_steps else steps[1:2])
        for estimator, found in compete(trace, step).items()
    ]


def brief(rows: Iterable[dict[str, Value]]) -> dict[str, dict[str, Value]]:
    """estimator -> the figures of the summary."""
    figures = ("drop_ratio", "latency_vs_oracle", "buffer_mean")
    return {str(row["estimator"]): {key: row[key] for key in figures} for row in rows}


def brief_trace(name: str, rows: Sequence[dict[str, Value]]) -> dict[str, dict[str, Value]]:
    usual = TRACES[name][1][1]
    return brief(row for row in rows if row["step"] == usual)


def promise(quantile: Sequence[Score]) -> dict[str, Value]:
    """How well `quantile` kept the promise over all families and seeds."""
    return {
        "worst_drop_over_target": max(s.drop_ratio for s in quantile) / TARGET,
        "least_drop_over_target": min(s.drop_ratio for s in quantile) / TARGET,
        "worst_latency_vs_oracle": max(s.latency_vs_oracle for s in quantile),
        "worst_stretch_over_target": max(s.worst_stretch for s in quantile) / TARGET,
    }
