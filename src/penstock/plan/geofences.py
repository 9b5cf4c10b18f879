"""Geofences in conditions: a point of two columns, and an area that is a constant.

The area is read and checked here, and becomes data of the slot. Coordinates are planar; a condition
is unknown where one of them is NULL, NaN, infinite or beyond `PLANE`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import shapely
from shapely import Geometry

from penstock.errors import QueryError
from penstock.geometry import PLANE, Fault, first_fault, put_on_map, to_hex
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
_SPHERE = 3  # the place of the argument that asks for metres
_POINT = "st_point"
_SYMMETRIC = ("st_intersects", "st_dwithin")
_READERS = {"st_geomfromtext": shapely.from_wkt, "st_geomfromgeojson": shapely.from_geojson}
_CAST = re.compile(r"cast\(\(?\0\)? AS DOUBLE\)|\(\(?\0\)? :: DOUBLE\)|double\(\0\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FenceParts:
    """A geofence taken apart."""

    relation: FenceRelation
    point: SpatialCall
    area: Expr
    distance: Expr | None


def is_constant_fence(call: SpatialCall) -> bool:
    """Whether a call compares a point with an area that is a constant."""
    if call.name not in _FORMS:
        return False
    constants = [e for e in call.arguments[:2] if isinstance(e, SpatialCall) and _is_constant(e)]
    points = [e for e in call.arguments[:2] if _is(e, _POINT) and e not in constants]
    read = [e for e in constants if e.name in _READERS]
    near = _FORMS[call.name][0] == "near"
    return len(points) == 1 and bool(constants if near else read)


def _is_sphere(call: SpatialCall) -> bool | None:
    """What the last argument of ST_DWithin says; None if there is none."""
    match call.arguments[_SPHERE:]:
        case (Literal(bool(flag)),):
            return flag
    return None


def _is_constant(call: SpatialCall) -> bool:
    return all(isinstance(e, Literal) for e in call.arguments)


def is_geofence(call: SpatialCall, area: Expr) -> bool:
    """Whether a call compares something with this area."""
    return call.name in _FORMS and area in call.arguments


def fence_test(call: SpatialCall, types: Mapping[str, str]) -> FenceTest:
    """The geofence that a call stands for; `types` are those of the stream's columns."""
    parts = parts_of(call)
    x, y = point_of(parts.point, types)
    area = _area(parts.area, parts.relation)
    reach = max(abs(bound) for bound in shapely.bounds(area).tolist())
    distance = 0.0 if parts.distance is None else distance_of(parts.distance, reach)
    return FenceTest(x, y, parts.relation, distance, to_hex(area))


def parts_of(call: SpatialCall) -> FenceParts:
    """The parts of a geofence, or an error that says how it is written."""
    if call.name not in _FORMS:
        hint = f"in a join, conditions on one of its streams may be geofences: {_known_forms()}"
        raise QueryError(f"{call.name} cannot be used here", hint, call.span)
    relation, form, parts = _FORMS[call.name]
    arguments = call.arguments
    if relation == "near" and len(arguments) == _SPHERE + 1:
        if (sphere := _is_sphere(call)) is None:
            hint = "write true for metres; without it, distances are in the units of coordinates"
            raise QueryError("whether it is metres is true or false", hint, arguments[_SPHERE].span)
        relation = "sphere" if sphere else relation
        arguments = arguments[:_SPHERE]
    second = arguments[1] if len(arguments) > 1 else None
    if call.name in _SYMMETRIC and isinstance(second, SpatialCall) and _is_variable(second):
        arguments = (arguments[1], arguments[0], *arguments[2:])
    given = dict(zip(parts, arguments, strict=False))
    point = given.get("point")
    if len(arguments) != len(parts) or not isinstance(point, SpatialCall) or point.name != _POINT:
        hint = f"write {form} with ST_Point(x, y) of two columns as the point"
        raise QueryError(f"{call.name} compares a point with an area", hint, call.span)
    return FenceParts(relation, point, given["area"], given.get("distance"))


def refuse_spatial(expr: Expr) -> None:
    """Raise where a spatial function stands inside of what Spark computes."""
    for node in walk(expr):
        if isinstance(node, SpatialCall):
            raise QueryError(
                f"{node.name} cannot be used here",
                "in a join, geofences are conditions on one of its streams, and functions"
                " cannot be used",
                node.span,
            )


def _known_forms() -> str:
    return ", ".join(form for _, form, _ in _FORMS.values())


def _is_variable(call: SpatialCall) -> bool:
    return call.name == _POINT and not _is_constant(call)


def _is(expr: Expr, name: str) -> bool:
    return isinstance(expr, SpatialCall) and expr.name == name


def point_of(point: SpatialCall, types: Mapping[str, str]) -> tuple[str, str]:
    """The columns of a point's coordinates; `types` are those of the stream's columns."""
    if len(point.arguments) != 2:
        raise QueryError("a point has two coordinates", "write ST_Point(x, y)", point.span)
    x, y = (_coordinate(argument, types) for argument in point.arguments)
    return x, y


def _coordinate(expr: Expr, types: Mapping[str, str]) -> str:
    """The column of a coordinate, as it is or cast to DOUBLE."""
    column = without_cast(expr)
    if column is None:
        hint = "coordinates are columns; compute others in a derived stream"
        raise QueryError("ST_Point takes two columns of the stream", hint, expr.span)
    type_ = types.get(column.name)
    if type_ is None:
        hint = "a point is where a tuple of the stream is"
        raise QueryError(f"{column.name} is no column of the stream", hint, expr.span)
    if type_ not in INTEGER_TYPES and type_ not in FLOAT_TYPES and decimal_parts(type_) is None:
        hint = "coordinates are numbers"
        raise QueryError(f"column {column.name} is of type {type_}", hint, expr.span)
    return column.name


def without_cast(expr: Expr) -> Column | None:
    if isinstance(expr, Column):
        return expr
    if not isinstance(expr, Opaque):
        return None
    columns = [part for part in expr.parts if isinstance(part, Column)]
    text = "".join(part if isinstance(part, str) else "\0" for part in expr.parts)
    return columns[0] if len(columns) == 1 and _CAST.fullmatch(text) else None


def _area(expr: Expr, relation: FenceRelation) -> Geometry:
    """The area of a geofence; what points are near to may also be points and lines."""
    geometry = constant_geometry(expr)
    if geometry is None:
        hint = "write ST_GeomFromText('POLYGON (…)') or ST_GeomFromGeoJSON('{…}')"
        if isinstance(expr, SpatialCall) and len(expr.arguments) > 1:
            raise QueryError(f"{expr.name} takes one text", hint, expr.span)
        raise QueryError("the area of a geofence is a constant", hint, expr.span)
    return usable(geometry, expr, relation == "sphere", relation in ("within", "intersects"))


def usable(geometry: Geometry, expr: Expr, degrees: bool, areas: bool = False) -> Geometry:
    """A constant that can be compared and measured, or an error that says what is wrong with it.

    degrees: it has to be a place on the earth. areas: points and lines will not do.
    """
    if degrees:
        found = put_on_map([geometry], areas)
    else:
        found = first_fault([geometry], PLANE, areas) or [geometry]
    if isinstance(found, Fault):
        raise QueryError(found.reason, found.hint, expr.span)
    return found[0]


def constant_geometry(expr: Expr) -> Geometry | None:
    """The geometry that a call without columns stands for, in the plane; None: it is no such."""
    match expr:
        case SpatialCall("st_point", (Literal(x), Literal(y))) if _is_number(x) and _is_number(y):
            return shapely.Point(float(x), float(y))  # type: ignore[arg-type]
        case SpatialCall(name, (Literal(str(text)),)) if name in _READERS:
            pass
        case _:
            return None
    try:
        return shapely.force_2d(_READERS[name](text))
    except (shapely.GEOSException, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        hint = "expected WKT" if name == "st_geomfromtext" else "expected a GeoJSON geometry"
        raise QueryError(f"the geometry cannot be read: {reason}", hint, expr.span) from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def distance_of(expr: Expr, reach: float = 0.0) -> float:
    """A constant distance from areas whose coordinates reach so far."""
    match expr:
        case Literal(int() | float() | Decimal() as value) if _is_number(value):
            distance = float(value)
        case _:
            distance = math.nan
    if not distance >= 0:
        hint = "it is a constant of 0 or more, in the units of the coordinates"
        raise QueryError("this is no distance", hint, expr.span)
    if not reach + 2 * distance < PLANE[2]:
        hint = f"coordinates end at {PLANE[2]:g}"
        raise QueryError(f"a distance of {distance:g} is out of range", hint, expr.span)
    return distance
