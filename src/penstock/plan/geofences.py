"""Geofences in conditions: a point of two columns, and an area that is a constant.

The area is read and checked here, and becomes data of the slot. Coordinates are planar; a condition
is unknown where one of them is NULL, NaN, infinite or beyond `PLANE`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal

import shapely
from shapely import Geometry

from penstock.errors import QueryError
from penstock.geometry import PLANE, first_fault, to_hex
from penstock.language.ast import Column, Expr, Literal, Opaque, SpatialCall
from penstock.language.tree import walk
from penstock.plan.specs import FenceRelation, FenceTest
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, decimal_parts

_FORMS: dict[str, tuple[FenceRelation, str, tuple[str, ...]]] = {
    "st_within": ("within", "ST_Within(point, area)", ("point", "area")),
    "st_contains": ("within", "ST_Contains(area, point)", ("area", "point")),
    "st_intersects": ("intersects", "ST_Intersects(point, area)", ("point", "area")),
    "st_dwithin": ("near", "ST_DWithin(point, area, distance)", ("point", "area", "distance")),
}
_SYMMETRIC = ("st_intersects", "st_dwithin")
_READERS = {"st_geomfromtext": shapely.from_wkt, "st_geomfromgeojson": shapely.from_geojson}
_CAST = re.compile(r"cast\(\(?\0\)? AS DOUBLE\)|\(\(?\0\)? :: DOUBLE\)|double\(\0\)", re.IGNORECASE)


def fence_test(call: SpatialCall, types: Mapping[str, str]) -> FenceTest:
    """The geofence that a call stands for; `types` are those of the stream's columns."""
    if call.name not in _FORMS:
        raise QueryError(
            f"{call.name} is not a condition", f"it is part of one: {_known_forms()}", call.span
        )
    relation, form, parts = _FORMS[call.name]
    arguments = call.arguments
    if call.name in _SYMMETRIC and len(arguments) > 1 and _is(arguments[1], "st_point"):
        arguments = (arguments[1], arguments[0], *arguments[2:])
    given = dict(zip(parts, arguments, strict=False))
    if len(arguments) != len(parts) or not _is(given["point"], "st_point"):
        hint = f"write {form} with ST_Point(x, y) of two columns as the point"
        raise QueryError(f"{call.name} compares a point with an area", hint, call.span)
    x, y = _point(given["point"], types)
    area = _area(given["area"])
    distance = _distance(given["distance"], area) if relation == "near" else 0.0
    return FenceTest(x, y, relation, distance, to_hex(area))


def refuse_spatial(expr: Expr) -> None:
    """Raise where a spatial function stands inside of what Spark computes."""
    for node in walk(expr):
        if isinstance(node, SpatialCall):
            raise QueryError(
                f"{node.name} cannot be used here",
                "geofences are conditions on one stream in WHERE, joined by AND, OR and NOT",
                node.span,
            )


def _known_forms() -> str:
    return ", ".join(form for _, form, _ in _FORMS.values())


def _is(expr: Expr, name: str) -> bool:
    return isinstance(expr, SpatialCall) and expr.name == name


def _point(point: Expr, types: Mapping[str, str]) -> tuple[str, str]:
    assert isinstance(point, SpatialCall)
    if len(point.arguments) != 2:
        raise QueryError("a point has two coordinates", "write ST_Point(x, y)", point.span)
    x, y = (_coordinate(argument, types) for argument in point.arguments)
    return x, y


def _coordinate(expr: Expr, types: Mapping[str, str]) -> str:
    """The column of a coordinate, as it is or cast to DOUBLE."""
    column = _without_cast(expr)
    if column is None:
        hint = "coordinates are columns; compute others in a derived stream"
        raise QueryError("ST_Point takes two columns of the stream", hint, expr.span)
    type_ = types[column.name]
    if type_ not in INTEGER_TYPES and type_ not in FLOAT_TYPES and decimal_parts(type_) is None:
        hint = "coordinates are numbers"
        raise QueryError(f"column {column.name} is of type {type_}", hint, expr.span)
    return column.name


def _without_cast(expr: Expr) -> Column | None:
    if isinstance(expr, Column):
        return expr
    if not isinstance(expr, Opaque):
        return None
    columns = [part for part in expr.parts if isinstance(part, Column)]
    text = "".join(part if isinstance(part, str) else "\0" for part in expr.parts)
    return columns[0] if len(columns) == 1 and _CAST.fullmatch(text) else None


def _area(expr: Expr) -> Geometry:
    match expr:
        case SpatialCall(name, (Literal(str(text)),)) if name in _READERS:
            read = _READERS[name]
        case _:
            hint = "write ST_GeomFromText('POLYGON (…)') or ST_GeomFromGeoJSON('{…}')"
            raise QueryError("the area of a geofence is a constant", hint, expr.span)
    try:
        geometry = read(text)
    except shapely.GEOSException as error:
        reason = str(error).partition("\n")[0]
        hint = "expected WKT" if name == "st_geomfromtext" else "expected a GeoJSON geometry"
        raise QueryError(f"the geometry cannot be read: {reason}", hint, expr.span) from None
    if (fault := first_fault([geometry], PLANE)) is not None:
        raise QueryError(fault.reason, fault.hint, expr.span)
    return shapely.force_2d(geometry)


def _distance(expr: Expr, area: Geometry) -> float:
    match expr:
        case Literal(int() | float() | Decimal() as value) if not isinstance(value, bool):
            distance = float(value)
        case _:
            distance = math.nan
    if not distance >= 0:
        hint = "it is a constant of 0 or more, in the units of the coordinates"
        raise QueryError("this is no distance", hint, expr.span)
    reach = max(abs(bound) for bound in shapely.bounds(area).tolist()) + 2 * distance
    if not reach < PLANE[2]:
        hint = f"coordinates end at {PLANE[2]:g}"
        raise QueryError(f"a distance of {distance:g} is out of range", hint, expr.span)
    return distance
