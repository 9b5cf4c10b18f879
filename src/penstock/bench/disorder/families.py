"""Streams with known delays: eight families, a hard case, the bounded normal delays of the paper.

Tuples are generated at random, 1000 a second on average. The stream is cut at the last generation
time: what would arrive after it is not in the trace.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.bench.disorder.replay import Trace
from penstock.kernels.jit import Doubles

SECOND = 1e6
INTERVAL_US = 1000.0
OUTAGE_EVERY, OUTAGE_FROM = 100 * SECOND, 95 * SECOND

Delays = Callable[[np.random.Generator, Doubles], Doubles]


def family(name: str, seed: int, tuples: int) -> Trace:
    """The same trace for the same arguments, always."""
    random = np.random.default_rng([seed, *name.encode()])
    event_us = _generate(random, tuples)
    return _arrive(name, event_us, (FAMILIES | HARD)[name](random, event_us))


def bounded_normal(
    bound_s: float, sigma_s: float, seed: int, tuples: int, exception_s: float | None = None
) -> Trace:
    """Delays of N(bound/2, sigma) that lie in [0, bound], as in the paper's experiments.

    exception_s: the delay of one early tuple, the one after the first hundredth.
    """
    random = np.random.default_rng([seed, round(bound_s * 1000), round(sigma_s * 1000)])
    event_us = _generate(random, tuples)
    delays = _within(random, bound_s * SECOND, sigma_s * SECOND, tuples)
    if exception_s is not None:
        delays[tuples // 100] = exception_s * SECOND
    return _arrive(f"B {bound_s:g} s, σ {sigma_s:g} s", event_us, delays)


def _generate(random: np.random.Generator, tuples: int) -> Doubles:
    return np.cumsum(random.exponential(INTERVAL_US, tuples))


def _arrive(name: str, event_us: Doubles, delays_us: Doubles) -> Trace:
    arrival_us = event_us + np.maximum(delays_us, 0.0)
    order = np.argsort(arrival_us, kind="stable")
    order = order[: np.searchsorted(arrival_us[order], event_us[-1], "right")]
    return Trace(name, event_us[order].astype(np.int64), arrival_us[order].astype(np.int64))


def _within(random: np.random.Generator, bound: float, sigma: float, tuples: int) -> Doubles:
    """Drawn anew until inside the bound."""
    delays = random.normal(bound / 2, sigma, tuples)
    while (outside := np.flatnonzero((delays < 0) | (delays > bound))).size:
        delays[outside] = random.normal(bound / 2, sigma, outside.size)
    return delays


def _normal(random: np.random.Generator, event_us: Doubles) -> Doubles:
    return random.normal(5 * SECOND, SECOND, event_us.size)


def _exponential(random: np.random.Generator, event_us: Doubles) -> Doubles:
    return random.exponential(SECOND, event_us.size)


def _lognormal(random: np.random.Generator, event_us: Doubles) -> Doubles:
    return random.lognormal(0, 1, event_us.size) * SECOND


def _pareto(random: np.random.Generator, event_us: Doubles) -> Doubles:
    return 0.1 * SECOND * (1 + random.pareto(1.5, event_us.size))


def _bimodal(random: np.random.Generator, event_us: Doubles) -> Doubles:
    fast = random.normal(0.5 * SECOND, 0.1 * SECOND, event_us.size)
    slow = random.normal(5 * SECOND, SECOND, event_us.size)
    return np.where(random.random(event_us.size) < 0.9, fast, slow)


def _drift(random: np.random.Generator, event_us: Doubles) -> Doubles:
    return random.exponential(SECOND, event_us.size) * (1 + 3 * event_us / event_us[-1])


def _step(random: np.random.Generator, event_us: Doubles) -> Doubles:
    """Four times the delay in the middle third."""
    part = event_us / event_us[-1]
    scale = np.where((part > 1 / 3) & (part < 2 / 3), 4.0, 1.0)
    return random.normal(SECOND, 0.2 * SECOND, event_us.size) * scale


def _outage(random: np.random.Generator, event_us: Doubles) -> Doubles:
    """Nothing arrives for five seconds in a hundred; then all of it in a burst."""
    phase = event_us % OUTAGE_EVERY
    burst = OUTAGE_EVERY - phase + random.exponential(0.05 * SECOND, event_us.size)
    return np.where(phase > OUTAGE_FROM, burst, random.exponential(0.5 * SECOND, event_us.size))


def _long_outage(random: np.random.Generator, event_us: Doubles) -> Doubles:
    """One outage of thirty seconds in the middle: it never happened before and never will again."""
    end = event_us[-1] / 2 + 30 * SECOND
    burst = end - event_us + random.exponential(0.05 * SECOND, event_us.size)
    held = (event_us > end - 30 * SECOND) & (event_us < end)
    return np.where(held, burst, random.exponential(0.5 * SECOND, event_us.size))


FAMILIES: dict[str, Delays] = {
    "normal": _normal,
    "exponential": _exponential,
    "lognormal": _lognormal,
    "pareto": _pareto,
    "bimodal": _bimodal,
    "drift": _drift,
    "step": _step,
    "outage": _outage,
}
HARD: dict[str, Delays] = {"long_outage": _long_outage}  # shown, and in no figure of the summary
