"""Sizes of rows follow from their values, however Arrow holds them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.tuple_store import row_sizes

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("slots", pa.list_(pa.int32())),
        ("tags", pa.list_(pa.string())),
        ("deep", pa.list_(pa.list_(pa.binary()))),
    ]
)
texts = st.none() | st.text(max_size=3)
blobs = st.none() | st.binary(max_size=3)
rows = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(0, 9),
        "b": st.none() | st.booleans(),
        "s": texts,
        "slots": st.lists(st.integers(0, 9), max_size=3),
        "tags": st.none() | st.lists(texts, max_size=3),
        "deep": st.none() | st.lists(st.none() | st.lists(blobs, max_size=2), max_size=2),
    }
)


def size_of(value: Any, type_: pa.DataType) -> int:
    if pa.types.is_list(type_):
        return 4 + sum(size_of(each, type_.value_type) for each in value or ())
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return 4 + len((value or "").encode() if isinstance(value, str) else value or b"")
    return max(1, type_.bit_width // 8)


@given(st.lists(rows, max_size=8), st.integers(0, 8))
def test_sizes_are_those_of_the_values_in_any_layout(found: list[dict[str, Any]], at: int) -> None:
    batch = pa.RecordBatch.from_pylist(found, SCHEMA)
    expected = [sum(size_of(row[f.name], f.type) for f in SCHEMA) for row in found]
    assert row_sizes(batch).tolist() == expected
    assert row_sizes(batch.slice(at)).tolist() == expected[at:]
    kept = [n % 2 == 0 for n in range(len(found))]
    assert row_sizes(batch.filter(pa.array(kept, pa.bool_()))).tolist() == expected[::2]
    both = pa.Table.from_batches([batch.slice(at), batch.slice(0, at)]).combine_chunks()
    whole = [size for piece in both.to_batches() for size in row_sizes(piece).tolist()]
    assert whole == expected[at:] + expected[:at]
