"""Join keys as 64-bit hashes: equal keys have equal hashes in every batch and every process.

A key of one column whose values fit 64 bits is put through a bijection, so that equal hashes mean
equal keys (`exact`). Any other key is a true hash, and `same_keys` tells on the rows themselves.
Equality is that of Spark's joins: NaN equals NaN, -0.0 equals 0.0, strings by their bytes.

All bits of a hash are mixed. The high half picks the bucket, the low half the place in a table:
keys that share a bucket are spread over all of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.kernels.columns import (
    dictionary_codes,
    is_string,
    is_wide_decimal,
    ordered_keys,
    string_bytes,
    valid_flags,
    wide_words,
)
from penstock.kernels.jit import (
    BYTES,
    INT,
    INTS,
    SMALL_INTS,
    Bytes,
    Flags,
    Ints,
    SmallInts,
    inner,
    kernel,
)


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """The keys of a batch; known: no column is NULL; exact: equal hashes mean equal keys."""

    hashes: Ints
    known: Flags
    exact: bool


def join_keys(columns: Sequence[pa.Array]) -> JoinKeys:
    """The keys that the rows of these columns make."""
    first, *others = [word for column in columns for word in _words(column)]
    known = np.logical_and.reduce([valid_flags(column) for column in columns])
    return JoinKeys(
        hashes=reduce(_joined, others, _mixed(first)),
        known=known,
        exact=not others and not _is_bytes(columns[0]),
    )


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> Flags:
    """Row by row: whether two keys are equal; NULL equals nothing."""
    pairs = zip(left, right, strict=True)
    same: Flags = np.logical_and.reduce([_same(a, b) for a, b in pairs])
    return same


def bucket_of(hashes: Ints, buckets: int) -> SmallInts:
    """The bucket of each key."""
    return _bucket_of(hashes, buckets)


def split_by_bucket(bucket: SmallInts, buckets: int) -> tuple[Ints, Ints]:
    """Rows ordered by bucket, those of a bucket as they came; and where each bucket begins.

    >>> order, offsets = split_by_bucket(np.array([1, 0, 1], np.int32), 2)
    >>> order.tolist(), offsets.tolist()
    ([1, 0, 2], [0, 1, 3])
    """
    return _split_by_bucket(bucket, buckets)


def _words(column: pa.Array) -> tuple[Ints, ...]:
    """Integer columns that are equal where the key is equal; for bytes seldom elsewhere."""
    if _is_bytes(column):
        return (_hashes_of_bytes(column),)
    type_ = _type_of(column)
    return wide_words(column, type_) if is_wide_decimal(type_) else (ordered_keys(column, type_),)


def _hashes_of_bytes(column: pa.Array) -> Ints:
    if isinstance(column, pa.DictionaryArray):
        codes, values = dictionary_codes(column)
        # code -1 takes the last element
        return np.append(_hashes_of_bytes(values), 0)[codes]
    return _hash_bytes(*string_bytes(column))


def _same(left: pa.Array, right: pa.Array) -> Flags:
    if _is_bytes(left):
        same = pc.equal(_plain_bytes(left), _plain_bytes(right))
        return np.asarray(pc.fill_null(same, False).to_numpy(zero_copy_only=False))
    words = zip(_words(left), _words(right), strict=True)
    equal = [a == b for a, b in words]
    same_words: Flags = np.logical_and.reduce([valid_flags(left), valid_flags(right), *equal])
    return same_words


def _plain_bytes(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())


def _is_bytes(column: pa.Array) -> bool:
    type_ = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    return is_string(column) or pa.types.is_binary(type_) or pa.types.is_large_binary(type_)


def _type_of(column: pa.Array) -> str:
    """A type whose keys are those of the column in any batch, however wide its numbers are."""
    type_ = column.type.value_type if isinstance(column, pa.DictionaryArray) else column.type
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    for name, is_of in _TYPES:
        if is_of(type_):
            return name
    raise PenstockError(f"a column of Arrow type {type_} cannot be a join key")


_TYPES = (
    ("bigint", pa.types.is_integer),
    ("double", pa.types.is_floating),
    ("boolean", pa.types.is_boolean),
    ("date", pa.types.is_date),
    ("timestamp", pa.types.is_timestamp),
)


@inner
def _mix(word: int) -> np.int64:
    """The finaliser of splitmix64: a bijection, in which each bit depends on all bits."""
    bits = np.uint64(word)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(bits ^ (bits >> np.uint64(31)))


@kernel(INTS)
def _mixed(words: Ints) -> Ints:
    hashes = np.empty(words.size, np.int64)
    for i in range(words.size):
        hashes[i] = _mix(words[i])
    return hashes


@kernel(INTS, INTS)
def _joined(hashes: Ints, words: Ints) -> Ints:
    joined = np.empty(hashes.size, np.int64)
    for i in range(hashes.size):
        joined[i] = _mix(hashes[i] ^ words[i])
    return joined


@kernel(INTS, BYTES)
def _hash_bytes(offsets: Ints, data: Bytes) -> Ints:
    """Hashes of byte strings, eight bytes at a time."""
    hashes = np.empty(offsets.size - 1, np.int64)
    for i in range(hashes.size):
        begin, end = offsets[i], offsets[i + 1]
        hash_ = end - begin
        for at in range(begin, end, 8):
            word = np.int64(0)
            for k in range(min(8, end - at)):
                word |= np.int64(data[at + k]) << (8 * k)
            hash_ = _mix(hash_ ^ word)
        hashes[i] = hash_
    return hashes


@kernel(INTS, INT)
def _bucket_of(hashes: Ints, buckets: int) -> SmallInts:
    found = np.empty(hashes.size, np.int32)
    for i in range(hashes.size):
        high = (hashes[i] >> 32) & 0xFFFFFFFF
        found[i] = (high * buckets) >> 32
    return found


@kernel(SMALL_INTS, INT)
def _split_by_bucket(bucket: SmallInts, buckets: int) -> tuple[Ints, Ints]:
    offsets = np.zeros(buckets + 1, np.int64)
    for i in range(bucket.size):
        offsets[bucket[i] + 1] += 1
    for i in range(buckets):
        offsets[i + 1] += offsets[i]
    places = offsets.copy()
    order = np.empty(bucket.size, np.int64)
    for i in range(bucket.size):
        order[places[bucket[i]]] = i
        places[bucket[i]] += 1
    return order, offsets
