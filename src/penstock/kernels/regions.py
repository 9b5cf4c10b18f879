"""Comparison regions: where an attribute's value stands among the constants it is compared with.

m distinct constants, sorted, cut a domain into 2m + 1 regions: gap, constant, gap, …, constant,
gap. Region 2i + 1 is the i-th constant, region 2i the gap below it; one more region, 2m + 1, is
NULL. No predicate tells two values of a region apart, so an interval between constants is a range
of regions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import cast

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kernels.columns import (
    INT64_MAX,
    INT64_MIN,
    NAN_KEY,
    dictionary_codes,
    is_wide_decimal,
    ordered_keys,
    split_wide,
    string_bytes,
    valid_flags,
    wide_words,
)
from penstock.kernels.jit import BYTES, INTS, Bytes, Ints, kernel
from penstock.plan.specs import Constant, Interval
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, decimal_parts

# A constant in the order of its domain: doubles as their integer keys, strings as UTF-8
Key = int | bytes

_COUNTED = ("boolean", "date", "timestamp", "timestamp_ntz")
_DOUBLE, _INT64 = Struct("<d"), Struct("<q")


@dataclass(frozen=True, slots=True)
class Regions:
    """An attribute's constants; domains of 64-bit keys (`keyed`) are searched during matching."""

    type: str
    constants: tuple[Key, ...]  # sorted, distinct

    @property
    def count(self) -> int:
        return 2 * len(self.constants) + 2

    @property
    def null(self) -> int:
        return self.count - 1

    @property
    def keyed(self) -> bool:
        return self.type != "string" and not is_wide_decimal(self.type)


def constant_key(value: Constant, type_: str) -> Key:
    """A constant as a member of its domain's order."""
    if type_ == "string" and isinstance(value, str):
        return value.encode()
    if type_ in FLOAT_TYPES and isinstance(value, int | float):
        return _double_key(float(value))
    integral = type_ in INTEGER_TYPES or type_ in _COUNTED or decimal_parts(type_) is not None
    if integral and isinstance(value, int):
        return int(value)
    raise PenstockError(f"{value!r} is not a constant of type {type_}")


def _double_key(value: float) -> int:
    """`double_keys` of one value: the call of a compiled kernel costs more than its work here."""
    if value != value:
        return NAN_KEY
    bits = cast(int, _INT64.unpack(_DOUBLE.pack(value + 0.0))[0])  # -0.0 + 0.0 is 0.0
    return bits if bits >= 0 else bits ^ INT64_MAX


def cut_domain(type_: str, constants: Iterable[Key]) -> Regions:
    """Regions for these constants; integers that no value can reach cut nothing."""
    low, high = _bounds(type_)
    inside = {c for c in constants if isinstance(c, bytes) or low <= c <= high}
    return Regions(type_, tuple(sorted(inside)))


def region_range(
    interval: Interval, regions: Regions, position: dict[Key, int]
) -> tuple[int, int] | None:
    """First region of an interval and the one after its last; None if it is empty."""
    first, after = 0, regions.count - 1
    low, high = _bounds(regions.type)
    if interval.low is not None:
        key = constant_key(interval.low, regions.type)
        if key in position:
            first = 2 * position[key] + (1 if interval.low_closed else 2)
        elif isinstance(key, int) and key > high:
            return None
    if interval.high is not None:
        key = constant_key(interval.high, regions.type)
        if key in position:
            after = 2 * position[key] + (2 if interval.high_closed else 1)
        elif isinstance(key, int) and key < low:
            return None
    return (first, after) if first < after else None


def find_regions(column: pa.Array, regions: Regions) -> Ints:
    """Each row's region, for strings and wide decimals."""
    if regions.type == "string":
        codes, values = dictionary_codes(column)
        texts = [c for c in regions.constants if isinstance(c, bytes)]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        bytes_ = np.frombuffer(b"".join(texts), np.uint8)
        found = _search_strings(*string_bytes(values), ends, bytes_)
        return np.append(found, regions.null)[codes]
    wide = [split_wide(c) for c in regions.constants if isinstance(c, int)]
    words = np.array(wide, np.int64).reshape(-1, 2)
    high, low = np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])
    found = _search_wide(*wide_words(column, regions.type), high, low)
    return np.where(valid_flags(column), found, regions.null)


def column_keys(column: pa.Array, regions: Regions) -> Ints:
    """What the matching kernel searches: keys, or regions where keys do not fit 64 bits."""
    if not regions.keyed:
        return find_regions(column, regions)
    return ordered_keys(column, regions.type)


def _bounds(type_: str) -> tuple[int, int]:
    if is_wide_decimal(type_):
        return -(2**127), 2**127 - 1
    return INT64_MIN, INT64_MAX


@kernel(INTS, BYTES, INTS, BYTES)
def _search_strings(offsets: Ints, data: Bytes, ends: Ints, constants: Bytes) -> Ints:
    found = np.empty(offsets.size - 1, np.int64)
    for i in range(offsets.size - 1):
        begin, length = offsets[i], offsets[i + 1] - offsets[i]
        low, high, equal = 0, ends.size - 1, 0
        while low < high:
            middle = (low + high) >> 1
            start, size = ends[middle], ends[middle + 1] - ends[middle]
            common = min(length, size)
            at = 0
            while at < common and data[begin + at] == constants[start + at]:
                at += 1
            if at < common:
                below = constants[start + at] < data[begin + at]
            elif length == size:
                low, equal = middle, 1
                break
            else:
                below = size < length
            if below:
                low = middle + 1
            else:
                high = middle
        found[i] = 2 * low + equal
    return found


@kernel(INTS, INTS, INTS, INTS)
def _search_wide(high_words: Ints, low_words: Ints, highs: Ints, lows: Ints) -> Ints:
    found = np.empty(high_words.size, np.int64)
    for i in range(high_words.size):
        upper, lower = high_words[i], low_words[i]
        low, high = 0, highs.size
        while low < high:
            middle = (low + high) >> 1
            if highs[middle] < upper or (highs[middle] == upper and lows[middle] < lower):
                low = middle + 1
            else:
                high = middle
        equal = low < highs.size and highs[low] == upper and lows[low] == lower
        found[i] = 2 * low + (1 if equal else 0)
    return found
