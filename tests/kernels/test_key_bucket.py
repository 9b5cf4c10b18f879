"""Buckets that only count, of all types of keys that tell all, against nested loops."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.kernels.join_bucket import SLOTS, TIME, Windows
from penstock.kernels.key_bucket import KeyBucket, counts_suffice


def schema(key: pa.DataType) -> pa.Schema:
    return pa.schema([("__k0", key), (TIME, pa.int64()), (SLOTS, pa.list_(pa.int32()))])


def batch_of(keys: list[Any], slots: list[int], key: pa.DataType) -> pa.RecordBatch:
    columns = {"__k0": keys, TIME: list(range(len(keys))), SLOTS: [slots] * len(keys)}
    return pa.RecordBatch.from_pydict(columns, schema(key))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (pa.int32(), [1, -1, 2**31 - 1]),
        (pa.bool_(), [True, False]),
        (pa.decimal128(18, 2), [Decimal("0.10"), Decimal("-9999999999999999.99"), Decimal("0.00")]),
    ],
)
def test_keys_are_counted_and_given_back(key: pa.DataType, values: list[Any]) -> None:
    assert counts_suffice([schema(key)] * 2)
    windows = Windows(np.array([1]), np.array([[100, 2]]))
    left, right = [*values, None, values[0]], values * 2
    bucket = KeyBucket(2)
    bucket.load(0, batch_of(left, [1], key), windows)
    found = [p.combinations for p in bucket.add(1, batch_of(right, [1], key), windows)]
    given = [k for each in found for k in each.members[0].column("__k0").to_pylist()]
    assert Counter(given) == Counter(
        a
        for (s, a), (t, b) in product(enumerate(left), enumerate(right))
        if a is not None and a == b and s - t <= 2
    )


@pytest.mark.parametrize("key", [pa.string(), pa.float64(), pa.decimal128(19, 2)])
def test_other_keys_need_their_tuples(key: pa.DataType) -> None:
    assert not counts_suffice([schema(key)] * 2)


def test_tables_of_dropped_slots_go() -> None:
    both, one = (Windows(np.array(s), np.full((len(s), 2), 100)) for s in ([1, 2], [2]))
    bucket = KeyBucket(2)
    bucket.load(0, batch_of([5, 6], [1, 2], pa.int64()), both)
    assert len(bucket.tables) == 2
    assert len(list(bucket.add(1, batch_of([5], [1, 2], pa.int64()), one))) == 1
    assert len(bucket.tables) == 1
