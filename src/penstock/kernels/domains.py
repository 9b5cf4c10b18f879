"""Every attribute's values as 64-bit keys, in the order of the domain.

Numbers, dates, times and booleans are such keys by themselves (`columns.ordered_keys`). Strings and
decimals of 128 bits are not: their keys are labels of the constants that queries compare with. The
labels leave room between each other, so a new constant gets one without moving the others; a value
that equals no constant gets the key right after the constant below it. Constants that no query
compares with any more are forgotten once they are the larger part; the labels of the others stay,
so no key of a predicate changes.

An interval of values is then an interval of keys, closed on both sides: in integers `> c` is
`>= c + 1`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, cast

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
from penstock.kernels.jit import BYTES, INTS, Bytes, Flags, Ints, kernel
from penstock.plan.specs import Constant, Interval
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, decimal_parts

# A constant in the order of its domain: doubles as their integer keys, strings as UTF-8
Key = int | bytes

_COUNTED = ("boolean", "date", "timestamp", "timestamp_ntz")
_DOUBLE, _INT64 = Struct("<d"), Struct("<q")
_APART = 2**36  # between the labels of constants that come together
_ROOM = 4  # least distance of labels: a constant, and the values after it
_FARTHEST = 2**62
_WIDE = 2**127
_SPARE = 256  # constants that may be of no use


def ordered_constant(value: Constant, type_: str) -> Key:
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


@dataclass(frozen=True, slots=True)
class Relabelling:
    """Labels that constants had and have now, in the order of the constants."""

    before: Ints
    after: Ints

    def apply(self, lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
        """First and last keys of predicates; they are labels, or one beside."""
        low = np.searchsorted(self.before, lows, "right") - 1
        high = np.minimum(np.searchsorted(self.before, highs), self.before.size - 1)
        low_keys = self.after[low] + (lows - self.before[low])
        high_keys = self.after[high] - (self.before[high] - highs)
        return (
            np.where(lows == INT64_MIN, INT64_MIN, low_keys),
            np.where(highs == INT64_MAX, INT64_MAX, high_keys),
        )


@dataclass(slots=True)
class Direct:
    """A domain whose values are 64-bit keys."""

    type: str

    crowded = False  # there is nothing to forget

    def learn(self, constants: Iterable[Key]) -> None:
        """Take constants in: nothing to do."""

    def keep_only(self, lows: Ints, highs: Ints) -> None:
        """Forget constants of no use: nothing to do."""

    def bounds(self, interval: Interval) -> tuple[int, int]:
        """The keys of an interval, first and last; none if the first is the larger one."""
        low, high = INT64_MIN, INT64_MAX
        if interval.low is not None:
            key = ordered_constant(interval.low, self.type)
            assert isinstance(key, int)
            low = key if interval.low_closed else key + 1
        if interval.high is not None:
            key = ordered_constant(interval.high, self.type)
            assert isinstance(key, int)
            high = key if interval.high_closed else key - 1
        if low > INT64_MAX or high < INT64_MIN:
            return 0, -1
        return max(low, INT64_MIN), min(high, INT64_MAX)

    def keys(self, column: pa.Array) -> tuple[Ints, Flags]:
        """A column's keys, and which of them are not NULL."""
        return ordered_keys(column, self.type), valid_flags(column)


@dataclass(slots=True)
class Labelled:
    """A domain of strings or wide decimals: keys are labels of the constants known so far."""

    type: str
    constants: list[Any] = field(default_factory=list)  # all bytes or all int; sorted, distinct
    labels: list[int] = field(default_factory=list)
    _places: tuple[Any, ...] | None = None  # the constants as the search wants them
    _keys: Ints | None = None
    _used: int = 0  # constants that were left when some were forgotten last

    def learn(self, constants: Iterable[Key]) -> Relabelling | None:
        """Take constants in; how keys given out before have changed, if they had to."""
        new = sorted({c for c in constants if self._reachable(c) and not self._knows(c)})
        if not new:
            return None
        self._places = self._keys = None
        before = self.labels
        gaps = [bisect_left(self.constants, c) for c in new]
        labels = self._labels_in_gaps(Counter(gaps))
        merged = sorted(zip([*self.constants, *new], range(len(before) + len(new)), strict=True))
        self.constants = [constant for constant, _ in merged]
        if labels is not None:
            self.labels = sorted([*before, *labels])
            return None
        self.labels = [_APART * i for i in range(len(merged))]
        moved = [i for i, (_, number) in enumerate(merged) if number < len(before)]
        return Relabelling(np.array(before), np.array(self.labels)[moved]) if before else None

    @property
    def crowded(self) -> bool:
        """Whether enough constants have come for a look which of them are of no use any more."""
        return len(self.constants) > 2 * self._used + _SPARE

    def keep_only(self, lows: Ints, highs: Ints) -> None:
        """Forget the constants that no predicate begins or ends at; these are first and last keys
        of all predicates."""
        labels = np.array(self.labels, np.int64)
        first = np.searchsorted(labels, lows[lows != INT64_MIN], "right") - 1
        last = np.searchsorted(labels, highs[highs != INT64_MAX])
        used = np.union1d(first, last).tolist()
        self.constants = [self.constants[i] for i in used]
        self.labels = [self.labels[i] for i in used]
        self._used = len(used)
        self._places = self._keys = None

    def _labels_in_gaps(self, gaps: Counter[int]) -> list[int] | None:
        """Labels for so many new constants before each known one; None if one has no room."""
        if not self.labels:
            return None
        found: list[int] = []
        for gap, count in gaps.items():
            inside = 0 < gap < len(self.labels)
            below = self.labels[gap - 1] if gap else self.labels[0] - (count + 1) * _APART
            above = self.labels[gap] if inside else below + (count + 1) * _APART
            apart = (above - below) // (count + 1)
            if apart < _ROOM or below < -_FARTHEST or above > _FARTHEST:
                return None
            found += [below + apart * (1 + i) for i in range(count)]
        return found

    def _knows(self, constant: Key) -> bool:
        at = bisect_left(self.constants, constant)
        return at < len(self.constants) and bool(self.constants[at] == constant)

    def _reachable(self, constant: Key) -> bool:
        """Whether a value could be there: decimals have 128 bits, constants any number."""
        return isinstance(constant, bytes) or -_WIDE <= constant < _WIDE

    def bounds(self, interval: Interval) -> tuple[int, int]:
        """The keys of an interval, first and last; its constants must be known."""
        low, high = INT64_MIN, INT64_MAX
        if interval.low is not None:
            key = ordered_constant(interval.low, self.type)
            if self._reachable(key):
                low = self._label(key) + (0 if interval.low_closed else 1)
            elif cast(int, key) > 0:
                return 0, -1
        if interval.high is not None:
            key = ordered_constant(interval.high, self.type)
            if self._reachable(key):
                high = self._label(key) - (0 if interval.high_closed else 1)
            elif cast(int, key) < 0:
                return 0, -1
        return low, high

    def _label(self, key: Key) -> int:
        return self.labels[bisect_left(self.constants, key)]

    def keys(self, column: pa.Array) -> tuple[Ints, Flags]:
        """A column's keys, and which of them are not NULL."""
        if self._keys is None:
            # by place among the constants: 2i is right below constant i, 2i + 1 is constant i
            self._keys = np.full(2 * len(self.labels) + 1, INT64_MIN, np.int64)
            self._keys[1::2] = self.labels
            self._keys[2::2] = self._keys[1::2] + 1
        if self.type == "string":
            codes, values = dictionary_codes(column)
            found = _search_strings(*string_bytes(values), *self._searchable())
            return np.append(self._keys[found], 0)[codes], codes >= 0
        found = _search_wide(*wide_words(column, self.type), *self._searchable())
        return self._keys[found], valid_flags(column)

    def _searchable(self) -> tuple[Any, ...]:
        if self._places is None:
            if self.type == "string":
                ends = np.cumsum([0, *map(len, self.constants)], dtype=np.int64)
                self._places = ends, np.frombuffer(b"".join(self.constants), np.uint8)
            else:
                words = np.array([split_wide(c) for c in self.constants], np.int64).reshape(-1, 2)
                self._places = tuple(np.ascontiguousarray(words[:, i]) for i in (0, 1))
        return self._places


Domain = Direct | Labelled


def domain_of(type_: str) -> Domain:
    return Labelled(type_) if type_ == "string" or is_wide_decimal(type_) else Direct(type_)


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
