"""Parquet and Arrow files: columns pruned, names matched without case, values cast with checks.

A value that does not fit its column makes its record bad; a column whose type has no meaning for
the stream's (say, a list for an integer) makes the file bad. That does not depend on the columns
that are asked for: those whose values may not fit are always read. Timestamps become microseconds:
nanoseconds are rounded down (also before 1970), a timestamp without zone is taken as UTC. Strings
are read by the grammar of text files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
from pyarrow import types

from penstock.runtime.sources.chunks import BadRecord, Chunk, bad_batch
from penstock.runtime.sources.lines import Unreadable
from penstock.runtime.sources.parsing import FIRST_US, LAST_US, floor_to_us, parse_texts, reason_for
from penstock.schema import Field, arrow_type

ARROW_MAGIC = b"ARROW1"


def read_parquet(
    file: str,
    source: pa.NativeFile,
    fields: tuple[Field, ...],
    all_fields: tuple[Field, ...],
    first: int,
    count: int | None,
    batch_rows: int,
) -> Iterator[Chunk]:
    """Row groups `first` … of a Parquet file."""
    parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
    read, names = _to_read(parquet.schema_arrow, fields, all_fields)
    groups = range(first, parquet.num_row_groups if count is None else first + count)
    row = sum(parquet.metadata.row_group(group).num_rows for group in range(first))
    # No column of the file asked for: its first one still tells how many records there are.
    wanted = [name for name in names if name is not None] or parquet.schema_arrow.names[:1]
    for group in groups:
        for batch in parquet.iter_batches(batch_rows, row_groups=[group], columns=wanted):
            chunk = _convert(file, batch, names, read, functools.partial(int, row))
            yield _cut(chunk, fields)
            row += batch.num_rows


def read_arrow(
    file: str,
    source: pa.NativeFile,
    fields: tuple[Field, ...],
    all_fields: tuple[Field, ...],
    first: int,
    count: int | None,
    batch_rows: int,
) -> Iterator[Chunk]:
    """Record batches `first` … of an Arrow IPC file, or all of an IPC stream."""
    magic = source.read(len(ARROW_MAGIC))
    source.seek(0)
    if magic != ARROW_MAGIC:
        stream = pa.ipc.open_stream(source)
        read, names = _to_read(stream.schema, fields, all_fields)
        row = 0
        for batch in stream:
            for chunk in _slices(file, batch, names, read, batch_rows, functools.partial(int, row)):
                yield _cut(chunk, fields)
            row += batch.num_rows
        return
    schema = pa.ipc.open_file(source).schema
    read, names = _to_read(schema, fields, all_fields)
    wanted = [name for name in names if name is not None] or schema.names[:1]
    options = pa.ipc.IpcReadOptions(
        included_fields=sorted({schema.get_field_index(name) for name in wanted}),
        use_threads=False,
    )
    reader = pa.ipc.open_file(source, options=options)
    last = reader.num_record_batches if count is None else first + count
    for place in range(first, last):
        batch = reader.get_batch(place)

        def first_row(place: int = place) -> int:
            return sum(reader.get_batch(before).num_rows for before in range(place))

        for chunk in _slices(file, batch, names, read, batch_rows, first_row):
            yield _cut(chunk, fields)


def cast_column(column: pa.Array, type_: str) -> tuple[pa.Array, np.ndarray | None]:
    """Values of `type_`, and which ones do not fit (NULL in the result), if any."""
    target = arrow_type(type_)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == target:
        return column, None
    if _is_text(column.type) and not types.is_string(target):
        return parse_texts(column.cast(pa.string()), type_)
    if _is_list(column.type) and _is_list(target):
        return _cast_lists(column, type_)
    return _cast_checked(column, target)


def castable(stored: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of the stored type have a meaning as values of the target type."""
    if types.is_dictionary(stored):
        stored = stored.value_type
    if stored == target or types.is_null(stored):
        return True
    if _is_list(target):
        return _is_list(stored) and castable(stored.value_type, target.value_type)
    if _is_text(stored):
        return True
    if types.is_string(target):
        return _is_binary(stored) or types.is_integer(stored) or types.is_decimal(stored)
    if types.is_binary(target):
        return _is_binary(stored)
    if types.is_timestamp(target):
        return types.is_timestamp(stored) or types.is_date(stored)
    if types.is_date(target):
        return types.is_timestamp(stored) or types.is_date(stored)
    return _is_number(stored) and _is_number(target)


def _convert(
    file: str,
    batch: pa.RecordBatch,
    names: list[str | None],
    fields: tuple[Field, ...],
    first_row: Callable[[], int],
) -> Chunk:
    columns: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for field, name in zip(fields, names, strict=True):
        if name is None:
            columns.append(pa.nulls(batch.num_rows, arrow_type(field.type)))
            continue
        stored = batch.column(name)
        values, refused = cast_column(stored, field.type)
        columns.append(values)
        if refused is not None:
            for row in np.flatnonzero(refused).tolist():
                reasons.setdefault(row, _reason(field, stored[row]))
    schema = pa.schema([(f.name, arrow_type(f.type)) for f in fields])
    result = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not reasons:
        return Chunk(result)
    good = np.ones(batch.num_rows, dtype=bool)
    good[list(reasons)] = False
    base = first_row()
    bad = [
        BadRecord(
            base + row, str({k: v[0] for k, v in batch.slice(row, 1).to_pydict().items()}), why
        )
        for row, why in sorted(reasons.items())
    ]
    return Chunk(result.filter(pa.array(good)), bad_batch(file, bad))


def _slices(
    file: str,
    batch: pa.RecordBatch,
    names: list[str | None],
    fields: tuple[Field, ...],
    batch_rows: int,
    first_row: Callable[[], int],
) -> Iterator[Chunk]:
    for offset in range(0, batch.num_rows, batch_rows):
        part = batch.slice(offset, batch_rows)
        yield _convert(file, part, names, fields, functools.partial(_plus, first_row, offset))


def _plus(first_row: Callable[[], int], offset: int) -> int:
    return first_row() + offset


def _stored_names(schema: pa.Schema, fields: Sequence[Field]) -> list[str | None]:
    by_lower = {name.lower(): name for name in reversed(schema.names)}
    stored = set(schema.names)
    return [f.name if f.name in stored else by_lower.get(f.name.lower()) for f in fields]


def _to_read(
    schema: pa.Schema, fields: tuple[Field, ...], all_fields: tuple[Field, ...]
) -> tuple[tuple[Field, ...], list[str | None]]:
    """What is read of a file for these fields, and the columns' names in the file: with them every
    column by which a record may be bad."""
    _check_types(schema, all_fields)
    others = [f for f in all_fields if f not in fields]
    for name, other in zip(_stored_names(schema, others), others, strict=True):
        if name is not None and not _fits(schema.field(name).type, arrow_type(other.type)):
            fields = (*fields, other)
    return fields, _stored_names(schema, fields)


def _fits(stored: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of the stored type is one of the target type."""
    if types.is_dictionary(stored):
        stored = stored.value_type
    if stored == target or types.is_null(stored):
        return True
    if _is_text(stored):
        return types.is_string(target)
    if types.is_timestamp(stored) and types.is_timestamp(target):
        return stored.unit in ("us", "ns")
    whole = types.is_signed_integer(stored) and types.is_signed_integer(target)
    broken = types.is_floating(stored) and types.is_floating(target)
    return (whole or broken) and stored.bit_width <= target.bit_width


def _cut(chunk: Chunk, fields: tuple[Field, ...]) -> Chunk:
    """The columns that were asked for."""
    if chunk.batch.num_columns == len(fields):
        return chunk
    return replace(chunk, batch=chunk.batch.select([f.name for f in fields]))


def _check_types(schema: pa.Schema, fields: tuple[Field, ...]) -> None:
    for name, field in zip(_stored_names(schema, fields), fields, strict=True):
        if name is not None and not castable(schema.field(name).type, arrow_type(field.type)):
            raise Unreadable(
                f"column {field.name} is {schema.field(name).type} in the file "
                f"and cannot be read as {field.type}"
            )


def _reason(field: Field, value: pa.Scalar) -> str:
    if isinstance(value, pa.DictionaryScalar):
        value = value.value
    if _is_text(value.type) and field.type != "string":
        return reason_for(field.name, value.as_py(), field.type)
    return f"column {field.name}: {str(value)[:100]} does not fit {field.type}"


def _cast_lists(column: pa.Array, type_: str) -> tuple[pa.Array, np.ndarray | None]:
    """Cast the elements; a list with an element that does not fit does not fit."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    elements, refused = cast_column(column.flatten(), type_.removeprefix("array<")[:-1])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    lists = pa.ListArray.from_arrays(
        pa.array(offsets), elements, type=arrow_type(type_), mask=column.is_null()
    )
    if refused is None:
        return lists, None
    bad = np.zeros(len(column), dtype=bool)
    bad[np.repeat(np.arange(len(column)), lengths)[refused]] = True
    return lists, bad


def _cast_checked(column: pa.Array, target: pa.DataType) -> tuple[pa.Array, np.ndarray | None]:
    """Cast; where Arrow refuses, halve until the values that do not fit stand alone."""
    try:
        return _cast_exact(column, target), None
    except (pa.ArrowInvalid, UnicodeDecodeError):
        if len(column) == 1:
            return pa.nulls(1, target), np.ones(1, dtype=bool)
    middle = len(column) // 2
    parts = [_cast_checked(part, target) for part in (column[:middle], column[middle:])]
    refused = [np.zeros(len(v), dtype=bool) if bad is None else bad for v, bad in parts]
    return pa.concat_arrays([values for values, _ in parts]), np.concatenate(refused)


def _cast_exact(column: pa.Array, target: pa.DataType) -> pa.Array:
    stored = column.type
    if types.is_timestamp(target) and types.is_timestamp(stored):
        if stored.unit == "ns":
            return floor_to_us(column, target)
        values = column.cast(pa.timestamp("us", stored.tz)).cast(pa.int64())
        limits = pc.min_max(values).as_py()
        if limits["min"] is not None and not FIRST_US <= limits["min"] <= limits["max"] <= LAST_US:
            raise pa.ArrowInvalid("outside the years 1 to 9999")
        return values.cast(target)
    if types.is_timestamp(target):
        return column.cast(pa.timestamp("us")).cast(pa.int64()).cast(target)
    if types.is_date(target) and types.is_timestamp(stored) and stored.tz is not None:
        column = column.cast(pa.timestamp(stored.unit, "UTC")).cast(pa.int64())
        column = column.cast(pa.timestamp(stored.unit))
    if types.is_decimal(target) and not types.is_floating(stored):
        # Arrow wants room for every integer of the type, not only for those that occur, and 128
        # bits may wrap around silently where the scale grows.
        column = column.cast(pa.decimal256(76, target.scale))
    values = column.cast(target)
    if types.is_date(target) and not values.cast(column.type).equals(column):
        raise pa.ArrowInvalid("has a time of day")
    narrowed = types.is_floating(stored) and types.is_floating(target)
    if narrowed and pc.any(pc.and_not(pc.is_inf(values), pc.is_inf(column))).as_py():
        raise pa.ArrowInvalid("out of range")
    return values


def _is_text(type_: pa.DataType) -> bool:
    return types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_)


def _is_binary(type_: pa.DataType) -> bool:
    return (
        types.is_binary(type_)
        or types.is_large_binary(type_)
        or types.is_binary_view(type_)
        or types.is_fixed_size_binary(type_)
    )


def _is_list(type_: pa.DataType) -> bool:
    return types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)


def _is_number(type_: pa.DataType) -> bool:
    return types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
