"""The columns of a stream's tuples by number: appended in batches, taken in any order.

Batches are merged as they come, each with those before that are not longer, so that there are few
of them however many were appended.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.jit import Ints


class TupleStore:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._first = 0  # number of the first tuple that is still here
        self.count = 0  # tuples ever appended
        self.widest = 0  # bytes of the largest tuple ever appended

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self._batches)

    @property
    def held(self) -> int:
        """Tuples that are here, forgotten ones among them."""
        return self.count - self._first

    def append(self, batch: pa.RecordBatch) -> None:
        self.count += batch.num_rows
        merged = [batch.select(self._schema.names)]
        self.widest = max(self.widest, int(row_sizes(merged[0]).max(initial=0)))
        while self._batches and self._batches[-1].num_rows <= sum(b.num_rows for b in merged):
            merged.append(self._batches.pop())
        whole = pa.Table.from_batches(merged[::-1], self._schema).combine_chunks()
        self._batches += whole.to_batches()

    def drop_before(self, number: int) -> None:
        """Forget tuples with lower numbers; their memory goes when their batch is merged."""
        while self._batches and self._first < number:
            dead = min(number - self._first, self._batches[0].num_rows)
            self._first += dead
            self._batches[0] = self._batches[0].slice(dead)
            if not self._batches[0].num_rows:
                del self._batches[0]

    def sizes(self, numbers: Ints) -> Ints:
        """How many bytes each of these tuples has."""
        held = [row_sizes(batch) for batch in self._batches]
        sizes: Ints = np.concatenate([np.empty(0, np.int64), *held])[numbers - self._first]
        return sizes

    def take(self, numbers: Ints, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The tuples of these numbers, in this order; of all columns or of some.

        Batch by batch: Arrow would put the texts of all batches together first, which takes as long
        as there are tuples, and fails above 2 GB.
        """
        names = self._schema.names if names is None else names
        if not len(numbers) or not self._batches:
            return pa.RecordBatch.from_pylist([], self._schema).select(names)
        places = np.asarray(numbers) - self._first
        if len(self._batches) == 1:
            return self._batches[0].select(names).take(pa.array(places))
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        of = np.searchsorted(ends, places, side="right").astype(np.uint16)  # sorted by radix
        order = np.argsort(of, kind="stable")
        begins = np.searchsorted(of[order], np.arange(len(ends) + 1))
        taken = [
            batch.select(names).take(pa.array(places[order[begin:end]] - (last - batch.num_rows)))
            for batch, last, begin, end in zip(
                self._batches, ends, begins[:-1], begins[1:], strict=True
            )
            if begin < end
        ]
        whole = taken[0] if len(taken) == 1 else pa.concat_batches(taken)
        if (order[:-1] < order[1:]).all():
            return whole
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return whole.take(pa.array(back))


def row_sizes(batch: pa.RecordBatch) -> Ints:
    """How many bytes the values of each row have; it depends on nothing but the values.

    >>> row_sizes(pa.record_batch({"n": [1, 2], "s": ["a", None], "l": [["x", "yz"], []]})).tolist()
    [28, 16]
    """
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _sizes(column)
    return sizes


def _sizes(column: pa.Array) -> Ints:
    kind = column.type
    if _has_lengths(kind):
        return 4 + _filled(pc.binary_length(column))
    if pa.types.is_list(kind):
        lengths = _filled(pc.list_value_length(column))
        through = np.append(0, np.cumsum(_sizes(column.flatten())))
        end = np.cumsum(lengths)
        sizes: Ints = 4 + through[end] - through[end - lengths]
        return sizes
    return np.full(len(column), max(1, kind.bit_width // 8), np.int64)


def _filled(lengths: pa.Array) -> Ints:
    found: Ints = pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _has_lengths(type_: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_string(type_)
        or kinds.is_binary(type_)
        or kinds.is_large_string(type_)
        or kinds.is_large_binary(type_)
    )
