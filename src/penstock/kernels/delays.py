"""How far out of order a batch is: the facts that punctuation is decided from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.kernels.jit import Ints


@dataclass(frozen=True, slots=True)
class DelayFacts:
    """Of one batch; maxima are None if there are no rows (or no arrival times)."""

    rows: int
    max_event_us: int | None
    max_arrival_us: int | None
    max_delay_us: int | None


def disorder_facts(ts_us: Ints, arrival_us: Ints | None, previous_max_us: int | None) -> DelayFacts:
    """A row's delay is arrival minus event time.

    Without arrival times a row arrived when the largest event time so far, its own included, said.
    """
    if ts_us.size == 0:
        return DelayFacts(0, None, None, None)
    arrived = arrival_us
    if arrived is None:
        arrived = np.maximum.accumulate(ts_us)
        if previous_max_us is not None:
            arrived = np.maximum(arrived, previous_max_us)
    return DelayFacts(
        ts_us.size,
        int(ts_us.max()),
        None if arrival_us is None else int(arrival_us.max()),
        int((arrived - ts_us).max()),
    )
