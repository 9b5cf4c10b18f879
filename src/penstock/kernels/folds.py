"""Fold values into numbered results: result `ids[i]` takes the value at `rows[i]`.

The same folds serve twice: rows into panes, then panes into the windows they belong to.
A result that got no valid value is told by its flag, count or row -1.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.jit import DOUBLES, FLAGS, INT, INTS, Doubles, Flags, Ints, kernel


@kernel(INTS, INTS, FLAGS, INT)
def fold_count(ids: Ints, rows: Ints, valid: Flags, size: int) -> Ints:
    """Number of valid values."""
    counts = np.zeros(size, np.int64)
    for i in range(ids.size):
        counts[ids[i]] += valid[rows[i]]
    return counts


@kernel(INTS, INTS, INTS, FLAGS, INT)
def fold_integers(
    ids: Ints, rows: Ints, values: Ints, valid: Flags, size: int
) -> tuple[Ints, Flags]:
    """Sums of valid integers; the caller has seen to it that none overflows."""
    sums, some = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    for i in range(ids.size):
        if valid[rows[i]]:
            sums[ids[i]] += values[rows[i]]
            some[ids[i]] = True
    return sums, some


@kernel(INTS, INTS, DOUBLES, FLAGS, INT)
def fold_doubles(
    ids: Ints, rows: Ints, values: Doubles, valid: Flags, size: int
) -> tuple[Doubles, Flags]:
    """Sums of valid doubles."""
    sums, some = np.zeros(size, np.float64), np.zeros(size, np.bool_)
    for i in range(ids.size):
        if valid[rows[i]]:
            sums[ids[i]] += values[rows[i]]
            some[ids[i]] = True
    return sums, some


@kernel(INTS, INTS, INTS, FLAGS, INT)
def fold_least(ids: Ints, rows: Ints, keys: Ints, valid: Flags, size: int) -> Ints:
    """The row of the least valid key, or -1. The greatest: give `~keys`, which orders backwards."""
    least = np.full(size, np.iinfo(np.int64).max, np.int64)
    best = np.full(size, -1, np.int64)
    for i in range(ids.size):
        row, result = rows[i], ids[i]
        if valid[row] and (keys[row] < least[result] or best[result] < 0):
            least[result] = keys[row]
            best[result] = row
    return best


@kernel(INTS, INTS, DOUBLES, FLAGS, INT)
def fold_moments(
    ids: Ints, rows: Ints, values: Doubles, valid: Flags, size: int
) -> tuple[Ints, Doubles, Doubles]:
    """Count, mean and sum of squared deviations, by Welford's update as Spark does it."""
    counts = np.zeros(size, np.int64)
    means, squares = np.zeros(size, np.float64), np.zeros(size, np.float64)
    for i in range(ids.size):
        row, result = rows[i], ids[i]
        if valid[row]:
            counts[result] += 1
            delta = values[row] - means[result]
            step = delta / counts[result]
            means[result] += step
            squares[result] += delta * (delta - step)
    return counts, means, squares


@kernel(INTS, INTS, INTS, DOUBLES, DOUBLES, INT)
def merge_moments(
    ids: Ints, rows: Ints, n: Ints, mean: Doubles, m2: Doubles, size: int
) -> tuple[Ints, Doubles, Doubles]:
    """Moments of unions, by the formula of Chan, Golub and LeVeque."""
    counts = np.zeros(size, np.int64)
    means, squares = np.zeros(size, np.float64), np.zeros(size, np.float64)
    for i in range(ids.size):
        row, result = rows[i], ids[i]
        if counts[result] == 0:
            counts[result], means[result], squares[result] = n[row], mean[row], m2[row]
        elif n[row] > 0:
            total = counts[result] + n[row]
            delta = mean[row] - means[result]
            step = delta / total
            means[result] += step * n[row]
            squares[result] += m2[row] + delta * step * counts[result] * n[row]
            counts[result] = total
    return counts, means, squares


@kernel(INTS, FLAGS)
def sum_magnitudes(values: Ints, valid: Flags) -> float:
    """Sum of absolute values, as a double: no sum of some of the values is larger."""
    total = 0.0
    for i in range(values.size):
        if valid[i]:
            total += abs(np.float64(values[i]))
    return total
