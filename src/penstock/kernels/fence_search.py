"""In which fences points lie: the kernel that reads the grid of `fence_grid`.

A ray to the right is compared with the edges of the point's cell, a height at an end of an edge
counting as above it. The sign of

    (x1 − x)(y2 − y) − (y1 − y)(x2 − x)

tells on which side of an edge the point is. Rounded, it is right if it exceeds 4 ε of the sum of
both products' magnitudes (Shewchuk), unless these are so small or large that they lose bits or
overflow. Where it is not certain the pair is handed back undecided, as ~fence. A point is certainly
on an edge that has an end there, or that is parallel to an axis.

Points go through in blocks: first all find their cells, so that waiting for memory overlaps.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.fence_grid import (
    COUNT,
    FENCE,
    GRID,
    LAST,
    LEVELS,
    NEXT,
    PARTS,
    SIDE,
    SIDE_BITS,
    X0,
    X1,
    X_SCALE,
    Y0,
    Y1,
    Y_SCALE,
    Grid,
)
from penstock.kernels.jit import (
    DOUBLE_ROWS,
    DOUBLES,
    FLAG,
    Doubles,
    Flags,
    Ints,
    SmallInts,
    inner,
    kernel,
    prefetch,
)

_OUTSIDE, _INSIDE, _ON_EDGE, _UNDECIDED = range(4)
_ERROR = 4 * 2.0**-53
_SMALLEST, _LARGEST = 1e-280, 1e300
_BLOCK = 256
_TOP = SIDE_BITS * (LEVELS - 1)


@inner
def _quick_place(
    vertices: Doubles, words: SmallInts, start: int, end: int, parity: int, x: float, y: float
) -> int:
    """Where a point is, by the parts of its cell; without branches, since none can be foreseen.

    Undecided as well where the point may be on an edge.
    """
    unsure = False
    for i in range(start, end):
        part = int(words[i])
        if part < 0:
            parity ^= vertices[~part, 1] <= y
            continue
        y1, y2 = vertices[part, 1] - y, vertices[part + 1, 1] - y
        x1, x2 = vertices[part, 0] - x, vertices[part + 1, 0] - x
        left, right = x1 * y2, y1 * x2
        size, cross = abs(left) + abs(right), left - right
        crossed = (y1 > 0) != (y2 > 0)
        certain = (abs(cross) > _ERROR * size) & (size > _SMALLEST) & (size < _LARGEST)
        unsure |= (crossed & (not certain)) | (y1 == 0) | (y2 == 0)
        parity ^= crossed & ((cross > 0) == (y2 > y1))
    return _UNDECIDED if unsure else parity


@inner
def _place(
    vertices: Doubles, words: SmallInts, start: int, end: int, parity: int, x: float, y: float
) -> int:
    """The same with care."""
    for i in range(start, end):
        part = int(words[i])
        if part < 0:
            parity ^= vertices[~part, 1] <= y
            continue
        x1, y1 = vertices[part, 0], vertices[part, 1]
        x2, y2 = vertices[part + 1, 0], vertices[part + 1, 1]
        if (x1 == x and y1 == y) or (x2 == x and y2 == y):
            return _ON_EDGE
        across, up = min(x1, x2) <= x <= max(x1, x2), min(y1, y2) <= y <= max(y1, y2)
        if across and up and (x1 == x2 or y1 == y2):
            return _ON_EDGE
        if (y1 > y) == (y2 > y) or max(x1, x2) < x:
            continue
        left, right = (x1 - x) * (y2 - y), (y1 - y) * (x2 - x)
        size, cross = abs(left) + abs(right), left - right
        if size <= _SMALLEST:
            return _UNDECIDED
        if across and not (abs(cross) > _ERROR * size and size < _LARGEST):
            return _UNDECIDED
        parity ^= (cross > 0) == (y2 > y1)
    return parity


@inner
def _unit(value: float, origin: float, scale: float) -> int:
    return min(int((value - origin) * scale), LAST)


@inner
def _step(cells: SmallInts, node: int, shift: int, across: int, up: int) -> int:
    """What a node holds in the cell of a point."""
    column, row = (across >> shift) & (SIDE - 1), (up >> shift) & (SIDE - 1)
    return int(cells[node, (row << SIDE_BITS) | column])


@kernel(GRID, DOUBLES, DOUBLE_ROWS, DOUBLES, DOUBLES, DOUBLES, FLAG)
def locate_points(
    grid: Grid,
    frame: Doubles,
    vertices: Doubles,
    domain: Doubles,
    xs: Doubles,
    ys: Doubles,
    with_edges: bool,
) -> tuple[Ints, SmallInts, Flags, int]:
    """Offsets by row; fences, the undecided as ~fence; rows outside the domain; how many undecided.

    Fences that cover whole nodes are looked up again only where a point's way meets any.
    """
    cells, covers, words, _ = grid
    x0, y0, x_scale, y_scale = frame[X0], frame[Y0], frame[X_SCALE], frame[Y_SCALE]
    x_end, y_end = frame[X1], frame[Y1]
    rows = xs.size
    offsets = np.zeros(rows + 1, np.int64)
    unknown = np.zeros(rows, np.bool_)
    found = np.empty(max(1024, 2 * rows), np.int32)
    heads = np.empty(_BLOCK, np.int64)
    covered = np.empty(_BLOCK, np.bool_)
    used, undecided = 0, 0
    for begin in range(0, rows, _BLOCK):
        end = min(begin + _BLOCK, rows)
        for row in range(begin, end):
            x, y = xs[row], ys[row]
            head, some = 0, False
            if x0 <= x <= x_end and y0 <= y <= y_end:
                across, up = _unit(x, x0, x_scale), _unit(y, y0, y_scale)
                head, shift = ~0, _TOP
                while head < 0:
                    some |= covers[~head] != 0
                    head = _step(cells, ~head, shift, across, up)
                    shift -= SIDE_BITS
                prefetch(words, head)
            elif not (domain[0] <= x <= domain[2] and domain[1] <= y <= domain[3]):
                unknown[row] = True
            heads[row - begin], covered[row - begin] = head, some
        for row in range(begin, end):
            head = heads[row - begin]
            if words[head + COUNT] > 1:
                part = int(words[head + PARTS])
                prefetch(vertices, 2 * (part ^ (part >> 63)))
        for row in range(begin, end):
            x, y = xs[row], ys[row]
            record = heads[row - begin]
            head, shift = ~0 if covered[row - begin] else 0, _TOP
            while True:
                while record != 0:
                    count, start = int(words[record + COUNT]), record + PARTS
                    end_part = start + (count >> 1)
                    result = _INSIDE
                    if count > 1:
                        result = _quick_place(vertices, words, start, end_part, count & 1, x, y)
                        if result == _UNDECIDED:
                            result = _place(vertices, words, start, end_part, count & 1, x, y)
                    if used == found.size:
                        more = np.empty(2 * used, np.int32)
                        more[:used] = found
                        found = more
                    fence = words[record + FENCE]
                    undecided += result == _UNDECIDED
                    found[used] = ~fence if result == _UNDECIDED else fence
                    used += (result != _OUTSIDE) & ((result != _ON_EDGE) | with_edges)
                    record = int(words[record + NEXT])
                if head >= 0:
                    break
                record = int(covers[~head])
                head = _step(cells, ~head, shift, _unit(x, x0, x_scale), _unit(y, y0, y_scale))
                shift -= SIDE_BITS
            offsets[row + 1] = used
    return offsets, found[:used].copy(), unknown, undecided
