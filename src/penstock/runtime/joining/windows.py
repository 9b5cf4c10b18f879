"""Combinations cut into the windows that hold them, as rows for a window aggregate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import Ints
from penstock.kernels.join_bucket import TooManyCombinations
from penstock.kernels.join_table import reach_us
from penstock.kernels.tuple_store import row_sizes
from penstock.plan.specs import SlotSpec
from penstock.runtime.config import SHIFT_US
from penstock.runtime.window_rows import END

_NEVER_US, _EVER_US = -(2**62), 2**62
_MOST_OF_ONE = 2**40  # windows, so that sums of them stay integers
ROW_BYTES = 24  # a row's own columns
_PIECE_ROWS, _PIECE_BYTES = 2**20, 2**26  # made at a time


def window_rows(
    slot: Ints,
    latest_us: Ints,
    until_us: Ints,
    specs: Mapping[int, SlotSpec],
    most: int = _PIECE_ROWS,
    most_in_all: int = INT64_MAX,
) -> Iterator[tuple[Ints, dict[str, pa.Array]]]:
    """Which pair of combination and slot each row is of, and the row's own columns; piece by piece.

    Of each pair: its latest time, and up to when all of its tuples are in their ranges. A window
    that ends after the one and not after the other holds it. most: rows of a piece; that there are
    more than `most_in_all` is an error.
    """
    known, inverse = np.unique(slot, return_inverse=True)
    range_us, slide_us, from_us = _windows([specs[int(s)] for s in known])[:, inverse]
    first = (latest_us // slide_us + 1) * slide_us
    # windows that start before `from_us` are not reported
    begin_us = np.minimum(reach_us(from_us, range_us), _EVER_US)
    first = np.maximum(first, -(-begin_us // slide_us) * slide_us)
    last = np.minimum(until_us, _EVER_US)
    count = np.clip((last - first) // slide_us + 1, 0, _MOST_OF_ONE)
    through = np.cumsum(count)
    total = int(through[-1]) if through.size else 0
    if total > most_in_all:
        most_of = known[np.bincount(inverse, count).argmax()]
        raise too_many_windows(most_in_all * ROW_BYTES, [int(most_of)])
    for begin in range(0, total, most):
        end = min(begin + most, total)
        pairs = slice(
            int(np.searchsorted(through, begin, side="right")),
            int(np.searchsorted(through, end)) + 1,
        )
        starts = through[pairs] - count[pairs]
        taken = np.minimum(through[pairs], end) - np.maximum(starts, begin)
        pair = np.repeat(np.arange(pairs.start, pairs.stop), taken)
        step = np.arange(begin, end) - np.repeat(starts, taken)
        end_us = first[pair] + step * slide_us[pair]
        yield (
            pair,
            {
                "__slot": pa.array(slot[pair]),
                "__range_us": pa.array(range_us[pair]),
                "__end": pa.array(end_us + SHIFT_US).cast(END),
            },
        )


def rows_at_a_time(rows: pa.RecordBatch) -> int:
    """How many rows may be made of these at a time."""
    return max(1, min(_PIECE_ROWS, _PIECE_BYTES // int(row_sizes(rows).max(initial=1))))


def too_many_windows(most_bytes: int, slots: Sequence[int] = ()) -> TooManyCombinations:
    message = f"windows over a join get more than {most_bytes:,} bytes of combinations at once"
    return TooManyCombinations(message, slots, "a longer SLIDE, a shorter RANGE")


def _windows(specs: list[SlotSpec]) -> Ints:
    """By slot its range, its slide, and where its first window begins."""
    found = [
        (s.window.range_us, s.window.slide_us, _NEVER_US if s.from_us is None else s.from_us)
        for s in specs
        if s.window is not None
    ]
    return np.array(found, np.int64).reshape(-1, 3).T
