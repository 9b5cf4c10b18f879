"""Which fences points are near: within a distance in metres, on the sphere.

A grid of boxes, each of which surely holds all points within the distance of its fence, leaves few
to be measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import shapely
from shapely import Geometry

from penstock.geometry import LON_LAT
from penstock.kernels.fences import Fences, Located
from penstock.kernels.jit import Doubles, Ints
from penstock.kernels.sphere import (
    EARTH_RADIUS_M,
    by_number,
    latitudes_of,
    metres_between,
    metres_to,
)

_ROUNDING = 1e-9  # degrees, about a tenth of a millimetre


class SphereFences:
    """Points and areas in degrees, with numbers; `locate` finds those that points are near."""

    def __init__(self, distance_m: float) -> None:
        self.distance_m = distance_m
        self._geometries: dict[int, Geometry] = {}
        self._boxes = Fences(LON_LAT)
        self._points: Ints = np.empty(0, np.int64)  # numbers of fences that are points, ascending
        self._places: Doubles = np.empty((0, 2))

    def __len__(self) -> int:
        return len(self._geometries)

    def change(self, added: Mapping[int, Geometry], dropped: Collection[int] = ()) -> None:
        """Drop and add fences; a number that is there already gets another geometry."""
        gone = self._geometries.keys() & {*dropped, *added}
        self._boxes.change({n: box_around(g, self.distance_m) for n, g in added.items()}, gone)
        kept = {n: g for n, g in self._geometries.items() if n not in gone}
        self._geometries = {**kept, **added}
        points = {n: g for n, g in sorted(self._geometries.items()) if g.geom_type == "Point"}
        self._points = np.array(list(points), np.int64)
        self._places = shapely.get_coordinates(list(points.values()))

    def locate(self, xs: Doubles, ys: Doubles) -> Located:
        """The fences near each point (x, y)."""
        located = self._boxes.locate(xs, ys, "intersects")
        rows, numbers = located.rows, located.fences
        holds = self._metres(numbers, xs[rows], ys[rows]) <= self.distance_m
        counts = np.bincount(rows[holds], minlength=xs.size)
        return Located(np.concatenate([[0], np.cumsum(counts)]), numbers[holds], located.unknown)

    def _metres(self, numbers: Ints, xs: Doubles, ys: Doubles) -> Doubles:
        """From points to one fence each."""
        metres = np.empty(numbers.size)
        points = np.isin(numbers, self._points)
        places = self._places[np.searchsorted(self._points, numbers[points])]
        metres[points] = metres_between(xs[points], ys[points], places[:, 0], places[:, 1])
        (others,) = np.nonzero(~points)
        for number, own in by_number(numbers[others]):
            rows = others[own]
            metres[rows] = metres_to(self._geometries[number], xs[rows], ys[rows])
        return metres


def box_around(geometry: Geometry, distance_m: float) -> Geometry:
    """A part of the map that has all points within a distance of a geometry, and maybe more."""
    x0, _, x1, _ = shapely.bounds(geometry).tolist()
    angle = distance_m / EARTH_RADIUS_M
    off = np.degrees(angle) + _ROUNDING
    low, high = latitudes_of(geometry)
    highest = max(abs(low), abs(high))
    south, north = max(low - off, -90), min(high + off, 90)
    spans = np.abs(np.diff(shapely.get_coordinates(geometry)[:, 0]))
    if highest + off >= 90 or (spans >= 180).any():
        return shapely.box(LON_LAT[0], south, LON_LAT[2], north)
    wide = np.degrees(np.arcsin(np.sin(angle) / np.cos(np.radians(highest)))) + _ROUNDING
    return _on_map(x0 - wide, south, x1 + wide, north)


def _on_map(west: float, south: float, east: float, north: float) -> Geometry:
    """A box that may go beyond 180 degrees, in the parts that it has on the map."""
    if east - west >= 360:
        return shapely.box(-180, south, 180, north)
    parts = [
        shapely.box(max(west - turn, -180), south, min(east - turn, 180), north)
        for turn in (-360, 0, 360)
        if west - turn < 180 and east - turn > -180
    ]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)
