"""Combinations cut into the windows that hold them, as rows for a window aggregate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.kernels.jit import Ints
from penstock.plan.specs import SlotSpec
from penstock.runtime.config import SHIFT_US
from penstock.runtime.stage import END

_NEVER_US = -(2**62)


def window_rows(
    slot: Ints, latest_us: Ints, until_us: Ints, specs: Mapping[int, SlotSpec]
) -> tuple[Ints, dict[str, pa.Array]]:
    """Which pair of combination and slot each row is of, and the row's own columns.

    Of each pair: its latest time, and up to when all of its tuples are in their ranges. A window
    that ends after the one and not after the other holds it.
    """
    known, inverse = np.unique(slot, return_inverse=True)
    range_us, slide_us, from_us = _windows([specs[int(s)] for s in known])[:, inverse]
    first = (latest_us // slide_us + 1) * slide_us
    # windows that start before `from_us` are not reported
    first = np.maximum(first, -(-(from_us + range_us) // slide_us) * slide_us)
    count = np.maximum(0, (until_us - first) // slide_us + 1)
    pair = np.repeat(np.arange(slot.size), count)
    step = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count)
    end_us = first[pair] + step * slide_us[pair]
    return pair, {
        "__slot": pa.array(slot[pair]),
        "__range_us": pa.array(range_us[pair]),
        "__end": pa.array(end_us + SHIFT_US).cast(END),
    }


def _windows(specs: list[SlotSpec]) -> Ints:
    """By slot its range, its slide, and where its first window begins."""
    found = [
        (s.window.range_us, s.window.slide_us, _NEVER_US if s.from_us is None else s.from_us)
        for s in specs
        if s.window is not None
    ]
    return np.array(found, np.int64).reshape(-1, 3).T
