"""Geometry as text, as bytes, and what can be an area that points are looked up in.

Longitude and latitude are coordinates on a flat map that ends at 180 degrees. An area across that
line is written with longitudes that go on (170 to 190), which `put_on_map` splits, or as two parts.
An edge of more than 180 degrees is refused, since 170 to −170 may mean either way around the earth;
one of exactly 360 is the rim of the map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely
from shapely import Geometry

Bounds = tuple[float, float, float, float]

LON_LAT: Bounds = (-180.0, -90.0, 180.0, 90.0)
PLANE: Bounds = (-1e140, -1e140, 1e140, 1e140)  # beyond, GEOS overflows and contradicts itself

_AREAS = (shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON)
_TURN = 360.0
_TURNS: tuple[float, ...] = (-_TURN, 0.0, _TURN)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the geometry at a place cannot be a fence, and what to do."""

    place: int
    reason: str
    hint: str


def first_fault(
    geometries: Sequence[Geometry | None], domain: Bounds, areas: bool = True
) -> Fault | None:
    """The first geometry that cannot be a fence; areas: points and lines are none."""
    every = np.array(geometries, dtype=object)
    bounds = shapely.bounds(every)
    good = _are_valid(every) & ~shapely.is_empty(every) & ~shapely.is_missing(every)
    if areas:
        good &= np.isin(shapely.get_type_id(every), _AREAS)
    good &= (bounds[:, :2] >= domain[:2]).all(axis=1) & (bounds[:, 2:] <= domain[2:]).all(axis=1)
    if good.all():
        return None
    place = int(np.argmin(good))
    return Fault(place, *_fault(geometries[place], domain, areas))


def _are_valid(geometries: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    try:
        valid: npt.NDArray[np.bool_] = shapely.is_valid(geometries)
    except shapely.GEOSException:  # one of them has coordinates too small or large for any answer
        valid = np.array([g is not None and _invalidity(g) is None for g in geometries])
    return valid


def _invalidity(geometry: Geometry) -> str | None:
    try:
        return None if shapely.is_valid(geometry) else str(shapely.is_valid_reason(geometry))
    except shapely.GEOSException as error:
        return str(error)


def _fault(geometry: Geometry | None, domain: Bounds, areas: bool) -> tuple[str, str]:
    if geometry is None or shapely.is_empty(geometry):
        return "the geometry is empty", "remove it, or give it coordinates"
    if areas and shapely.get_type_id(geometry) not in _AREAS:
        hint = "areas are Polygon or MultiPolygon; a buffer makes one of a point or a line"
        return f"a {geometry.geom_type} is no area", hint
    if (reason := _invalidity(geometry)) is not None:
        hint = "repair it, for example with make_valid of shapely or ST_MakeValid of PostGIS"
        return f"the geometry is invalid: {reason}", hint
    x0, y0, x1, y1 = shapely.bounds(geometry).tolist()
    hint = "give longitude, then latitude, in degrees; other regions are WITH (planar = true)"
    if domain != LON_LAT:
        hint = "they have to be within ({:g}, {:g}) and ({:g}, {:g})".format(*domain)
    return f"coordinates from ({x0:g}, {y0:g}) to ({x1:g}, {y1:g}) are out of range", hint


def put_on_map(geometries: Sequence[Geometry | None], areas: bool = True) -> list[Geometry] | Fault:
    """Geometries in degrees, areas across 180 degrees cut there; or the first that is no fence."""
    if (fault := first_fault(geometries, PLANE, areas)) is not None:
        return fault
    for place, geometry in enumerate(geometries):
        if goes_either_way(geometry):
            return Fault(
                place,
                "an edge spans more than 180 degrees of longitude",
                "across 180 degrees write 170 to 190 instead of 170 to -170; "
                "the long way around, add a vertex on the edge",
            )
    split = [split_at_date_line(geometry) for geometry in geometries]
    return first_fault(split, LON_LAT, areas) or split


def goes_either_way(geometry: Geometry) -> bool:
    """Whether an edge spans more than half of the map, but not all of it."""
    coordinates, line = shapely.get_coordinates(lines_of(geometry), return_index=True)
    spans = np.abs(np.diff(coordinates[:, 0]))[np.diff(line) == 0]
    return bool(((spans > _TURN / 2) & (spans != _TURN)).any())


def lines_of(geometry: Geometry) -> list[Geometry]:
    """Rings of polygons, lines and points, also those in collections."""
    parts = shapely.get_parts(geometry)
    while (shapely.get_type_id(parts) > shapely.GeometryType.POLYGON).any():  # of collections
        parts = shapely.get_parts(parts)
    areas = shapely.get_type_id(parts) == shapely.GeometryType.POLYGON
    return [*shapely.get_rings(parts[areas]), *parts[~areas]]


def split_at_date_line(geometry: Geometry) -> Geometry:
    """An area whose longitudes go beyond ±180 by less than a turn, cut there and brought back.

    >>> [part.bounds for part in split_at_date_line(shapely.box(170, 0, 190, 10)).geoms]
    [(170.0, 0.0, 180.0, 10.0), (-180.0, 0.0, -170.0, 10.0)]
    """
    low, south, high, north = shapely.bounds(geometry).tolist()
    beyond = low < -_TURN / 2 or high > _TURN / 2
    if not beyond or high - low > _TURN or low < -1.5 * _TURN or high > 1.5 * _TURN:
        return geometry
    if shapely.get_type_id(geometry) not in _AREAS:
        return geometry
    pieces = []
    for turn in _TURNS:
        map_ = shapely.box(turn - _TURN / 2, south, turn + _TURN / 2, north)
        part = shapely.intersection(geometry, map_)
        pieces += [
            shapely.transform(p, lambda points, by=turn: points - [by, 0])
            for p in shapely.get_parts(part)
            if p.geom_type == "Polygon"
        ]
    whole = shapely.MultiPolygon(pieces) if len(pieces) > 1 else pieces[0]
    return whole if whole.is_valid else shapely.union_all(pieces)  # pieces may meet in an edge


def to_hex(geometry: Geometry) -> str:
    """A geometry in the plane as text that is the same for equal coordinates (WKB)."""
    return str(shapely.to_wkb(geometry, hex=True, output_dimension=2, byte_order=1))


def from_hex(text: str) -> Geometry:
    return shapely.from_wkb(text)


def outlined(geometry: Geometry) -> str:
    """A geometry in few words.

    >>> outlined(shapely.box(0, 0, 2, 1.5))
    'Polygon of 4 corners from (0, 0) to (2, 1.5)'
    >>> outlined(shapely.Point(2, 1.5))
    'Point (2, 1.5)'
    """
    if geometry.geom_type == "Point":
        return f"Point ({geometry.x:g}, {geometry.y:g})"
    rings = shapely.get_rings(shapely.get_parts(geometry))
    corners = shapely.get_num_coordinates(geometry) - len(rings)
    x0, y0, x1, y1 = shapely.bounds(geometry).tolist()
    return f"{geometry.geom_type} of {corners} corners from ({x0:g}, {y0:g}) to ({x1:g}, {y1:g})"
