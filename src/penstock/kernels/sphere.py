"""Distances on the earth in metres, the earth being a sphere.

From a point to a point it is the length of the shortest arc between them. To a line or an area it
is that to its nearest point. Edges are straight lines on the map, as they are for all else. Arcs
follow them: an edge of Δλ and Δφ is a curve that an arc from end to end leaves by at most about

    R / 8 · Δλ (Δλ / 2 + 2 Δφ)

(its second derivative differs by sin φ cos φ + 2 tan φ (Δφ / Δλ)², the latter seen across a steep
edge), so it is cut into as many pieces as keep this below a metre. Meridians are arcs already.
"""

from __future__ import annotations

import numpy as np
import shapely
from shapely import Geometry

from penstock.geometry import lines_of
from penstock.kernels.jit import Doubles, Flags, Ints

EARTH_RADIUS_M = 6_371_008.8  # mean radius of WGS 84

_MOST_PAIRS = 1 << 20  # of points and edges that are looked at together


def unit_vectors(lons: Doubles, lats: Doubles) -> Doubles:
    """Places as vectors of length 1, a row each."""
    lon, lat = np.radians(lons), np.radians(lats)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)


def angles_between(one: Doubles, other: Doubles) -> Doubles:
    """Angles between vectors of length 1; exact for small ones too."""
    across = np.linalg.norm(np.cross(one, other), axis=-1)
    found: Doubles = np.arctan2(across, (one * other).sum(axis=-1))
    return found


def metres_between(lons: Doubles, lats: Doubles, lons2: Doubles, lats2: Doubles) -> Doubles:
    """Metres from point to point."""
    return EARTH_RADIUS_M * angles_between(unit_vectors(lons, lats), unit_vectors(lons2, lats2))


def metres_to(geometry: Geometry, lons: Doubles, lats: Doubles) -> Doubles:
    """Metres from points to one geometry."""
    starts, ends = edges_of(geometry)
    metres = np.zeros(lons.size)
    (outside,) = np.nonzero(~shapely.intersects(shapely.points(lons, lats), geometry))
    step = max(1, _MOST_PAIRS // len(starts))
    for first in range(0, outside.size, step):
        part = outside[first : first + step]
        angles = _to_edges(unit_vectors(lons[part], lats[part]), starts, ends)
        metres[part] = EARTH_RADIUS_M * angles
    return metres


def edges_of(geometry: Geometry) -> tuple[Doubles, Doubles]:
    """Where arcs along the edges begin and end, as vectors; a point is one without length."""
    coordinates, line = shapely.get_coordinates(lines_of(geometry), return_index=True)
    alone = np.flatnonzero(np.bincount(line)[line] == 1)
    follows = np.flatnonzero(line[1:] == line[:-1])
    starts = coordinates[np.concatenate([follows, alone])]
    ends = coordinates[np.concatenate([follows + 1, alone])]
    pieces = _pieces(starts, ends)
    edge = np.repeat(np.arange(len(starts)), pieces)
    number = np.arange(edge.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first, last = (((number + i) / pieces[edge])[:, None] for i in (0, 1))
    begin = (1 - first) * starts[edge] + first * ends[edge]
    end = (1 - last) * starts[edge] + last * ends[edge]
    return unit_vectors(*begin.T), unit_vectors(*end.T)


def _pieces(starts: Doubles, ends: Doubles) -> Ints:
    """How many arcs it takes to stay within a metre of each edge."""
    across, up = np.abs(np.radians(ends - starts)).T
    off_m = EARTH_RADIUS_M / 8 * across * (across / 2 + 2 * up)
    pieces: Ints = np.maximum(1, np.ceil(np.sqrt(off_m))).astype(np.int64)
    return pieces


def _to_edges(points: Doubles, starts: Doubles, ends: Doubles) -> Doubles:
    """The angle from each point to the nearest of all edges.

    The nearest point of an edge's great circle counts if it lies between the ends.
    """
    normals, proper = great_circles(starts, ends)
    height = np.arcsin(np.clip(np.abs(points @ normals.T), 0.0, 1.0))
    nearest = np.minimum(
        angles_between(points[:, None], starts), angles_between(points[:, None], ends)
    )
    beside = proper & (points @ np.cross(normals, starts).T >= 0)
    beside &= points @ np.cross(ends, normals).T >= 0
    found: Doubles = np.where(beside, np.minimum(height, nearest), nearest).min(axis=1)
    return found


def great_circles(starts: Doubles, ends: Doubles) -> tuple[Doubles, Flags]:
    """Normal vectors of the planes of arcs, and which arcs have one."""
    normals = np.cross(starts, ends)
    lengths = np.linalg.norm(normals, axis=1)
    proper = lengths > 1e-15
    return normals / np.where(proper, lengths, 1.0)[:, None], proper


def latitudes_of(geometry: Geometry) -> tuple[float, float]:
    """The least and the greatest latitude of arcs along the edges."""
    starts, ends = edges_of(geometry)
    normals, proper = great_circles(starts, ends)
    found = np.degrees(np.arcsin(np.clip([*starts[:, 2], *ends[:, 2]], -1, 1)))
    tops = np.array([0.0, 0.0, 1.0]) - normals[:, 2:] * normals
    for sign in (-1, 1):
        inside = proper & ((np.cross(normals, starts) * sign * tops).sum(axis=1) >= 0)
        inside &= (np.cross(ends, normals) * sign * tops).sum(axis=1) >= 0
        found = np.append(found, sign * np.degrees(np.arccos(np.abs(normals[inside, 2]))))
    return float(found.min()), float(found.max())


def by_number(numbers: Ints) -> list[tuple[int, Ints]]:
    """Each number with the places where it stands."""
    order = np.argsort(numbers, kind="stable")
    known, starts, counts = np.unique(numbers[order], return_index=True, return_counts=True)
    parts = zip(known.tolist(), starts, starts + counts, strict=True)
    return [(number, order[start:end]) for number, start, end in parts]
