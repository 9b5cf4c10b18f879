"""Arrow columns as plain arrays that kernels compare.

One mapping serves selection, grouping and min/max: `ordered_keys` gives 64-bit integers whose
order and equality are those of Spark SQL on the values. Integers, dates, timestamps, booleans and
decimals up to 18 digits are such integers already; doubles become them by reordering their bits,
with all NaN one key above infinity and -0.0 the key of 0.0; strings get codes of a dictionary.
What stands at NULL positions is arbitrary: `valid_flags` tells.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.kernels.jit import DOUBLES, Bytes, Doubles, Flags, Ints, kernel
from penstock.kernels.partials import LONG_DIGITS
from penstock.schema import FLOAT_TYPES, arrow_type, decimal_parts

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

NAN_KEY = 0x7FF8000000000000


@kernel(DOUBLES)
def double_keys(values: Doubles) -> Ints:
    """Integers in the order of Spark's doubles."""
    bits = values.view(np.int64)
    keys = np.empty(values.size, np.int64)
    for i in range(values.size):
        value = values[i]
        if value != value:
            keys[i] = NAN_KEY
        elif value == 0.0:
            keys[i] = 0
        else:
            # negative doubles order backwards by their bits: flip all but the sign
            keys[i] = bits[i] ^ ((bits[i] >> 63) & 0x7FFFFFFFFFFFFFFF)
    return keys


def is_wide_decimal(type_: str) -> bool:
    """Whether the type is a decimal that needs 128 bits."""
    parts = decimal_parts(type_)
    return parts is not None and parts[0] > LONG_DIGITS


def valid_flags(column: pa.Array) -> Flags:
    """True where the value is not NULL."""
    if isinstance(column, pa.DictionaryArray):
        return dictionary_codes(column)[0] >= 0
    if column.null_count == 0:
        return np.ones(len(column), np.bool_)
    flags: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def ordered_keys(column: pa.Array, type_: str) -> Ints:
    """64-bit keys in the order of the values; not for strings and decimals of 128 bits."""
    if type_ in FLOAT_TYPES:
        return double_keys(doubles(column, type_))
    column = _plain(column, type_)
    if decimal_parts(type_):
        # two's complement, little-endian: the low word is the value
        return np.ascontiguousarray(_words(column)[:, 0])
    if type_ == "boolean":
        column = column.cast(pa.int8())
    return _fixed_width(column).astype(np.int64, copy=False)


def doubles(column: pa.Array, type_: str) -> Doubles:
    """A numeric column's values as doubles."""
    column = _plain(column, type_)
    parts = decimal_parts(type_)
    if parts is None:
        return _fixed_width(column).astype(np.float64, copy=False)
    if parts[0] <= LONG_DIGITS:
        # one division of two exact numbers rounds once, as long as the digits fit 53 bits
        scaled: Doubles = ordered_keys(column, type_) / float(10 ** parts[1])
        return scaled
    return _fixed_width(column.cast(pa.float64()))


def wide_words(column: pa.Array, type_: str) -> tuple[Ints, Ints]:
    """The values of a wide decimal: signed high words, and low words shifted to signed order."""
    words = _words(_plain(column, type_))
    return np.ascontiguousarray(words[:, 1]), words[:, 0] ^ INT64_MIN


def split_wide(unscaled: int) -> tuple[int, int]:
    """A constant in the form of `wide_words`."""
    return unscaled >> 64, (unscaled & (2**64 - 1)) + INT64_MIN


def dictionary_codes(column: pa.Array) -> tuple[Ints, pa.Array]:
    """Codes (NULL: -1) into distinct non-null values, in order of first occurrence."""
    if not isinstance(column, pa.DictionaryArray):
        encoded = column.dictionary_encode()
        return _codes(encoded.indices), encoded.dictionary
    # a dictionary made elsewhere may hold duplicates and NULL
    inner, values = dictionary_codes(column.dictionary)
    # code -1 takes the last element
    return np.append(inner, -1)[_codes(column.indices)], values


def string_ranks(column: pa.Array) -> Ints:
    """Keys in the binary order of the strings, equal for equal strings."""
    codes, values = dictionary_codes(column)
    ranks = np.empty(len(values) + 1, np.int64)
    ranks[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    ranks[-1] = -1
    return ranks[codes]


def string_bytes(values: pa.Array) -> tuple[Ints, Bytes]:
    """Offsets and bytes of a string or binary array; arbitrary where it is NULL."""
    values = values.cast(pa.large_binary())
    _, offsets, data = values.buffers()
    if len(values) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    places = np.frombuffer(offsets, np.int64)[values.offset : values.offset + len(values) + 1]
    return places, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def is_string(column: pa.Array) -> bool:
    """Whether the column holds text, dictionary-encoded or not."""
    type_ = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_string_view(type_)
    )


def _plain(column: pa.Array, type_: str) -> pa.Array:
    """The column as the one Arrow array type that stands for a Spark type."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    wanted, given = arrow_type(type_), column.type
    if given == wanted:
        return column
    if pa.types.is_decimal128(given) and pa.types.is_decimal128(wanted):
        if given.scale == wanted.scale:
            return column  # same unscaled values
    elif pa.types.is_timestamp(given) and pa.types.is_timestamp(wanted):
        # the time zone of the Arrow type is a label: both count from the epoch
        return column.cast(pa.timestamp("us", tz=given.tz))
    elif given.id != wanted.id and not _convertible(given, wanted):
        raise PenstockError(
            f"a column of Arrow type {given} was given as {type_}", f"expected Arrow type {wanted}"
        )
    return column.cast(wanted)


def _convertible(given: pa.DataType, wanted: pa.DataType) -> bool:
    same_kind = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_date)
    return bool(
        pa.types.is_null(given)
        or any(is_kind(given) and is_kind(wanted) for is_kind in same_kind)
        or (pa.types.is_float32(given) and pa.types.is_float64(wanted))
    )


def _fixed_width(column: pa.Array) -> np.ndarray:
    """The value buffer of a primitive array; `to_numpy` would turn NULLs into floats."""
    type_ = column.type
    if pa.types.is_temporal(type_):
        type_ = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    dtype = np.dtype(type_.to_pandas_dtype())
    if len(column) == 0:
        return np.empty(0, dtype)
    values = np.frombuffer(column.buffers()[1], dtype)
    return values[column.offset : column.offset + len(column)]


def _words(column: pa.Array) -> np.ndarray:
    if len(column) == 0:
        return np.empty((0, 2), np.int64)
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    return words[column.offset : column.offset + len(column)]


def _codes(indices: pa.Array) -> Ints:
    codes: Ints = pc.fill_null(indices.cast(pa.int64()), -1).to_numpy()
    return codes


def decimal_array(unscaled: Ints, valid: Flags, type_: pa.Decimal128Type) -> pa.Array:
    """A decimal column from unscaled 64-bit values."""
    words = np.empty((unscaled.size, 2), np.int64)
    words[:, 0] = unscaled
    words[:, 1] = unscaled >> 63
    bits = pa.array(valid, pa.bool_()).buffers()[1] if unscaled.size else None
    return pa.Array.from_buffers(type_, unscaled.size, [bits, pa.py_buffer(words)])
