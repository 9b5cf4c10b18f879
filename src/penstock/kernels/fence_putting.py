"""Putting fences into the grid of `fence_grid`: edges are handed down to the cells they touch."""

from __future__ import annotations

import numpy as np

from penstock.kernels.fence_grid import (
    CELLS,
    COUNT,
    FENCE,
    GRID,
    LAST,
    LEVELS,
    LIVE,
    NEXT,
    NODES,
    PARTS,
    SIDE,
    SIDE_BITS,
    SOURCE,
    WORDS,
    X0,
    X_SCALE,
    Y0,
    Y_SCALE,
    Grid,
)
from penstock.kernels.jit import (
    CHANGED_SMALL_INT_ROWS,
    CHANGED_SMALL_INTS,
    DOUBLE_ROWS,
    DOUBLES,
    INT,
    INTS,
    SMALL_INTS,
    Doubles,
    Ints,
    SmallInts,
    inner,
    kernel,
)

LARGEST_SPLIT = 1 << 30  # with which no cell is split
SPLIT = 20  # smaller: more memory, and slower with 10,000 fences
_FINE_SPLIT, _FINE_NODES = 8, 2048  # as long as there are few nodes, for these stay in the cache
_COPIES, _FREE_COPIES = 8, 1 << 18
_CROWDED = 2  # times what stops splitting
_MARGIN = 1 / 64  # of a unit; units are wrong by less than 2⁻³⁰, distances below by less than 2⁻¹²
_REMEMBERED = 1024


@kernel(CHANGED_SMALL_INT_ROWS, INT)
def _rows_for(rows: SmallInts, count: int) -> SmallInts:
    """The rows, with room for at least so many; new ones are zero."""
    if count <= rows.shape[0]:
        return rows
    more = np.zeros((max(count, 2 * rows.shape[0]), rows.shape[1]), np.int32)
    more[: rows.shape[0]] = rows
    return more


@kernel(CHANGED_SMALL_INTS, INT)
def _words_for(words: SmallInts, count: int) -> SmallInts:
    if count <= words.size:
        return words
    more = np.zeros(max(count, 2 * words.size), np.int32)
    more[: words.size] = words
    return more


@inner
def _unit(value: float, origin: float, scale: float) -> int:
    return max(0, min(int((value - origin) * scale), LAST))


@inner
def _toggle(cuts: SmallInts, count: int, vertices: Doubles, vertex: int) -> int:
    """Add a cut, or take away one of the same height; how many there are then."""
    for i in range(count - 1, -1, -1):
        if vertices[cuts[i], 1] == vertices[vertex, 1]:
            cuts[i] = cuts[count - 1]
            return count - 1
    cuts[count] = vertex
    return count + 1


@inner
def _relation(ua: float, va: float, ub: float, vb: float, left: int, low: int, size: int) -> int:
    """Of an edge at the height of a cell, in units: 0 if it may touch it, -1 left, 1 right."""
    if max(ua, ub) < left - _MARGIN:
        return -1
    if min(ua, ub) > left + size + _MARGIN:
        return 1
    du, dv = ub - ua, vb - va
    if max(abs(du), abs(dv)) < 1.0:  # too short for a cross that is certain
        return 0
    half = 0.5 * size
    cross = du * (low + half - va) - dv * (left + half - ua)
    if abs(cross) <= (half + _MARGIN) * (abs(du) + abs(dv)):
        return 0
    return 1 if (cross > 0) == (dv > 0) else -1


@inner
def _at_height(
    vertices: Doubles,
    frame: Doubles,
    words: SmallInts,
    start: int,
    count: int,
    low: int,
    size: int,
    near: SmallInts,
) -> tuple[int, int]:
    """Fill `near` with the parts at the height of a row of cells: how many, and cuts below it."""
    found, below = 0, 0
    y0, scale = frame[Y0], frame[Y_SCALE]
    for i in range(start, start + count):
        part = int(words[i])
        if part < 0:
            height = _unit(vertices[~part, 1], y0, scale)
            below += height < low
            if low <= height < low + size:
                near[found] = part
                found += 1
        else:
            va, vb = (vertices[part, 1] - y0) * scale, (vertices[part + 1, 1] - y0) * scale
            if min(va, vb) <= low + size + _MARGIN and max(va, vb) >= low - _MARGIN:
                near[found] = part
                found += 1
    return found, below


@inner
def _in_cell(
    vertices: Doubles,
    frame: Doubles,
    near: SmallInts,
    near_count: int,
    left: int,
    low: int,
    size: int,
    words: SmallInts,
    start: int,
    cuts: SmallInts,
) -> tuple[int, int]:
    """Write the parts that one cell keeps of those at its height: how many, and cuts below it."""
    x0, y0, x_scale, y_scale = frame[X0], frame[Y0], frame[X_SCALE], frame[Y_SCALE]
    kept, cut_count, below = 0, 0, 0
    for i in range(near_count):
        part = int(near[i])
        if part < 0:
            cut_count = _toggle(cuts, cut_count, vertices, ~part)
            continue
        ua, va = (vertices[part, 0] - x0) * x_scale, (vertices[part, 1] - y0) * y_scale
        ub, vb = (vertices[part + 1, 0] - x0) * x_scale, (vertices[part + 1, 1] - y0) * y_scale
        relation = _relation(ua, va, ub, vb, left, low, size)
        if relation == 0:
            words[start + kept] = part
            kept += 1
        elif relation > 0:
            for end in range(part, part + 2):
                height = _unit(vertices[end, 1], y0, y_scale)
                below += height < low
                if low <= height < low + size:
                    cut_count = _toggle(cuts, cut_count, vertices, end)
    for i in range(cut_count):
        words[start + kept + i] = ~cuts[i]
    return kept + cut_count, below


@inner
def _covers_of(words: SmallInts, head: int) -> tuple[int, int, int]:
    """Of a list: the last record with parts, the first without, and how many parts there are."""
    before, record, parts = 0, int(head), 0
    while record != 0 and words[record + COUNT] > 1:
        parts += words[record + COUNT] >> 1
        before, record = record, int(words[record + NEXT])
    return before, record, parts


@inner
def _cover(words: SmallInts, used: Ints, head: int, fence: int, remembered: SmallInts) -> int:
    """The list with a record of a fence that covers all; there must be room for one.

    Remembered is what stands before equal ends.
    """
    before, first, _ = _covers_of(words, head)
    place = first % _REMEMBERED
    new = int(remembered[place])
    known = words[new + NEXT] == first and words[new + FENCE] == fence and words[new + COUNT] == 1
    if new == 0 or not known:
        new = used[WORDS]
        used[WORDS] += PARTS
        words[new + NEXT], words[new + FENCE], words[new + COUNT] = first, fence, 1
        remembered[place] = new
    if before == 0:
        return new
    words[before + NEXT] = new
    return head


@inner
def _push(
    stack: SmallInts, depth: int, record: int, node: int, level: int, left: int, low: int
) -> int:
    stack[depth, 0], stack[depth, 1], stack[depth, 2] = record, node, level
    stack[depth, 3], stack[depth, 4] = left, low
    return depth + 1


@kernel(GRID, DOUBLES, DOUBLE_ROWS, INT, SMALL_INTS, INT)
def _put_fence(
    grid: Grid, frame: Doubles, vertices: Doubles, fence: int, boundary: SmallInts, split: int
) -> Grid:
    """Add a fence whose edges begin at these vertices; arrays that were too small are new ones.

    A stack holds records that still have to be handed to the cells of a node.
    """
    cells, covers, words, used = grid
    count = boundary.size
    used[SOURCE] += count
    words = _words_for(words, used[WORDS] + PARTS + count)
    record = used[WORDS]
    words[record + FENCE], words[record + COUNT] = fence, 2 * count
    words[record + PARTS : record + PARTS + count] = boundary
    used[WORDS] += PARTS + count
    remembered = np.zeros(_REMEMBERED, np.int32)
    near, cuts = np.empty(count, np.int32), np.empty(2 * count, np.int32)
    stack = np.empty((64, 5), np.int32)
    depth = _push(stack, 0, record, 0, 0, 0, 0)
    while depth > 0:
        depth -= 1
        record, node = int(stack[depth, 0]), int(stack[depth, 1])
        level = int(stack[depth, 2])
        node_left, node_low = int(stack[depth, 3]), int(stack[depth, 4])
        own, count = int(words[record + FENCE]), int(words[record + COUNT]) >> 1
        parity = int(words[record + COUNT]) & 1
        if near.size < count:
            near, cuts = np.empty(2 * count, np.int32), np.empty(4 * count, np.int32)
        size = 1 << (SIDE_BITS * (LEVELS - 1 - level))
        near_count, below_row = 0, 0
        for cell in range(CELLS):
            left, low = node_left + (cell % SIDE) * size, node_low + (cell // SIDE) * size
            if cell % SIDE == 0:
                near_count, below_row = _at_height(
                    vertices, frame, words, record + PARTS, count, low, size, near
                )
            new = used[WORDS]
            words = _words_for(words, new + PARTS + 3 * near_count)
            kept, below = _in_cell(
                vertices, frame, near, near_count, left, low, size, words, new + PARTS, cuts
            )
            inside = (parity + below_row + below) & 1
            code = int(cells[node, cell])
            if kept == 0:
                if inside and code < 0:
                    covers[~code] = _cover(words, used, int(covers[~code]), own, remembered)
                elif inside:
                    cells[node, cell] = _cover(words, used, code, own, remembered)
                continue
            used[WORDS] += PARTS + kept
            words[new + NEXT], words[new + FENCE] = 0, own
            words[new + COUNT] = 2 * kept + inside
            stack = _rows_for(stack, depth + 1)
            if code < 0:
                depth = _push(stack, depth, new, ~code, level + 1, left, low)
                continue
            words[new + NEXT] = code
            cells[node, cell] = new
            used[LIVE] += kept
            if level + 1 == LEVELS or used[LIVE] >= _COPIES * used[SOURCE] + _FREE_COPIES:
                continue
            _, first_cover, parts = _covers_of(words, new)
            fine = split == SPLIT and used[NODES] < _FINE_NODES
            if parts <= (_FINE_SPLIT if fine else split):
                continue
            child = used[NODES]
            used[NODES] += 1
            cells, covers = _rows_for(cells, child + 1), _words_for(covers, child + 1)
            cells[node, cell], covers[child] = ~child, first_cover
            used[LIVE] -= parts
            while new != first_cover:
                stack = _rows_for(stack, depth + 1)
                depth = _push(stack, depth, new, child, level + 1, left, low)
                new = int(words[new + NEXT])
    return Grid(cells, covers, words, used)


@kernel(GRID, DOUBLES, DOUBLE_ROWS, INTS, INTS, SMALL_INTS, INT)
def put_fences(
    grid: Grid,
    frame: Doubles,
    vertices: Doubles,
    fences: Ints,
    offsets: Ints,
    starts: SmallInts,
    split: int,
) -> Grid:
    """Add fences; the edges of each begin at the vertices between its offset and the next.

    Cells with more than `split` parts are split. It stops as soon as the grid is crowded, unless
    no cell is split any more: then all are put, whatever it takes.
    """
    for i in range(fences.size):
        boundary = starts[offsets[i] : offsets[i + 1]]
        grid = _put_fence(grid, frame, vertices, fences[i], boundary, split)
        most = _CROWDED * (_COPIES * grid.used[SOURCE] + _FREE_COPIES)
        if grid.used[LIVE] > most and split < LARGEST_SPLIT:
            break
    return grid


def is_crowded(grid: Grid) -> bool:
    """Whether cells that others made small cost too many parts."""
    most = _CROWDED * (_COPIES * grid.used[SOURCE] + _FREE_COPIES)
    return bool(grid.used[LIVE] > most)
