"""Chunks of a join's tuples come back from their blobs as they were, and are small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.kernels.batches import TYPES, to_arrow, values_of

from penstock.kernels.join_bucket import SLOTS, TIME
from penstock.runtime.joining.chunk_codec import from_blob, same_slots, to_blob
from penstock.runtime.packing import to_ipc

TIMES = st.integers(-(2**63), 2**63 - 1)
SLOT_LISTS = st.lists(st.integers(0, 3), unique=True, max_size=3)  # in any order


def batch_of(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def columns_of(draw: st.DrawFn, count: int) -> dict[str, pa.Array]:
    def some(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    lists = [draw(SLOT_LISTS)] * count if draw(st.booleans()) else some(SLOT_LISTS)
    found = {
        "__k0": pa.array(some(TIMES), pa.int64()),
        TIME: pa.array(some(TIMES), pa.int64()),
        SLOTS: pa.array(lists, pa.list_(pa.int32())),
    }
    for number, type_ in enumerate(draw(st.lists(st.sampled_from(TYPES), max_size=3))):
        values = values_of(type_) | st.none() if draw(st.booleans()) else values_of(type_)
        found[f"c{number}"] = to_arrow(some(values), type_)
    return found


@given(st.data(), st.integers(0, 8), st.sampled_from([1, 20]))
def test_tuples_come_back(data: st.DataObject, count: int, times: int) -> None:
    columns = data.draw(st.composite(columns_of)(count))
    begin = data.draw(st.integers(0, count))
    rows = pa.Table.from_batches([batch_of(columns)] * times).combine_chunks()
    [tuples] = rows.slice(begin).to_batches() or [batch_of(columns).slice(count)]
    found = from_blob(to_blob(tuples), tuples.schema)
    found.validate(full=True)
    assert found.schema == tuples.schema
    for ours, own in zip(found.columns, tuples.columns, strict=True):
        assert ours.to_string(window=1000) == own.to_string(window=1000)  # NaN, too


def test_slots_that_all_tuples_have_are_written_once() -> None:
    lists = pa.array([[1], [2, 3], [2, 3], [4]], pa.list_(pa.int32()))
    assert same_slots(lists) is None
    assert same_slots(lists.slice(1, 2)) == [2, 3]
    assert same_slots(pa.array([[], []], pa.list_(pa.int32()))) == []
    keys = pa.array([5, 6])
    with_them = batch_of({"__k0": keys, SLOTS: lists.slice(1, 2)})
    assert to_blob(batch_of({"__k0": keys}), [2, 3]) == to_blob(with_them)
    assert from_blob(to_blob(with_them), with_them.schema).column(SLOTS).to_pylist() == [[2, 3]] * 2


def test_keys_and_times_are_smaller_than_if_compressed_as_they_are() -> None:
    rng = np.random.default_rng(0)
    tuples = batch_of(
        {
            "__k0": pa.array(10**12 + np.sort(rng.integers(0, 10**6, 20_000))),
            TIME: pa.array(1_700_000_000_000_000 + np.sort(rng.integers(0, 4 * 10**8, 20_000))),
            SLOTS: pa.array([[0]] * 20_000, pa.list_(pa.int32())),
        }
    )
    assert len(to_blob(tuples)) < 0.9 * len(to_ipc(tuples, "zstd"))
