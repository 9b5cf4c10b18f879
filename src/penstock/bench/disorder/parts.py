"""What each part of `quantile` is worth: the same replay with one of them switched off."""

from __future__ import annotations

from penstock.bench.disorder.contest import STEP, STRETCH, TARGET
from penstock.bench.disorder.families import family
from penstock.bench.disorder.replay import ConstantDelay, oracle_delay, replay
from penstock.bench.report import Value
from penstock.control.estimators import Quantile
from penstock.control.profile import Profile

NEVER = 1e9
# part -> the constant that switches it off when it is beyond reach
PARTS: dict[str, tuple[str, object]] = {
    "credit": ("PATIENCE", (NEVER, NEVER)),
    "bound of credit": ("CREDIT", NEVER),
    "change": ("CHANGE", NEVER),
    "surge": ("SURGE", NEVER),
    "leap": ("LEAP", NEVER),
}
FAMILIES = ("drift", "step", "outage", "long_outage")


def rows(tuples: int, families: tuple[str, ...] = FAMILIES) -> list[dict[str, Value]]:
    """Lost and worst stretch in parts of the ratio, latency in parts of the oracle's; seed 0."""
    found: list[dict[str, Value]] = []
    for name in families:
        trace = family(name, 0, tuples)
        oracle = replay(trace, ConstantDelay(oracle_delay(trace, STEP, TARGET)), STEP)
        for part in (None, *PARTS):
            outcome = replay(trace, _without(part), STEP)
            found.append(
                {
                    "experiment": "8 parts of quantile",
                    "family": name,
                    "without": part or "-",
                    "lost_over_ratio": outcome.drop_ratio / TARGET,
                    "worst_stretch_over_ratio": outcome.worst_stretch(STRETCH) / TARGET,
                    "latency_vs_oracle": outcome.latency_us() / oracle.latency_us(),
                }
            )
    return found


def _without(part: str | None) -> Quantile:
    changed = dict([PARTS[part]]) if part is not None else {}
    return type("Quantile", (Quantile,), changed)(TARGET, Profile(TARGET))
