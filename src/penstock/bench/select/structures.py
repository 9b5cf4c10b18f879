"""Many predicates on one attribute: the construct of the paper and its rivals, each at its best.

Every predicate is an interval, both ends included. For each value a structure writes a bitmap of
the predicates that hold, as the next attribute would need it.

asc             the constants cut the domain into regions, each with its bitmap (Lee and Lee): a
                binary search, then the bitmap as it is
grouped filter  hash for equalities; for bounds and ranges, sorted ends (CACQ): the bits of the
                predicates that begin at or below the value are set one by one, those of the ones
                that end below it cleared
red-black tree  of the lower ends (PSoup), with the highest upper end of each subtree, so that a
                walk leaves out what cannot match
linked list     every predicate in turn
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from penstock.kernels.jit import INT, INTS, WORD_ROWS, Ints, Words, inner, kernel

Match = Callable[[Ints], Words]

_DEEPEST = 64  # levels of a red-black tree with 2**31 nodes


def structures(low: Ints, high: Ints) -> dict[str, Match]:
    """Each structure, built for these predicates."""
    return {
        "asc": asc(low, high),
        "grouped filter": grouped_filter(low, high),
        "red-black tree": partial(_walk_tree, low, high, *grow_tree(low, high)),
        "linked list": partial(_test_all, low, high),
    }


def asc(low: Ints, high: Ints) -> Match:
    constants = np.unique(np.concatenate([low, high]))
    # a point in every region: twice a constant is the constant, odd numbers are gaps
    points = np.append(np.repeat(2 * constants, 2) - [1, 0] * constants.size, 2 * constants[-1] + 1)
    holds = (2 * low <= points[:, None]) & (points[:, None] <= 2 * high)
    bits = np.zeros((points.size, 64 * _width(low.size)), np.uint8)
    bits[:, : low.size] = holds
    bitmaps = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    return partial(_look_up, constants, bitmaps)


def grouped_filter(low: Ints, high: Ints) -> Match:
    begins, ends = np.argsort(low, kind="stable"), np.argsort(high, kind="stable")
    if np.array_equal(low, high):
        return partial(_probe_hash, *_fill_hash(low[begins]), begins)
    return partial(_set_and_clear, low[begins], begins, high[ends], ends)


def _width(predicates: int) -> int:
    return -(-predicates // 64)


@inner
def _count_below(sorted_values: Ints, value: int) -> int:
    """How many are below the value; the halving has no branch to mispredict."""
    begin, size = 0, sorted_values.size
    while size > 0:
        half = (size + 1) >> 1
        begin += half if sorted_values[begin + half - 1] < value else 0
        size -= half
    return begin


@inner
def _bit(predicate: int) -> np.uint64:
    return np.uint64(1) << np.uint64(predicate & 63)


@kernel(INTS, WORD_ROWS, INTS)
def _look_up(constants: Ints, bitmaps: Words, values: Ints) -> Words:
    result = np.empty((values.size, bitmaps.shape[1]), np.uint64)
    for i in range(values.size):
        place = _count_below(constants, values[i])
        equal = place < constants.size and constants[place] == values[i]
        region = 2 * place + (1 if equal else 0)
        for w in range(result.shape[1]):
            result[i, w] = bitmaps[region, w]
    return result


@inner
def _slot(value: int, mask: int) -> int:
    return ((value * 0x1E3779B97F4A7C15) >> 20) & mask


@kernel(INTS)
def _fill_hash(sorted_values: Ints) -> tuple[Ints, Ints, Ints]:
    """Open addressing: key, first and after its last place among the sorted values."""
    size = 4
    while size < 4 * sorted_values.size:
        size *= 2
    keys, first, after = (
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
    )
    for place in range(sorted_values.size):
        value = sorted_values[place]
        at = _slot(value, size - 1)
        while after[at] > 0 and keys[at] != value:
            at = (at + 1) & (size - 1)
        if after[at] == 0:
            keys[at], first[at] = value, place
        after[at] = place + 1
    return keys, first, after


@kernel(INTS, INTS, INTS, INTS, INTS)
def _probe_hash(keys: Ints, first: Ints, after: Ints, predicates: Ints, values: Ints) -> Words:
    result = np.zeros((values.size, (predicates.size + 63) // 64), np.uint64)
    mask = keys.size - 1
    for i in range(values.size):
        at = _slot(values[i], mask)
        while after[at] > 0 and keys[at] != values[i]:
            at = (at + 1) & mask
        for place in range(first[at], after[at]):
            predicate = predicates[place]
            result[i, predicate >> 6] |= _bit(predicate)
    return result


@kernel(INTS, INTS, INTS, INTS, INTS)
def _set_and_clear(begins: Ints, begin_of: Ints, ends: Ints, end_of: Ints, values: Ints) -> Words:
    """Whatever ends below a value has begun below it, so its bit is there to be cleared."""
    result = np.zeros((values.size, (begins.size + 63) // 64), np.uint64)
    for i in range(values.size):
        for place in range(_count_below(begins, values[i] + 1)):
            result[i, begin_of[place] >> 6] |= _bit(begin_of[place])
        for place in range(_count_below(ends, values[i])):
            result[i, end_of[place] >> 6] &= ~_bit(end_of[place])
    return result


@inner
def _rotate(near: Ints, far: Ints, parent: Ints, root: int, node: int) -> int:
    """The node's far child takes its place and it becomes that one's near child; the new root."""
    nil = near.size - 1
    child = far[node]
    far[node] = near[child]
    if near[child] != nil:
        parent[near[child]] = node
    above = parent[node]
    parent[child] = above
    if above == nil:
        root = child
    elif near[above] == node:
        near[above] = child
    else:
        far[above] = child
    near[child] = node
    parent[node] = child
    return root


@kernel(INTS, INTS)
def grow_tree(low: Ints, high: Ints) -> tuple[Ints, Ints, Ints, int]:
    """Insert one predicate after the other; children, highest upper end of each subtree, root."""
    nil = low.size
    left, right = np.full(nil + 1, nil), np.full(nil + 1, nil)
    parent = np.full(nil + 1, nil)
    red = np.zeros(nil + 1, np.bool_)
    root = nil
    for new in range(nil):
        above, below = nil, root
        while below != nil:
            above = below
            below = left[below] if low[new] < low[below] else right[below]
        parent[new] = above
        if above == nil:
            root = new
        elif low[new] < low[above]:
            left[above] = new
        else:
            right[above] = new
        red[new] = True
        node = new
        while red[parent[node]]:
            above = parent[node]
            top = parent[above]
            if above == left[top]:
                near, far = left, right
            else:
                near, far = right, left
            uncle = far[top]
            if red[uncle]:
                red[above] = red[uncle] = False
                red[top] = True
                node = top
                continue
            if node == far[above]:
                root = _rotate(near, far, parent, root, above)
                node, above = above, node
            red[above] = False
            red[top] = True
            root = _rotate(far, near, parent, root, top)
        red[root] = False
    most = np.append(high, np.int64(-1))
    for node in range(nil):
        above = parent[node]
        while above != nil and most[above] < high[node]:
            most[above] = high[node]
            above = parent[above]
    return left, right, most, root


@kernel(INTS, INTS, INTS, INTS, INTS, INT, INTS)
def _walk_tree(
    low: Ints, high: Ints, left: Ints, right: Ints, most: Ints, root: int, values: Ints
) -> Words:
    nil = low.size
    result = np.zeros((values.size, (nil + 63) // 64), np.uint64)
    waiting = np.empty(_DEEPEST, np.int64)
    for i in range(values.size):
        value = values[i]
        waiting[0] = root
        count = 1
        while count > 0:
            count -= 1
            node = waiting[count]
            while node != nil and most[node] >= value:
                if low[node] <= value:
                    if high[node] >= value:
                        result[i, node >> 6] |= _bit(node)
                    waiting[count] = right[node]
                    count += 1
                node = left[node]
    return result


@kernel(INTS, INTS, INTS)
def _test_all(low: Ints, high: Ints, values: Ints) -> Words:
    result = np.zeros((values.size, (low.size + 63) // 64), np.uint64)
    for i in range(values.size):
        value = values[i]
        for w in range(result.shape[1]):
            word = np.uint64(0)
            first = 64 * w
            for predicate in range(first, min(first + 64, low.size)):
                holds = np.uint64((low[predicate] <= value) & (value <= high[predicate]))
                word |= holds << np.uint64(predicate - first)
            result[i, w] = word
    return result
