"""Random Arrow batches of every type, drawn with their values as `tests.reference` has them."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from penstock.schema import arrow_type, decimal_parts

INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DECIMALS = ("decimal(5,2)", "decimal(18,0)", "decimal(18,4)", "decimal(19,3)", "decimal(38,10)")
TYPES = (
    *INTEGERS,
    "float",
    "double",
    *DECIMALS,
    "string",
    "boolean",
    "date",
    "timestamp",
    "timestamp_ntz",
)

_EXACT = Context(prec=60)


def values_of(type_: str) -> st.SearchStrategy[Any]:
    """Values of a type's domain: few, so that they collide, and the extremes."""
    if parts := decimal_parts(type_):
        top = 10 ** parts[0] - 1
        edges = [top, -top, top - 1, 2**62, 2**64, 2**64 + 1, -(2**64), 1 - 2**64]
        return _few([v for v in edges if abs(v) <= top])
    if bits := INTEGERS.get(type_):
        return _few([2 ** (bits - 1) - 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 2])
    if type_ in ("float", "double"):
        special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, -1.5]
        width = 32 if type_ == "float" else 64
        return st.sampled_from(special) | st.floats(width=width) | st.floats(-9, 9, width=width)
    if type_ == "string":
        texts = ["", "a", "ab", "b", "a\0", "é", "z", "\uffff", "\U00010000"]
        return st.sampled_from(texts) | st.text("ab", max_size=3)
    if type_ == "boolean":
        return st.sampled_from([0, 1])
    return _few([-(10**6), 10**6, 2**31 - 1, -(2**31)])


def _few(edges: list[int]) -> st.SearchStrategy[int]:
    return st.integers(-4, 4) | st.sampled_from(edges)


def to_arrow(values: list[Any], type_: str) -> pa.Array:
    target = arrow_type(type_)
    if parts := decimal_parts(type_):
        scaled = [None if v is None else Decimal(v).scaleb(-parts[1], _EXACT) for v in values]
        return pa.array(scaled, target)
    if type_ == "boolean":
        return pa.array([None if v is None else bool(v) for v in values], target)
    if type_ == "date":
        return pa.array(values, pa.int32()).cast(target)
    if type_.startswith("timestamp"):
        return pa.array(values, pa.int64()).cast(target)
    return pa.array(values, target)


def from_arrow(column: pa.Array, type_: str) -> list[Any]:
    if parts := decimal_parts(type_):
        return [None if v is None else int(v.scaleb(parts[1], _EXACT)) for v in column.to_pylist()]
    if type_ == "boolean":
        return [None if v is None else int(v) for v in column.to_pylist()]
    if type_ == "date":
        return column.cast(pa.int32()).to_pylist()
    if type_.startswith("timestamp"):
        return column.cast(pa.int64()).to_pylist()
    return column.to_pylist()


@st.composite
def encoded(draw: st.DrawFn, values: list[Any], type_: str) -> pa.Array:
    """A column with these values: as it is or a slice of a longer one, strings in any encoding."""
    before = draw(st.lists(values_of(type_) | st.none(), max_size=9))
    after = draw(st.lists(values_of(type_), max_size=1))
    column = to_arrow([*before, *values, *after], type_)
    if type_ == "string":
        column = column.cast(draw(st.sampled_from([pa.string(), pa.large_string()])))
    if type_ in ("string", "int") and draw(st.booleans()):
        column = column.dictionary_encode()
    return column.slice(len(before), len(values))


@st.composite
def batches(
    draw: st.DrawFn, types: dict[str, str], max_rows: int = 25
) -> tuple[pa.RecordBatch, list[dict[str, Any]]]:
    count = draw(st.integers(0, max_rows))
    columns = {}
    for name, type_ in types.items():
        rows = st.lists(st.none() | values_of(type_), min_size=count, max_size=count)
        columns[name] = draw(rows | st.just([None] * count))
    arrays = [draw(encoded(columns[name], type_)) for name, type_ in types.items()]
    rows = [{name: columns[name][i] for name in types} for i in range(count)]
    return pa.RecordBatch.from_arrays(arrays, list(types)), rows
