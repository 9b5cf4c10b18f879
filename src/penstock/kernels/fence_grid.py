"""Where fences lie: a grid whose cells are split where many edges meet.

A node is a square of 16 × 16 cells. A cell is split, that is, has a node of its own, or holds a
list of records, one for each fence that has points there. A fence that covers the cell has a record
without parts, at the end of the list. The record of a fence whose boundary may touch the cell has
all that decides whether a ray from a point of the cell to the right crosses the boundary an odd
number of times:
- *Edges* that may touch the cell, whole, with their own vertices.
- An edge that does not is left or right of all points in the cell that have its height. Left, it is
  never crossed; right, it is crossed from the height of its lower end up to its upper end: each end
  is a *cut* from which on the parity changes. Ends of consecutive edges cancel each other, so that
  of a chain outside only its two ends are left, and of these only those at the height of the cell.
- The *parity* to begin with is that of the cuts below the cell.
So the test is exact in any cell, since it uses nothing but the fence's own coordinates, and it is
as short as the boundary in the cell.

A point belongs to the cell of its units ⌊(x − x0) · scale⌋, a product that never falls when x
rises, rounding included; cuts are sorted by the same rule. That an edge misses a cell is decided
with a margin far above the rounding of units.

Lists share their ends: a fence that covers many cells with equal lists needs one record for all.
Dropping a fence unlinks its records; they are garbage until `pack_grid`. A cell is split when it
has more than SPLIT parts (fewer will do while there are few nodes, see `fence_putting`), as long as
all parts are fewer than 8 · edges of all fences + 2¹⁸. Fences that come later may have long
boundaries through cells that are small already; with twice as many parts the grid is crowded, and
is laid out anew with larger cells.

Compiled code of `fence_putting`, `fence_dropping` and `fence_search` holds these constants: whoever
changes one has to touch those files, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels.jit import (
    CHANGED_INTS,
    CHANGED_SMALL_INT_ROWS,
    CHANGED_SMALL_INTS,
    Ints,
    SmallInts,
    named_tuple,
)

SIDE_BITS = 4
SIDE = 1 << SIDE_BITS
CELLS = SIDE * SIDE
LEVELS = 5
LAST = (1 << SIDE_BITS * LEVELS) - 1  # unit

NEXT, FENCE, COUNT, PARTS = range(4)
NODES, WORDS, LIVE, SOURCE = range(4)
X0, Y0, X_SCALE, Y_SCALE, X1, Y1 = range(6)


class Grid(NamedTuple):
    """What is kept of fences.

    cells: of each node; the first record of a list, 0 for none, or ~ the node it is split into.
    covers: of each node, the first record of fences that cover it. words: records, each its NEXT,
    its FENCE, COUNT of parts · 2 + parity, parts: an edge from this vertex to the next, or a cut at
    the height of ~ this vertex. used: NODES and WORDS taken, LIVE parts, edges of all fences
    (SOURCE).
    """

    cells: SmallInts
    covers: SmallInts
    words: SmallInts
    used: Ints


GRID = named_tuple(
    Grid, CHANGED_SMALL_INT_ROWS, CHANGED_SMALL_INTS, CHANGED_SMALL_INTS, CHANGED_INTS
)


def empty_grid() -> Grid:
    """One node; record 0 ends every list."""
    return Grid(
        np.zeros((1, CELLS), np.int32),
        np.zeros(1, np.int32),
        np.zeros(PARTS, np.int32),
        np.array([1, PARTS, 0, 0]),
    )
