"""The experiments of Kim et al., with `quantile` beside their `normal` and `max`.

Delays are normal around B/2 and drawn anew until they lie in [0, B]. B and σ are in seconds; 1000
tuples come a second.

1. Realised drop ratio by allowed ratio, bound and σ.
2. Buffer by bound and by σ. The paper's figure for `max` is the largest delay in tuples, for
   `normal` its N (`…_size` here); what really waits is less for `max`: tuples still on their way
   are in no buffer (`…_waiting`).
3. When the losses happen.
4. One early tuple with an exceptional delay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.bench.disorder.families import INTERVAL_US, bounded_normal
from penstock.bench.disorder.replay import Outcome, Trace, replay
from penstock.bench.report import Value
from penstock.control.estimators import Estimator, Max, Normal, Quantile
from penstock.control.profile import Profile

RATIO = 0.01
SEED = 0
PARTS = 100  # of a trace, over which losses are counted

Row = dict[str, Value]


def estimators(ratio: float = RATIO) -> dict[str, Estimator]:
    return {"max": Max(), "normal": Normal(ratio), "quantile": Quantile(ratio, Profile(ratio))}


def drop_ratios(
    ratios: Sequence[float], bound_s: float, sigma_s: float, tuples: int, step: int
) -> list[Row]:
    """Experiment 1 for one bound and σ: a row for each allowed ratio."""
    trace = bounded_normal(bound_s, sigma_s, SEED, tuples)
    of_max = replay(trace, Max(), step).drop_ratio  # knows no ratio
    return [
        {
            "ratio": ratio,
            "bound_s": bound_s,
            "sigma_s": sigma_s,
            "max": of_max,
            "normal": replay(trace, Normal(ratio), step).drop_ratio,
            "quantile": replay(trace, Quantile(ratio, Profile(ratio)), step).drop_ratio,
        }
        for ratio in ratios
    ]


def drop_summary(grid: Sequence[Row]) -> list[Row]:
    """A row for each estimator and allowed ratio, over all bounds and σ."""
    rows: list[Row] = []
    for name in ("max", "normal", "quantile"):
        for ratio in dict.fromkeys(row["ratio"] for row in grid):
            cells = [row for row in grid if row["ratio"] == ratio]
            over = np.array([row[name] for row in cells], float) / float(ratio or 1)
            worst = cells[int(over.argmax())]
            rows.append(
                {
                    "experiment": "1 drop ratio over bounds and σ",
                    "estimator": name,
                    "ratio": ratio,
                    "least_over_ratio": float(over.min()),
                    "mean_over_ratio": float(over.mean()),
                    "worst_over_ratio": float(over.max()),
                    "worst_at": f"B {worst['bound_s']}, σ {worst['sigma_s']}",
                    "violations": int((over > 1).sum()),
                    "cases": len(cells),
                }
            )
    return rows


def buffers(bound_s: float, sigma_s: float, tuples: int, step: int) -> Row:
    """Experiment 2 for one bound and σ."""
    trace = bounded_normal(bound_s, sigma_s, SEED, tuples)
    largest, normal = Max(), Normal(RATIO)
    waiting = {
        "max": replay(trace, largest, step),
        "normal": replay(trace, normal, step),
        "quantile": replay(trace, Quantile(RATIO, Profile(RATIO)), step),
    }
    return {
        "experiment": "2 buffer, tuples",
        "bound_s": bound_s,
        "sigma_s": sigma_s,
        "sigma_real_s": float((trace.arrival_us - trace.event_us).std() / 1e6),
        **{f"{name}_waiting": _buffered(outcome) for name, outcome in waiting.items()},
        "max_size": (largest.delay_us or 0) / INTERVAL_US,
        "normal_size": normal.size,
    }


def _buffered(outcome: Outcome) -> float:
    return float(outcome.buffered().mean())


def losses(trace: Trace, step: int) -> dict[str, list[int]]:
    """Experiment 3: lost tuples in each hundredth of the trace."""
    return {
        name: [int(part.sum()) for part in np.array_split(_late(trace, estimator, step), PARTS)]
        for name, estimator in estimators().items()
    }


def _late(trace: Trace, estimator: Estimator, step: int) -> np.ndarray:
    return replay(trace, estimator, step).late


def loss_rows(lost: dict[str, list[int]]) -> list[Row]:
    return [
        {
            "experiment": "3 when losses happen",
            "estimator": name,
            "lost": sum(parts),
            "share_in_first_1%": parts[0] / max(sum(parts), 1),
            "share_in_first_10%": sum(parts[:10]) / max(sum(parts), 1),
            "most_in_1%": max(parts),
            "median_in_1%": float(np.median(parts)),
        }
        for name, parts in lost.items()
    ]


def exceptions(exception_s: float | None, tuples: int, step: int) -> Row:
    """Experiment 4 for one size of the exception."""
    trace = bounded_normal(10, 1, SEED, tuples, exception_s)
    outcomes = {name: replay(trace, est, step) for name, est in estimators().items()}
    return {
        "experiment": "4 one exceptional delay",
        "exception_s": exception_s or 0,
        **{f"{name}_waiting": _buffered(outcome) for name, outcome in outcomes.items()},
        **{f"{name}_wait_s": outcome.waiting_us() / 1e6 for name, outcome in outcomes.items()},
    }
