"""Geofences: in which of many polygons points lie, as shapely says, at millions of points a second.

`fence_grid` keeps the polygons in cells, `fence_search` decides nearly all points. What it leaves
undecided, points on a slanted edge or within rounding of it, shapely decides. Coordinates are
planar, also longitude and latitude: edges are straight lines on the map.

Adding or dropping a fence changes the cells that it touches. All are laid out anew when a fence
lies outside the frame so far (which then grows by half, so that this is rare) or half of the edges
have gone; garbage is packed away when it may have doubled what is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import shapely
from shapely import Geometry

from penstock.errors import PenstockError
from penstock.geometry import LON_LAT, Bounds, first_fault
from penstock.kernels.fence_dropping import drop_fence, pack_grid
from penstock.kernels.fence_grid import LAST, SOURCE, WORDS, Grid, empty_grid
from penstock.kernels.fence_putting import LARGEST_SPLIT, SPLIT, is_crowded, put_fences
from penstock.kernels.fence_search import locate_points
from penstock.kernels.jit import Doubles, Flags, Ints, SmallInts

Relation = Literal["within", "intersects"]  # interior only (contains); with the boundary (covers)

_NARROWEST = 1e-130  # of a frame: where products underflow all edges are tested, in one cell
_FEW_WORDS = 1 << 14


@dataclass(frozen=True, slots=True)
class Located:
    """Row i lies in `fences[offsets[i]:offsets[i + 1]]`, by number, in any order.

    unknown: rows whose coordinates are NaN, infinite or outside the domain; they have no fences.
    """

    offsets: Ints
    fences: Ints
    unknown: Flags

    @property
    def rows(self) -> Ints:
        """The row of each fence."""
        return np.repeat(np.arange(self.unknown.size), np.diff(self.offsets))


@dataclass(frozen=True, slots=True)
class _Fence:
    geometry: Geometry
    first: int  # vertex
    vertices: int
    edges: int


class Fences:
    """Polygons with numbers; `change` adds and drops them, `locate` finds those of points."""

    def __init__(self, domain: Bounds = LON_LAT) -> None:
        self.domain = domain
        self._limits = np.array(domain)
        self._slots: dict[int, int] = {}  # by number
        self._fences: list[_Fence | None] = []  # by slot
        self._free: list[int] = []
        self._numbers = np.empty(0, np.int64)  # by slot
        self._frame: Doubles | None = None
        self._grid: Grid = empty_grid()
        self._vertices: Doubles = np.empty((0, 2))
        self._end = 0  # of the vertices
        self._packed_words = self._packed_edges = 0
        self._split = SPLIT

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def nbytes(self) -> int:
        """Memory of the grid and the vertices in it, without the geometries themselves."""
        return sum(part.nbytes for part in self._grid) + self._vertices.nbytes

    def geometry(self, number: int) -> Geometry:
        return self._of(self._slots[number]).geometry

    def change(self, added: Mapping[int, Geometry], dropped: Collection[int] = ()) -> None:
        """Drop and add fences; a number that is there already gets another geometry."""
        if added and (fault := first_fault(list(added.values()), self.domain)) is not None:
            raise PenstockError(f"fence {list(added)[fault.place]}: {fault.reason}", fault.hint)
        for number in {*dropped, *added} & self._slots.keys():
            self._drop(self._slots.pop(number))
        if 2 * self._grid.used[SOURCE] < self._packed_edges:
            self._lay_out({})
        if added:
            bounds = shapely.total_bounds(list(added.values()))
            if self._frame is None or _exceeds(bounds, self._frame):
                self._lay_out(added)
            else:
                self._put(added)
        while is_crowded(self._grid) and self._split < LARGEST_SPLIT:
            self._lay_out({}, 16 * self._split)
        if self._grid.used[WORDS] > 2 * self._packed_words + _FEW_WORDS:
            self._pack()

    def locate(self, xs: Doubles, ys: Doubles, relation: Relation = "within") -> Located:
        """The fences of each point (x, y)."""
        with_edges = relation == "intersects"
        frame = np.full(6, np.nan) if self._frame is None else self._frame
        offsets, slots, unknown, undecided = locate_points(
            self._grid, frame, self._vertices, self._limits, xs, ys, with_edges
        )
        if undecided:
            offsets, slots = self._decide(offsets, slots, xs, ys, with_edges)
        return Located(offsets, self._numbers[slots], unknown)

    def _decide(
        self, offsets: Ints, slots: SmallInts, xs: Doubles, ys: Doubles, with_edges: bool
    ) -> tuple[Ints, SmallInts]:
        """Ask shapely about the pairs that are marked as undecided."""
        rows = np.repeat(np.arange(xs.size), np.diff(offsets))
        holds = slots >= 0
        (asked,) = np.nonzero(~holds)
        slots = np.where(holds, slots, ~slots)
        holds_for = shapely.intersects if with_edges else shapely.within
        for slot in np.unique(slots[asked]).tolist():
            pairs = asked[slots[asked] == slot]
            # a copy, which nobody has prepared: within 1e-300 of an edge that changes the answer
            geometry = shapely.force_2d(self._of(slot).geometry)
            holds[pairs] = holds_for(shapely.points(xs[rows[pairs]], ys[rows[pairs]]), geometry)
        counts = np.bincount(rows[holds], minlength=xs.size)
        return np.concatenate([[0], np.cumsum(counts)]), slots[holds]

    def _of(self, slot: int) -> _Fence:
        fence = self._fences[slot]
        assert fence is not None
        return fence

    def _drop(self, slot: int) -> None:
        fence = self._of(slot)
        bounds = shapely.bounds(fence.geometry)
        assert self._frame is not None
        drop_fence(self._grid, self._frame, slot, bounds, fence.edges)
        self._fences[slot] = None
        self._free.append(slot)

    def _put(self, added: Mapping[int, Geometry]) -> None:
        """Add fences that lie in the frame."""
        vertices, vertex_offsets, starts, offsets = _edges(list(added.values()), self._end)
        firsts, counts = vertex_offsets[:-1].tolist(), np.diff(vertex_offsets).tolist()
        slots = [self._slot() for _ in added]
        edges = np.diff(offsets).tolist()
        placed = zip(added.items(), slots, firsts, counts, edges, strict=True)
        for (number, geometry), slot, first, count, edge_count in placed:
            self._fences[slot] = _Fence(geometry, first, count, edge_count)
            self._slots[number] = slot
        self._numbers = np.resize(self._numbers, len(self._fences))
        self._numbers[slots] = list(added)
        self._append(vertices)
        numbers = np.array(slots, np.int64)
        assert self._frame is not None
        self._grid = put_fences(
            self._grid, self._frame, self._vertices, numbers, offsets, starts, self._split
        )

    def _slot(self) -> int:
        if self._free:
            return self._free.pop()
        self._fences.append(None)
        return len(self._fences) - 1

    def _append(self, vertices: Doubles) -> None:
        end = self._end + len(vertices)
        if end > len(self._vertices):
            more = np.empty((max(end, 2 * len(self._vertices)), 2))
            more[: self._end] = self._vertices[: self._end]
            self._vertices = more
        self._vertices[self._end : end] = vertices
        self._end = end

    def _lay_out(self, added: Mapping[int, Geometry], split: int = SPLIT) -> None:
        """Put all fences anew, in a frame that has room for those added."""
        self._split = split
        kept = {number: self._of(slot).geometry for number, slot in self._slots.items()}
        now = {**kept, **added}
        old = self._frame
        self._slots, self._fences, self._free = {}, [], []
        self._start_over(None)
        if now:
            bounds = shapely.total_bounds(list(now.values()))
            self._start_over(_frame(bounds, old if kept else None, self.domain))
            self._put(now)
            self._pack()

    def _start_over(self, frame: Doubles | None) -> None:
        self._frame = frame
        self._grid, self._vertices, self._end = empty_grid(), np.empty((0, 2)), 0
        self._packed_words = self._packed_edges = 0

    def _pack(self) -> None:
        """Leave out garbage: of records, and vertices of fences that have gone."""
        moved = np.zeros(len(self._fences), np.int32)
        taken, end = [np.empty((0, 2))], 0
        for slot, fence in enumerate(self._fences):
            if fence is not None:
                moved[slot] = end - fence.first
                taken.append(self._vertices[fence.first : fence.first + fence.vertices])
                self._fences[slot] = replace(fence, first=end)
                end += fence.vertices
        self._vertices, self._end = np.concatenate(taken), end
        self._grid = pack_grid(self._grid, moved)
        self._packed_words = int(self._grid.used[WORDS])
        self._packed_edges = int(self._grid.used[SOURCE])


def _edges(geometries: list[Geometry], first: int) -> tuple[Doubles, Ints, SmallInts, Ints]:
    """Vertices of all rings, their offsets by geometry, and where edges begin, with offsets.

    Vertices are counted from `first` on.
    """
    parts, geometry_of_part = shapely.get_parts(geometries, return_index=True)
    rings, part_of_ring = shapely.get_rings(parts, return_index=True)
    vertices, ring = shapely.get_coordinates(rings, return_index=True)
    owner = geometry_of_part[part_of_ring][ring]
    (starts,) = np.nonzero(ring[1:] == ring[:-1])
    places = np.arange(len(geometries) + 1)
    vertex_offsets = first + np.searchsorted(owner, places)
    offsets = np.searchsorted(owner[starts], places)
    return vertices, vertex_offsets, (first + starts).astype(np.int32), offsets


def _exceeds(bounds: Doubles, frame: Doubles) -> bool:
    inside = (bounds[:2] >= frame[:2]).all() and (bounds[2:] <= frame[4:]).all()
    return not inside


def _frame(bounds: Doubles, old: Doubles | None, domain: Bounds) -> Doubles:
    """Where units begin, how many there are to a coordinate, where they end.

    A frame that takes the place of an older one reaches further by half, where it had to grow.
    """
    low, high = bounds[:2].copy(), bounds[2:].copy()
    if old is not None:
        half = 0.5 * (high - low)
        low = np.maximum(np.where(low < old[:2], low - half, low), domain[:2])
        high = np.minimum(np.where(high > old[4:], high + half, high), domain[2:])
    scale = (LAST + 1) / np.maximum(high - low, _NARROWEST)
    return np.concatenate([low, scale, high])
