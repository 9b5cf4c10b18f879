"""The columns of a stream's tuples by number: appended in batches, taken in any order.

Batches are merged as they come, each with those before that are not longer, so that there are few
of them however many were appended.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kernels.jit import Ints


class TupleStore:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._first = 0  # number of the first tuple that is still here
        self.count = 0  # tuples ever appended

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

    def take(self, numbers: Ints) -> pa.Table:
        """The tuples of these numbers, in this order."""
        if not self._batches:
            return self._schema.empty_table()
        table = pa.Table.from_batches(self._batches, self._schema)
        return table.take(pa.array(np.asarray(numbers) - self._first))
