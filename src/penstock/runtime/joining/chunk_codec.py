"""Tuples of a join's input as one blob: made once, then shuffled, sent to the state and kept there.

Columns of numbers and times without NULLs become planes of bytes (`kernels.byte_planes`), which a
fast compressor makes small; other columns stay as they are and are compressed thoroughly. The slots
that want a tuple are mostly the same for all: then they are written once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.byte_planes import Planes
from penstock.kernels.join_bucket import SLOTS
from penstock.runtime.packing import from_ipc, to_ipc

_FAST, _THOROUGH = "lz4", "zstd"
_FORM = b"form"
_FEW = 64  # tuples that are not worth it


def same_slots(lists: pa.ListArray) -> list[int] | None:
    """The slots of every tuple, if they are the same for all."""
    if not len(lists):
        return []
    offsets = lists.offsets.to_numpy()
    first = offsets[1] - offsets[0]
    values = lists.values.to_numpy()[offsets[0] : offsets[-1]]
    if values.size != first * len(lists) or (np.diff(offsets) != first).any():
        return None
    slots = values[:first]
    return slots.tolist() if (values.reshape(len(lists), first) == slots).all() else None


def to_blob(tuples: pa.RecordBatch, slots: Sequence[int] | None = None) -> bytes:
    """The tuples as a blob; slots: those of every tuple, in place of a column of them."""
    if SLOTS in tuples.schema.names:
        slots = same_slots(tuples.column(SLOTS))
    arrays: dict[str, pa.Array] = {}
    planes: dict[str, tuple[int, int]] = {}
    for name, column in zip(tuples.schema.names, tuples.columns, strict=True):
        if name == SLOTS and slots is not None:
            continue
        bits = None if tuples.num_rows < _FEW else _bits_of(column.type)
        if bits is None or column.null_count:
            arrays[name] = column
            continue
        found = Planes.of(column.view(bits).to_numpy().astype(np.int64, copy=False))
        planes[name] = (found.low, found.width)
        if found.width:
            arrays[name] = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(found.width), len(column), [None, pa.py_buffer(found.data)]
            )
    codec = _FAST if arrays.keys() <= planes.keys() else _THOROUGH
    form = {"rows": tuples.num_rows, "planes": planes, "slots": slots}
    schema = pa.schema(
        [(name, array.type) for name, array in arrays.items()], {_FORM: json.dumps(form)}
    )
    return to_ipc(pa.RecordBatch.from_arrays(list(arrays.values()), schema=schema), codec)


def from_blob(blob: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The tuples of a blob, in the columns of their input's chunks."""
    stored = from_ipc(blob)
    form = json.loads(stored.schema.metadata[_FORM])
    columns = [_column(stored, field, form) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(stored: pa.RecordBatch, field: pa.Field, form: dict[str, Any]) -> pa.Array:
    rows, name = form["rows"], field.name
    if name == SLOTS and form["slots"] is not None:
        each = len(form["slots"])
        offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(each))
        values = pa.array(np.tile(np.array(form["slots"], np.int32), rows))
        return pa.ListArray.from_arrays(offsets, values)
    if name not in form["planes"]:
        return stored.column(name)
    low, width = form["planes"][name]
    data = np.empty(0, np.uint8)
    if width:
        data = np.frombuffer(stored.column(name).buffers()[1], np.uint8, rows * width)
    values = Planes(low, width, data).values(rows)
    bits = _bits_of(field.type)
    assert bits is not None
    return pa.array(values.astype(bits.to_pandas_dtype(), copy=False)).view(field.type)


def _bits_of(type_: pa.DataType) -> pa.DataType | None:
    """The signed integers as which values of a type can be looked at; None if there are none."""
    kinds = pa.types
    if not (kinds.is_integer(type_) or kinds.is_temporal(type_) or kinds.is_floating(type_)):
        return None
    return _INTEGERS.get(type_.bit_width)


_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
