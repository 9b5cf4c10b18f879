"""Integers as planes of bytes: all their lowest bytes, then all their next ones, and so on.

Numbers of one column are mostly close to each other, so their distance to the least of them has few
bytes, and the high bytes of these are much alike: written next to each other, a fast compressor
finds in them what a thorough one would hardly find in the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.kernels.jit import BYTES, INT, INTS, Bytes, Ints, kernel


@dataclass(frozen=True, slots=True)
class Planes:
    """low: what was taken off each number; width: bytes of the largest number left, 0 to 8."""

    low: int
    width: int
    data: Bytes

    @classmethod
    def of(cls, values: Ints) -> Planes:
        if not values.size:
            return cls(0, 0, np.empty(0, np.uint8))
        low, high = int(values.min()), int(values.max())
        width = ((high - low).bit_length() + 7) // 8
        return cls(low, width, _split(values, low, width))

    def values(self, count: int) -> Ints:
        return _joined(self.data, self.low, self.width, count)


@kernel(INTS, INT, INT)
def _split(values: Ints, low: int, width: int) -> Bytes:
    count = values.size
    data = np.empty(width * count, np.uint8)
    for plane in range(width):
        shift, begin = 8 * plane, plane * count
        for i in range(count):
            data[begin + i] = ((values[i] - low) >> shift) & 0xFF
    return data


@kernel(BYTES, INT, INT, INT)
def _joined(data: Bytes, low: int, width: int, count: int) -> Ints:
    values = np.full(count, low, np.int64)
    for plane in range(width):
        shift, begin = 8 * plane, plane * count
        for i in range(count):
            values[i] += np.int64(data[begin + i]) << shift
    return values
