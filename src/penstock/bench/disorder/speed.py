"""How many tuples a second one core takes in: `disorder_facts` over batches of 100,000 rows."""

from __future__ import annotations

import statistics
import time

import numpy as np

from penstock.bench.disorder.families import family
from penstock.bench.report import Value
from penstock.kernels.delays import UNKNOWN_US, disorder_facts
from penstock.kernels.jit import Ints

BATCH = 100_000
_PASSES = 5
_TRUST_US = 86_400_000_000


def kernel_rows() -> list[dict[str, Value]]:
    """Medians over some passes through a trace with exponential delays."""
    trace = family("exponential", 0, 1_000_000)
    return [
        {
            "experiment": "kernel, one core",
            "arrival_times": arrival_us is not None,
            "batch": BATCH,
            "tuples_per_s": statistics.median(
                _rate(trace.event_us, arrival_us) for _ in range(_PASSES)
            ),
        }
        for arrival_us in (trace.arrival_us, None)
    ]


def _rate(event_us: Ints, arrival_us: Ints | None) -> float:
    valid = np.ones(BATCH, np.bool_)
    clock_us = closed_us = UNKNOWN_US
    started = time.perf_counter()
    for first in range(0, event_us.size - BATCH + 1, BATCH):
        part = slice(first, first + BATCH)
        arrivals = None if arrival_us is None else arrival_us[part]
        facts = disorder_facts(event_us[part], valid, arrivals, clock_us, _TRUST_US, closed_us)
        clock_us, closed_us = facts.clock_us, facts.clock_us - 4_600_000
    return event_us.size // BATCH * BATCH / (time.perf_counter() - started)
