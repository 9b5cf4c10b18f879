"""Planes of bytes against numbers written byte by byte."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.kernels.byte_planes import Planes

INT64 = st.integers(-(2**63), 2**63 - 1)


def written(values: list[int], low: int, width: int) -> list[int]:
    """The slow twin: each number's distance in bytes, gathered by their places."""
    each = [(value - low).to_bytes(width, "little") for value in values]
    return [digits[place] for place in range(width) for digits in each]


@given(st.lists(INT64, min_size=1, max_size=30) | st.lists(st.integers(-300, 300), min_size=1))
@example([-(2**63), 2**63 - 1])
@example([7, 7, 7])
def test_numbers_are_written_by_planes_and_come_back(values: list[int]) -> None:
    planes = Planes.of(np.array(values, np.int64))
    assert planes.low == min(values)
    assert planes.width == ((max(values) - min(values)).bit_length() + 7) // 8
    assert planes.data.tolist() == written(values, planes.low, planes.width)
    assert planes.values(len(values)).tolist() == values


def test_no_numbers_have_no_planes() -> None:
    planes = Planes.of(np.empty(0, np.int64))
    assert (planes.width, planes.data.size, planes.values(0).size) == (0, 0, 0)
