"""Buckets of an attribute's keys: comparison regions, as many as fit into a byte.

The constants that queries compare an attribute with cut its domain. As long as there are few, each
piece is a bucket of its own: no predicate tells two of its values apart. Beyond that, buckets are
quantiles of the cuts, so that few cuts lie inside any of them; constants that many queries share
stay cuts. One more bucket, the last, is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.kernels.columns import INT64_MAX, INT64_MIN
from penstock.kernels.jit import BYTES, FLAGS, INT, INTS, Bytes, Flags, Ints, kernel

BUCKETS = 96
NULL_BUCKET = BUCKETS - 1
_MOST_EDGES = BUCKETS - 2
_CELLS = 2048


@dataclass(frozen=True, slots=True)
class Bins:
    """Bucket b holds the keys from edge b - 1 up to, not including, edge b."""

    edges: Ints  # sorted, distinct
    exact: bool  # every cut is an edge
    cells: Bytes  # how many edges lie at or below the start of each cell of equal width
    shift: int  # log2 of the width

    @property
    def lows(self) -> Ints:
        """The first key of every bucket but NULL's."""
        return np.concatenate([[INT64_MIN], self.edges])

    @property
    def highs(self) -> Ints:
        return np.concatenate([self.edges - 1, [INT64_MAX]])

    def has_cuts(self, lows: Ints, highs: Ints) -> bool:
        """Whether predicates between such keys begin and end at edges."""
        return bool(np.isin(_cuts(lows, highs), self.edges).all())


def bins_for(lows: Ints, highs: Ints) -> Bins:
    """Bins for predicates that hold from a key of `lows` to one of `highs`."""
    cuts = np.sort(_cuts(lows, highs))
    edges = np.unique(cuts)
    exact = edges.size <= _MOST_EDGES
    if not exact:
        at = np.arange(1, _MOST_EDGES + 1) * cuts.size // (_MOST_EDGES + 1)
        edges = np.unique(cuts[at])
    return Bins(edges, exact, *_cells(edges))


def _cuts(lows: Ints, highs: Ints) -> Ints:
    return np.concatenate([lows[lows != INT64_MIN], highs[highs != INT64_MAX] + 1])


def _cells(edges: Ints) -> tuple[Bytes, int]:
    """Cells between the first and the last edge, to find buckets without a search."""
    if not edges.size:
        return np.zeros(_CELLS + 1, np.uint8), 0
    span = int(edges[-1]) - int(edges[0])
    shift = max(0, span.bit_length() - (_CELLS - 1).bit_length())
    within = edges.astype(np.uint64) - edges[:1].astype(np.uint64)
    offsets = np.arange(_CELLS, dtype=np.uint64) << np.uint64(shift)
    offsets = np.append(np.minimum(offsets, within[-1]), within[-1])
    return np.searchsorted(within, offsets, "right").astype(np.uint8), shift


def find_buckets(bins: Bins, keys: Ints, valid: Flags) -> Bytes:
    """Each key's bucket."""
    return _find_buckets(keys, valid, bins.edges, bins.cells, bins.shift)


@kernel(INTS, FLAGS, INTS, BYTES, INT)
def _find_buckets(keys: Ints, valid: Flags, edges: Ints, cells: Bytes, shift: int) -> Bytes:
    found = np.empty(keys.size, np.uint8)
    count = edges.size
    if count == 0:
        for i in range(keys.size):
            found[i] = 0 if valid[i] else NULL_BUCKET
        return found
    first, last = edges[0], edges[count - 1]
    for i in range(keys.size):
        key = keys[i]
        if not valid[i]:
            found[i] = NULL_BUCKET
        elif key < first:
            found[i] = 0
        elif key >= last:
            found[i] = count
        else:
            cell = np.int64((np.uint64(key) - np.uint64(first)) >> np.uint64(shift))
            low, high = np.int64(cells[cell]), np.int64(cells[cell + 1])
            while low < high:
                middle = (low + high) >> 1
                if edges[middle] <= key:
                    low = middle + 1
                else:
                    high = middle
            found[i] = low
    return found
