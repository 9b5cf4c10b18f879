"""Taking fences out of the grid of `fence_grid`, and packing away what they leave."""

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
from penstock.kernels.jit import DOUBLES, INT, SMALL_INTS, Doubles, Ints, SmallInts, inner, kernel


@inner
def _unit(value: float, origin: float, scale: float) -> int:
    return max(0, min(int((value - origin) * scale), LAST))


@inner
def _unlinked(words: SmallInts, used: Ints, head: int, fence: int) -> int:
    """The list without a fence; lists that share a record of the fence lose it, too."""
    before, record = 0, int(head)
    while record != 0:
        after = int(words[record + NEXT])
        if words[record + FENCE] != fence:
            before = record
        else:
            used[LIVE] -= int(words[record + COUNT]) >> 1
            if before == 0:
                head = after
            else:
                words[before + NEXT] = after
        record = after
    return head


@kernel(GRID, DOUBLES, INT, DOUBLES, INT)
def drop_fence(grid: Grid, frame: Doubles, fence: int, bounds: Doubles, edge_count: int) -> None:
    """Take a fence out of all cells within its bounds."""
    cells, covers, words, used = grid
    used[SOURCE] -= edge_count
    x_low = _unit(bounds[0], frame[X0], frame[X_SCALE])
    y_low = _unit(bounds[1], frame[Y0], frame[Y_SCALE])
    x_high = _unit(bounds[2], frame[X0], frame[X_SCALE])
    y_high = _unit(bounds[3], frame[Y0], frame[Y_SCALE])
    stack = np.empty((CELLS * LEVELS, 4), np.int32)
    stack[0], depth = 0, 1
    while depth > 0:
        depth -= 1
        node, level = int(stack[depth, 0]), int(stack[depth, 1])
        node_left, node_low = int(stack[depth, 2]), int(stack[depth, 3])
        covers[node] = _unlinked(words, used, int(covers[node]), fence)
        size = 1 << (SIDE_BITS * (LEVELS - 1 - level))
        for cell in range(CELLS):
            left, low = node_left + (cell % SIDE) * size, node_low + (cell // SIDE) * size
            # a record may stand in the cell beside the bounds, within the margin
            if left > x_high + 1 or low > y_high + 1:
                continue
            if left + size < x_low or low + size < y_low:
                continue
            code = int(cells[node, cell])
            if code < 0:
                stack[depth, 0], stack[depth, 1] = ~code, level + 1
                stack[depth, 2], stack[depth, 3] = left, low
                depth += 1
            elif code > 0:
                cells[node, cell] = _unlinked(words, used, code, fence)


@kernel(GRID, SMALL_INTS)
def pack_grid(grid: Grid, moved: SmallInts) -> Grid:
    """The same lists without garbage, the records of a cell side by side.

    moved: by fence, how far its vertices have moved.
    """
    cells, covers, words, used = grid
    nodes = used[NODES]
    new_cells, new_covers = cells[:nodes].copy(), covers[:nodes].copy()
    packed = np.zeros(used[WORDS], np.int32)
    place = np.zeros(used[WORDS], np.int32)
    end = PARTS
    for at in range(nodes * (CELLS + 1)):
        node, cell = at // (CELLS + 1), at % (CELLS + 1) - 1
        record = int(covers[node] if cell < 0 else cells[node, cell])
        before = 0
        while record > 0:
            new = int(place[record])
            known = new != 0
            if not known:
                new = end
                place[record] = new
                count = int(words[record + COUNT]) >> 1
                end += PARTS + count
                packed[new + FENCE] = words[record + FENCE]
                packed[new + COUNT] = words[record + COUNT]
                by = moved[words[record + FENCE]]
                for i in range(PARTS, PARTS + count):
                    part = words[record + i]
                    packed[new + i] = part + by if part >= 0 else part - by
            if before != 0:
                packed[before + NEXT] = new
            elif cell < 0:
                new_covers[node] = new
            else:
                new_cells[node, cell] = new
            if known:
                break
            before, record = new, int(words[record + NEXT])
    used[WORDS] = end
    return Grid(new_cells, new_covers, packed[:end].copy(), used)
