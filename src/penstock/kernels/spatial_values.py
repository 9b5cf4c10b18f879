"""Spatial functions of columns and constants, as shapely computes them, for whole batches.

A function is a tree in JSON: [name, argument, …]; an argument is another such list, or
{"column": name}, {"geometry": WKB in hexadecimal digits} or {"value": number, text or truth value}.
Where an argument is NULL, is no geometry or has coordinates that are no place, so is the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from penstock.geometry import LON_LAT, PLANE, Bounds, from_hex, goes_either_way
from penstock.kernels.fence_book import coordinates
from penstock.kernels.jit import Doubles, Flags
from penstock.kernels.sphere import by_number, metres_between, metres_to
from penstock.plan.specs import SpatialValue

Geometries = npt.NDArray[np.object_]


def spatial_column(value: SpatialValue, batch: pa.RecordBatch) -> pa.Array:
    """A function's value for each row."""
    result = _evaluate(json.loads(value.call), batch)
    if value.type == "binary":
        return pa.array(shapely.to_wkb(result, output_dimension=2, byte_order=1), pa.binary())
    return result


def _evaluate(node: Any, batch: pa.RecordBatch) -> Any:
    """An Arrow array; of geometries, an array of shapely's, None where there is none."""
    if isinstance(node, dict):
        return _argument(node, batch)
    name, *arguments = node
    return _FUNCTIONS[name](*(_evaluate(argument, batch) for argument in arguments))


def _argument(node: dict[str, Any], batch: pa.RecordBatch) -> Any:
    match node:
        case {"column": name}:
            return batch.column(name)
        case {"geometry": text}:
            return np.full(batch.num_rows, from_hex(text), dtype=object)
        case {"value": value}:
            return pa.array([value] * batch.num_rows)
    raise AssertionError(node)


def _point(xs: pa.Array, ys: pa.Array) -> Geometries:
    x, y = coordinates(xs), coordinates(ys)
    known = np.isfinite(x) & np.isfinite(y)
    points = np.full(x.size, None, dtype=object)
    points[known] = shapely.points(x[known], y[known])
    return _in_range(points, PLANE)


def _read(read: Callable[..., Any]) -> Callable[[pa.Array], Geometries]:
    """Geometries of texts or bytes, each different one read once."""

    def geometries(values: pa.Array) -> Geometries:
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        texts = coded.dictionary.to_numpy(zero_copy_only=False)
        known = _in_range(_parsed(read, texts), PLANE)
        places = coded.indices.fill_null(len(known)).to_numpy()
        found: Geometries = np.append(known, [None])[places]
        return found

    return geometries


def _parsed(read: Callable[..., Any], texts: Any) -> Any:
    """Geometries, None for what is none; curves, which shapely does not know, are none either."""
    try:
        return read(texts, on_invalid="ignore")
    except NotImplementedError:
        return [_straight(read, text) for text in texts]


def _straight(read: Callable[..., Any], text: Any) -> Any:
    try:
        return read(text, on_invalid="ignore")
    except NotImplementedError:
        return None


def _in_range(geometries: Any, domain: Bounds) -> Geometries:
    """The geometries, None where one is empty or out of range."""
    found: Geometries = np.array(geometries, dtype=object)
    bounds = shapely.bounds(found)
    good = (bounds[:, :2] >= domain[:2]).all(axis=1) & (bounds[:, 2:] <= domain[2:]).all(axis=1)
    found[~good] = None
    return found


def _missing(*geometries: Geometries) -> Flags:
    missing: Flags = np.logical_or.reduce([shapely.is_missing(each) for each in geometries])
    return missing


def _compare(holds: Callable[..., Flags]) -> Callable[[Geometries, Geometries], pa.Array]:
    return lambda one, other: pa.array(holds(one, other), mask=_missing(one, other))


def _measure(of: Callable[..., Doubles]) -> Callable[..., pa.Array]:
    def measured(*geometries: Geometries) -> pa.Array:
        values = of(*geometries)
        return pa.array(values, mask=np.isnan(values))

    return measured


def _sphere(one: Geometries, other: Geometries) -> pa.Array:
    """Metres; one of the two is a point in each row. NULL where an edge may go either way."""
    one, other = _in_range(one, LON_LAT), _in_range(other, LON_LAT)
    metres = np.full(one.size, np.nan)
    is_point = [shapely.get_type_id(each) == shapely.GeometryType.POINT for each in (one, other)]
    both = is_point[0] & is_point[1]
    a, b = (shapely.get_coordinates(each[both]) for each in (one, other))
    metres[both] = metres_between(a[:, 0], a[:, 1], b[:, 0], b[:, 1])
    for points, areas, mine in ((one, other, is_point[0]), (other, one, is_point[1])):
        (rows,) = np.nonzero(mine & ~both & ~shapely.is_missing(areas))
        objects = np.fromiter(map(id, areas[rows]), np.int64, rows.size)  # equal ones are one
        for _, own in by_number(objects):
            area, place = areas[rows[own[0]]], shapely.get_coordinates(points[rows[own]])
            if not goes_either_way(area):
                metres[rows[own]] = metres_to(area, place[:, 0], place[:, 1])
    return pa.array(metres, mask=np.isnan(metres))


def _dwithin(
    one: Geometries, other: Geometries, distance: pa.Array, sphere: pa.Array | None = None
) -> pa.Array:
    limit = coordinates(distance)
    missing = _missing(one, other) | np.isnan(limit)
    if sphere is None or not len(sphere) or not sphere[0].as_py():
        return pa.array(shapely.dwithin(one, other, limit), mask=missing)
    return pc.less_equal(_sphere(one, other), pa.array(limit, mask=np.isnan(limit)))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "st_point": _point,
    "st_geomfromtext": _read(shapely.from_wkt),
    "st_geomfromgeojson": _read(shapely.from_geojson),
    "st_geomfromwkb": _read(shapely.from_wkb),
    "st_within": _compare(shapely.within),
    "st_contains": _compare(shapely.contains),
    "st_intersects": _compare(shapely.intersects),
    "st_dwithin": _dwithin,
    "st_distance": _measure(shapely.distance),
    "st_distancesphere": _sphere,
    "st_x": _measure(shapely.get_x),
    "st_y": _measure(shapely.get_y),
    "st_astext": lambda geometries: pa.array(
        shapely.to_wkt(geometries, rounding_precision=-1), pa.string()
    ),
}
