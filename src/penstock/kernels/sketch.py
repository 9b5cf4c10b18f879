"""A sketch of delays: weights in buckets whose width grows with the delay (1.6% of it).

Bucket 0 holds delays below 2^FIRST_BIT us (about a millisecond, Spark's resolution); each further
octave is cut into 2^SUB_BITS equal buckets, up to two years. Inside a bucket tuples count as evenly
spread.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.jit import DOUBLE, DOUBLES, Doubles, Ints, inner, kernel

FIRST_BIT = 10
SUB_BITS = 6
LAST_BIT = 46
BUCKETS = ((LAST_BIT - FIRST_BIT) << SUB_BITS) + 1


def _edges() -> Doubles:
    octaves = 2.0 ** np.arange(FIRST_BIT, LAST_BIT)
    steps = 1 + np.arange(1 << SUB_BITS) / (1 << SUB_BITS)
    return np.concatenate([[0.0], np.outer(octaves, steps).ravel(), [2.0**LAST_BIT]])


EDGES = _edges()  # bucket i holds EDGES[i] <= delay < EDGES[i + 1]
EDGES.flags.writeable = False


def bucket_of(delay_us: float) -> int:
    """The bucket of one delay.

    >>> bucket_of(0), bucket_of(1024), bucket_of(2**46)
    (0, 1, 2304)
    """
    return int(np.clip(np.searchsorted(EDGES, delay_us, "right") - 1, 0, BUCKETS - 1))


def delay_for(weights: Doubles, ratio: float, spread_us: float) -> float:
    """The smallest delay that at most `ratio` of the tuples exceed.

    While the punctuation stands still for `spread_us`, a tuple that comes u later may be u later:
    the share is taken as the mean over delays from the answer to `spread_us` above it.
    """
    return float(_delay_for(weights, EDGES, ratio, max(float(spread_us), 0.0)))


def share_above(weights: Doubles, delay_us: float, spread_us: float = 0.0) -> float:
    """The share of tuples whose delay exceeds `delay_us`, taken as in `delay_for`."""
    above, beyond = _tails(weights, EDGES)
    return float(_mean_above(above, beyond, EDGES, delay_us, max(float(spread_us), 0.0)))


def quantiles(weights: Doubles, shares: tuple[float, ...]) -> list[float]:
    """Delays that these shares of the tuples do not exceed; zeros if there are no tuples.

    >>> weights = np.zeros(BUCKETS)
    >>> weights[bucket_of(1_000_000)] = 5
    >>> round(quantiles(weights, (0.5,))[0] / 1_000_000, 2)
    1.0
    """
    return [delay_for(weights, 1.0 - share, 0.0) for share in shares]


def mean_wait(weights: Doubles, lag_us: float) -> float:
    """How long a tuple waits on average for a punctuation that follows the clock by `lag_us`."""
    total = float(weights.sum())
    if total == 0.0:
        return 0.0
    middles = (EDGES[:-1] + EDGES[1:]) / 2
    return float(np.maximum(lag_us - middles, 0.0) @ weights / total)


def sparse(weights: Doubles | Ints) -> list[list[float]]:
    """[bucket, weight] of the buckets that are not empty."""
    return [[int(i), float(weights[i])] for i in np.flatnonzero(weights)]


def dense(pairs: list[list[float]]) -> Doubles:
    weights = np.zeros(BUCKETS)
    for bucket, weight in pairs:
        weights[int(bucket)] += weight
    return weights


@kernel(DOUBLES, DOUBLES)
def _tails(weights: Doubles, edges: Doubles) -> tuple[Doubles, Doubles]:
    """At each edge: the share of tuples above it, and the integral of that share beyond it."""
    above = np.zeros(edges.size)
    beyond = np.zeros(edges.size)
    total = weights.sum()
    if total > 0.0:
        for i in range(weights.size - 1, -1, -1):
            above[i] = above[i + 1] + weights[i] / total
            width = edges[i + 1] - edges[i]
            beyond[i] = beyond[i + 1] + (above[i] + above[i + 1]) / 2 * width
    return above, beyond


@inner
def _at(above: Doubles, beyond: Doubles, edges: Doubles, delay: float, integral: bool) -> float:
    """The share above a delay, or its integral, between two edges."""
    if delay >= edges[-1]:
        return 0.0
    i = np.searchsorted(edges, delay, "right") - 1
    part = (delay - edges[i]) / (edges[i + 1] - edges[i])
    share: float = above[i] + (above[i + 1] - above[i]) * part
    if not integral:
        return share
    rest: float = beyond[i + 1] + (share + above[i + 1]) / 2 * (edges[i + 1] - delay)
    return rest


@inner
def _mean(above: Doubles, beyond: Doubles, edges: Doubles, delay: float, spread: float) -> float:
    if spread < 1.0:
        return _at(above, beyond, edges, delay, False)
    low = _at(above, beyond, edges, delay, True)
    return (low - _at(above, beyond, edges, delay + spread, True)) / spread


@kernel(DOUBLES, DOUBLES, DOUBLES, DOUBLE, DOUBLE)
def _mean_above(
    above: Doubles, beyond: Doubles, edges: Doubles, delay: float, spread: float
) -> float:
    return _mean(above, beyond, edges, delay, spread)


@kernel(DOUBLES, DOUBLES, DOUBLE, DOUBLE)
def _delay_for(weights: Doubles, edges: Doubles, ratio: float, spread: float) -> float:
    above, beyond = _tails(weights, edges)
    if _mean(above, beyond, edges, 0.0, spread) <= ratio:
        return 0.0
    low, high = 0, edges.size - 1  # the mean share exceeds the ratio at edge low, not at edge high
    while high - low > 1:
        middle = (low + high) // 2
        if _mean(above, beyond, edges, edges[middle], spread) > ratio:
            low = middle
        else:
            high = middle
    more = _mean(above, beyond, edges, edges[low], spread)
    less = _mean(above, beyond, edges, edges[high], spread)
    found: float = edges[low] + (edges[high] - edges[low]) * (more - ratio) / (more - less)
    return found
