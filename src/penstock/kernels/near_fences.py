"""Which fences points are near: within a distance in the units of the plane, as shapely says.

A fence, which may here be a point or a line as well, stands for two polygons in a grid: one that
surely holds all points within the distance, and one whose points surely are. Only those between the
two are measured. Buffers are not exact (arcs are polygons, small dents are left out), by less than
the twentieth that the two keep off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import shapely
from shapely import Geometry

from penstock.errors import PenstockError
from penstock.geometry import LON_LAT, PLANE, Bounds, first_fault
from penstock.kernels.fences import Fences, Located
from penstock.kernels.jit import Doubles, Flags, Ints

_OFF = 0.05  # of the distance
_ROUNDING = 1e-9  # of the largest coordinate
_LEAST = 1e-120  # around a point at the origin


class NearFences:
    """Geometries with numbers; `locate` finds those that points are in or near."""

    def __init__(self, distance: float, domain: Bounds = LON_LAT) -> None:
        if not 0 <= distance < PLANE[2]:
            raise PenstockError(f"a distance of {distance:g}", "it has to be 0 or more, and finite")
        self.distance = distance
        self.domain = domain
        self._geometries: dict[int, Geometry] = {}
        self._bands = Fences(PLANE)  # number · 2: outer, number · 2 + 1: inner

    def __len__(self) -> int:
        return len(self._geometries)

    def change(self, added: Mapping[int, Geometry], dropped: Collection[int] = ()) -> None:
        """Drop and add fences; a number that is there already gets another geometry."""
        if added and (fault := first_fault(list(added.values()), self.domain, areas=False)):
            raise PenstockError(f"fence {list(added)[fault.place]}: {fault.reason}", fault.hint)
        gone = self._geometries.keys() & {*dropped, *added}
        bands = {2 * n + i: band for n, g in added.items() for i, band in self._bands_of(g).items()}
        self._bands.change(bands, [2 * number + i for number in gone for i in (0, 1)])
        # copies, which nobody prepares: prepared geometry rounds distances in another way
        copies = {n: shapely.force_2d(g) for n, g in added.items()}
        kept = {n: g for n, g in self._geometries.items() if n not in gone}
        self._geometries = {**kept, **copies}

    def locate(self, xs: Doubles, ys: Doubles) -> Located:
        """The fences near each point (x, y)."""
        located = self._bands.locate(xs, ys, "intersects")
        left, low, right, high = self.domain
        unknown = ~((xs >= left) & (xs <= right) & (ys >= low) & (ys <= high))
        rows, numbers, sure = _united(located.rows, located.fences)
        known = ~unknown[rows]
        rows, numbers, sure = rows[known], numbers[known], sure[known]
        holds = sure | self._measured(rows, numbers, ~sure, xs, ys)
        counts = np.bincount(rows[holds], minlength=xs.size)
        return Located(np.concatenate([[0], np.cumsum(counts)]), numbers[holds], unknown)

    def _bands_of(self, geometry: Geometry) -> dict[int, Geometry]:
        largest = float(np.abs(shapely.bounds(geometry)).max())
        off = max(_OFF * self.distance, _ROUNDING * largest, _LEAST)
        bands = {0: shapely.buffer(geometry, self.distance + off)}
        if self.distance > off:
            bands[1] = shapely.buffer(geometry, self.distance - off)
        return bands

    def _measured(self, rows: Ints, numbers: Ints, asked: Flags, xs: Doubles, ys: Doubles) -> Flags:
        """Of the pairs asked about, those that are near; others are not."""
        near = np.zeros(rows.size, np.bool_)
        (pairs,) = np.nonzero(asked)
        for number in np.unique(numbers[pairs]).tolist():
            own = pairs[numbers[pairs] == number]
            points = shapely.points(xs[rows[own]], ys[rows[own]])
            near[own] = shapely.dwithin(self._geometries[number], points, self.distance)
        return near


def _united(rows: Ints, bands: Ints) -> tuple[Ints, Ints, Flags]:
    """Rows and numbers, each pair once, by row; whether the inner polygon is among them."""
    order = np.lexsort((bands, rows))
    rows, numbers, inner = rows[order], bands[order] >> 1, (bands[order] & 1).astype(np.bool_)
    last = np.ones(rows.size, np.bool_)
    last[:-1] = (rows[1:] != rows[:-1]) | (numbers[1:] != numbers[:-1])
    return rows[last], numbers[last], inner[last]
