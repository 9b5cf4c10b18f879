"""Results as blobs: what goes in comes out, and only what nobody has to compute goes in."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.plan.catalog import Stream
from penstock.plan.specs import Composition, Output
from penstock.runtime import packing
from penstock.runtime.packing import PACKED, pack, packed_columns, unpacked
from penstock.schema import Field, Schema

FIELDS = (Field("id", "int"), Field("odd `name", "string"), Field("tags", "array<int>"))
STREAM = Stream("S", Schema(FIELDS), "file")


def selecting(*outputs: str, kind: str = "select") -> Composition:
    named = tuple(Output(f"o{i}", sql) for i, sql in enumerate(outputs))
    return Composition(kind, "S", (), STREAM.schema.names, named)  # type: ignore[arg-type]


def test_results_are_packed_if_they_are_columns_as_they_came() -> None:
    assert packed_columns(selecting("`odd ``name`", "`id`", "`id`"), STREAM) == (
        "odd `name",
        "id",
        "id",
    )
    assert packed_columns(selecting("`id`", "`id` + 1"), STREAM) is None
    assert packed_columns(selecting("`id`", "`tags`"), STREAM) is None  # Spark names its elements
    assert packed_columns(selecting("`id`", kind="window"), STREAM) is None


@pytest.mark.parametrize("most_bytes", [1, 100, 2**25])
def test_whatever_the_size_of_blobs_the_rows_are_the_same(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_MOST_BYTES", most_bytes)
    lists = pa.array([[1, 2], [], [3], [4, 5, 6]], pa.list_(pa.int32()))
    texts = pa.array(["a", None, "", "ü" * 50])
    batch = pa.record_batch([lists, texts], names=["__slots", "__o0"])
    blobs = list(pack(batch))
    assert all(blob.num_rows == 1 and blob.schema.names == [PACKED] for blob in blobs)
    assert len(blobs) == (1 if most_bytes == 2**25 else 4 if most_bytes == 1 else 2)
    found = unpacked(pa.Table.from_batches(blobs))
    assert found.combine_chunks().equals(pa.Table.from_batches([batch]))


def test_what_is_not_packed_stays_as_it_is() -> None:
    table = pa.table({"__slot": [1]})
    assert unpacked(table) is table
    nothing = pa.table({PACKED: pa.array([], pa.binary())})
    assert unpacked(nothing).num_rows == 0
