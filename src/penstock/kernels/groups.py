"""Dense numbers for rows with equal values: groups of a GROUP BY, cells of a window grid.

`number_pairs` is the one hash table of the kernels. It numbers distinct pairs of integers within
each segment of its input, numbers growing over all segments; so an entry left by an earlier segment
is known by its small number, and the table needs no clearing between thousands of short segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.kernels.columns import (
    dictionary_codes,
    is_string,
    is_wide_decimal,
    ordered_keys,
    valid_flags,
)
from penstock.kernels.jit import INTS, Ints, inner, kernel


@dataclass(frozen=True, slots=True)
class Groups:
    """Each row's group, and one row of each group."""

    ids: Ints
    rows: Ints


@inner
def _hash(a: int, b: int) -> np.int64:
    mixed = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(b)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    # the high bits of a product depend on all bits below: fold them down, where the table looks
    return np.int64((mixed ^ (mixed >> np.uint64(32))) >> np.uint64(1))


@kernel(INTS, INTS, INTS)
def number_pairs(offsets: Ints, a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Number the distinct (a, b) of each segment; also the index where each first occurs."""
    ids = np.empty(a.size, np.int64)
    firsts = np.empty(a.size, np.int64)
    size = 1024
    table = np.full(size, -1, np.int64)
    count = 0
    for segment in range(offsets.size - 1):
        begin = count
        for i in range(offsets[segment], offsets[segment + 1]):
            place = _hash(a[i], b[i]) & (size - 1)
            while True:
                entry = table[place]
                if entry < begin:
                    table[place] = count
                    firsts[count] = i
                    ids[i] = count
                    count += 1
                    break
                first = firsts[entry]
                if a[first] == a[i] and b[first] == b[i]:
                    ids[i] = entry
                    break
                place = (place + 1) & (size - 1)
            if (count - begin) * 2 > size:
                size *= 4
                table = np.full(size, -1, np.int64)
                for entry in range(begin, count):
                    place = _hash(a[firsts[entry]], b[firsts[entry]]) & (size - 1)
                    while table[place] >= 0:
                        place = (place + 1) & (size - 1)
                    table[place] = entry
    return ids, firsts[:count].copy()


def group_rows(batch: pa.RecordBatch, keys: Sequence[str], types: Mapping[str, str]) -> Groups:
    """Group rows by key columns as Spark does: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0.

    Without keys all rows are one group.
    """
    whole = np.array([0, batch.num_rows], np.int64)
    ids = np.zeros(batch.num_rows, np.int64)
    firsts = np.arange(min(1, batch.num_rows))
    for name in keys:
        for part in _key_parts(batch.column(name), types[name]):
            ids, firsts = number_pairs(whole, ids, part)
    return Groups(ids, firsts)


def _key_parts(column: pa.Array, type_: str) -> tuple[Ints, ...]:
    """Integer columns that are equal exactly where the key is equal."""
    if is_string(column) or type_ in ("string", "binary") or is_wide_decimal(type_):
        return (dictionary_codes(column)[0],)
    keys, valid = ordered_keys(column, type_), valid_flags(column)
    if valid.all():
        return (keys,)
    return valid.astype(np.int64), np.where(valid, keys, 0)
