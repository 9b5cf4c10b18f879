"""Join keys against Python's equality of the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import reference
from tests.kernels.batches import TYPES, encoded, values_of

from penstock.errors import PenstockError
from penstock.kernels.columns import is_wide_decimal
from penstock.kernels.join_keys import bucket_of, join_keys, same_keys, split_by_bucket

Key = tuple[Any, ...]


def is_exact(types: list[str]) -> bool:
    return len(types) == 1 and types[0] != "string" and not is_wide_decimal(types[0])


def same_key(a: Key, b: Key) -> bool:
    if None in a or None in b:
        return False
    return all(reference.order(x) == reference.order(y) for x, y in zip(a, b, strict=True))


@st.composite
def key_columns(draw: st.DrawFn, types: list[str], count: int) -> tuple[list[pa.Array], list[Key]]:
    columns = [
        draw(st.lists(values_of(t) | st.none(), min_size=count, max_size=count)) for t in types
    ]
    arrays = [draw(encoded(c, t)) for c, t in zip(columns, types, strict=True)]
    return arrays, list(zip(*columns, strict=True))


def _has_zero_byte(*values: object) -> bool:
    """Whether strings may have equal hashes though they differ: "b", and "a" with a zero byte."""
    return any("\0" in value for value in values if isinstance(value, str))


@given(st.data(), st.lists(st.sampled_from(TYPES), min_size=1, max_size=3), st.integers(0, 12))
def test_equal_keys_have_equal_hashes_in_every_batch_and_others_only_if_not_exact(
    data: st.DataObject, types: list[str], count: int
) -> None:
    batches = [data.draw(key_columns(types, count)) for _ in range(2)]
    left, right = (join_keys(arrays) for arrays, _ in batches)
    (left_arrays, left_rows), (right_arrays, right_rows) = batches
    assert left.exact == right.exact == is_exact(types)
    assert left.known.tolist() == [None not in row for row in left_rows]
    for i, a in enumerate(left_rows):
        for j, b in enumerate(right_rows):
            if left.known[i] and right.known[j] and not _has_zero_byte(*a, *b):
                # 64 mixed bits: a false match among these few keys would be a fault
                assert (left.hashes[i] == right.hashes[j]) == same_key(a, b)
    expected = [same_key(a, b) for a, b in zip(left_rows, right_rows, strict=True)]
    assert same_keys(left_arrays, right_arrays).tolist() == expected


def test_numbers_of_different_width_are_the_same_key() -> None:
    narrow, wide = pa.array([5, -1], pa.int8()), pa.array([5, -1], pa.int64())
    assert (join_keys([narrow]).hashes == join_keys([wide]).hashes).all()
    single, double = pa.array([1.5, -0.0], pa.float32()), pa.array([1.5, 0.0], pa.float64())
    assert (join_keys([single]).hashes == join_keys([double]).hashes).all()
    assert same_keys([narrow, single], [wide, double]).all()


def test_binary_keys_are_compared_by_their_bytes() -> None:
    values = [b"", b"\xff", b"\xff\x00", None, b"12345678", b"123456789", b"\xff"]
    column = pa.array(values, pa.binary())
    keys = join_keys([column])
    assert not keys.exact
    assert len(set(keys.hashes[keys.known].tolist())) == 5
    assert keys.hashes[1] == keys.hashes[6]
    assert (
        join_keys([column.dictionary_encode()]).hashes[keys.known] == keys.hashes[keys.known]
    ).all()
    assert same_keys([column], [column.cast(pa.large_binary())]).tolist() == [
        value is not None for value in values
    ]


def test_the_order_of_columns_and_the_border_between_strings_matter() -> None:
    a, b, c = pa.array(["a", "ab", ""]), pa.array(["bc", "c", "abc"]), pa.array(["bc", "c", "abc"])
    assert len(set(join_keys([a, b]).hashes.tolist())) == 3
    assert not (join_keys([a, b]).hashes == join_keys([c, a]).hashes).any()
    x, y = pa.array([0, 1]), pa.array([1, 0])
    assert not (join_keys([x, y]).hashes == join_keys([y, x]).hashes).any()


def test_hashes_are_the_same_in_every_release_for_state_outlives_the_process() -> None:
    assert join_keys([pa.array([1, -1])]).hashes.tolist() == [
        6238072747940578789,
        -5417735806833148549,
    ]
    assert join_keys([pa.array(["", "penstock joins"])]).hashes.tolist() == [0, 4231753802048554830]
    assert join_keys([pa.array([1]), pa.array(["a"])]).hashes.tolist() == [-3079488768252494472]


def test_a_list_cannot_be_a_key() -> None:
    with pytest.raises(PenstockError, match="list"):
        join_keys([pa.array([[1]])])


@pytest.mark.parametrize("step", [1, 2**20, 2**40])
def test_buckets_are_even_and_tell_nothing_about_places(step: int) -> None:
    count, buckets = 1 << 16, 16
    hashes = join_keys([pa.array(np.arange(count) * step)]).hashes
    bucket = bucket_of(hashes, buckets)
    both = np.bincount(bucket * 16 + (hashes & 15), minlength=buckets * 16)
    # 256 cells of 256 keys: five standard deviations
    assert both.size == 256
    assert np.abs(both - 256).max() < 5 * 16


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 1000))
def test_splitting_takes_each_row_once_in_order_of_bucket_and_arrival(
    hashes: list[int], buckets: int
) -> None:
    bucket = bucket_of(np.array(hashes, np.int64), buckets)
    assert bucket.dtype == np.int32
    assert all(0 <= b < buckets for b in bucket)
    order, offsets = split_by_bucket(bucket, buckets)
    assert order.tolist() == np.argsort(bucket, kind="stable").tolist()
    assert np.diff(offsets).tolist() == np.bincount(bucket, minlength=buckets).tolist()
