"""How far behind the clock each estimator stays while the delays change, for plots."""

from __future__ import annotations

import numpy as np

from penstock.bench.disorder.contest import STEP, contestants
from penstock.bench.disorder.families import family
from penstock.bench.disorder.replay import Outcome, replay
from penstock.bench.report import Value

SHOWN = ("oracle", "quantile", "normal", "max")
# family -> part of the stream that is shown, and how many points of it
VIEWS = {"step": (0.0, 1.0, 150), "outage": (0.35, 0.65, 180)}


def following(tuples: int) -> dict[str, list[dict[str, Value]]]:
    return {f"following_{name}": _lags(name, tuples) for name in VIEWS}


def _lags(name: str, tuples: int) -> list[dict[str, Value]]:
    trace = family(name, 0, tuples)
    those = contestants(trace, STEP)
    outcomes = {shown: replay(trace, those[shown], STEP) for shown in SHOWN}
    first, last, points = VIEWS[name]
    last_us = int(trace.arrival_us[-1])
    times_us = np.linspace(max(first, 0.01) * last_us, last * last_us, points)
    lags = {shown: _lag_s(outcome, times_us) for shown, outcome in outcomes.items()}
    return [
        {
            "time_s": round(float(time) / 1e6, 3),
            **{k: round(float(v[i]), 3) for k, v in lags.items()},
        }
        for i, time in enumerate(times_us)
    ]


def _lag_s(outcome: Outcome, times_us: np.ndarray) -> np.ndarray:
    """At each time, the time minus the punctuation that holds then."""
    step = np.maximum(np.searchsorted(outcome.clock_us, times_us, "right") - 1, 0)
    return (times_us - outcome.punctuation_us[step]) / 1e6
