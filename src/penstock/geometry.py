"""Geometry as text, as bytes, and what can be an area that points are looked up in."""

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


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the geometry at a place cannot be a fence, and what to do."""

    place: int
    reason: str
    hint: str


def first_fault(geometries: Sequence[Geometry | None], domain: Bounds) -> Fault | None:
    """The first geometry that cannot be a fence."""
    every = np.array(geometries, dtype=object)
    bounds = shapely.bounds(every)
    good = np.isin(shapely.get_type_id(every), _AREAS) & _are_valid(every)
    good &= (bounds[:, :2] >= domain[:2]).all(axis=1) & (bounds[:, 2:] <= domain[2:]).all(axis=1)
    if good.all():
        return None
    place = int(np.argmin(good))
    return Fault(place, *_fault(geometries[place], domain))


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


def _fault(geometry: Geometry | None, domain: Bounds) -> tuple[str, str]:
    if geometry is None or shapely.is_empty(geometry):
        return "the geometry is empty", "remove it, or give it a polygon"
    if shapely.get_type_id(geometry) not in _AREAS:
        hint = "regions are Polygon or MultiPolygon; a buffer makes one of a point or a line"
        return f"a {geometry.geom_type} is no region", hint
    if (reason := _invalidity(geometry)) is not None:
        return f"the geometry is invalid: {reason}", "repair it, for example with ST_MakeValid"
    x0, y0, x1, y1 = shapely.bounds(geometry).tolist()
    hint = "give longitude, then latitude, in degrees, or say that coordinates are planar"
    if domain != LON_LAT:
        hint = "they have to be within ({:g}, {:g}) and ({:g}, {:g})".format(*domain)
    return f"coordinates from ({x0:g}, {y0:g}) to ({x1:g}, {y1:g}) are out of range", hint


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
