"""Spatial functions anywhere in a query: columns that the stage computes.

What Spark does not know is computed before Spark sees a tuple, so each function becomes a column
like any other, named by what it computes. Geofences in WHERE stay as they are: they are data of the
slot and found by a grid, where a function is part of the plan and computed for every tuple.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from penstock.errors import QueryError
from penstock.geometry import from_hex, outlined, to_hex
from penstock.language.ast import (
    And,
    Column,
    Comparison,
    Expr,
    IsNull,
    Literal,
    Not,
    Or,
    SpatialCall,
)
from penstock.language.tree import rebuild
from penstock.plan.geofences import (
    constant_geometry,
    distance_of,
    is_constant_fence,
    usable,
    without_cast,
)
from penstock.plan.specs import SpatialValue
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, decimal_parts

# arguments by kind, and the type of the result
_FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "st_point": (("number", "number"), "binary"),
    "st_geomfromtext": (("text",), "binary"),
    "st_geomfromgeojson": (("text",), "binary"),
    "st_within": (("geometry", "geometry"), "boolean"),
    "st_contains": (("geometry", "geometry"), "boolean"),
    "st_intersects": (("geometry", "geometry"), "boolean"),
    "st_dwithin": (("geometry", "geometry", "number", "flag"), "boolean"),
    "st_distance": (("geometry", "geometry"), "double"),
    "st_distancesphere": (("geometry", "geometry"), "double"),
    "st_x": (("geometry",), "double"),
    "st_y": (("geometry",), "double"),
    "st_astext": (("geometry",), "string"),
}
_ASKED = {
    "number": "a column of numbers, or a number",
    "text": "a column of type STRING, or a text",
    "geometry": "ST_Point(x, y), ST_GeomFromText('…'), a region's geom, or a column of WKB",
    "flag": "true or false",
}


class SpatialColumns:
    """Takes spatial functions out of expressions over columns of these types."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = types
        self.found: dict[str, SpatialValue] = {}

    def in_where(self, where: Expr) -> Expr:
        """A condition in which only geofences are left."""

        def change(expr: Expr) -> Expr | None:
            match expr:
                case SpatialCall():
                    return expr if is_constant_fence(expr) else self._column(expr)
                case And() | Or() | Not() | IsNull() | Column() | Literal():
                    return None
                case Comparison(_, SpatialCall(), Literal()):
                    return None
                case _:
                    return self.anywhere(expr)

        return rebuild(where, change)

    def anywhere(self, expr: Expr) -> Expr:
        """An expression without spatial functions."""
        return rebuild(expr, lambda e: self._column(e) if isinstance(e, SpatialCall) else None)

    def _column(self, call: SpatialCall) -> Column:
        tree = self._tree(call)
        text = json.dumps(tree, separators=(",", ":"))
        name = f"{call.name}#{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        columns = tuple(sorted(set(_columns(tree))))
        self.found[name] = SpatialValue(name, _FUNCTIONS[call.name][1], text, columns)
        return Column(name, None, call.span)

    def _tree(self, call: SpatialCall) -> list[Any]:
        """The function as the stage reads it."""
        kinds = _FUNCTIONS[call.name][0]
        least = len(kinds) - 1 if kinds[-1] == "flag" else len(kinds)
        if not least <= len(call.arguments) <= len(kinds):
            hint = f"write {call.name}({', '.join(kinds[:least])})"
            count = "one argument" if least == 1 else f"{least} arguments"
            raise QueryError(f"{call.name} has {count}", hint, call.span)
        if call.name == "st_distancesphere" and not any(map(_is_point, call.arguments)):
            hint = "give it an ST_Point(x, y)"
            raise QueryError(f"{call.name} measures from a point", hint, call.span)
        if call.name == "st_dwithin" and isinstance(call.arguments[2], Literal):
            distance_of(call.arguments[2])
        given = zip(call.arguments, kinds, strict=False)
        degrees = _in_degrees(call)
        return [call.name, *(self._argument(call.name, e, kind, degrees) for e, kind in given)]

    def _argument(self, function: str, expr: Expr, kind: str, degrees: bool) -> Any:
        if kind == "geometry":
            if (geometry := constant_geometry(expr)) is not None:
                return {"geometry": to_hex(usable(geometry, expr, degrees))}
            if isinstance(expr, SpatialCall) and _FUNCTIONS[expr.name][1] == "binary":
                return self._tree(expr)
            if isinstance(expr, Column) and self._types.get(expr.name) == "binary":
                return ["st_geomfromwkb", {"column": expr.name}]
        elif isinstance(expr, Literal) and _is_of(expr.value, kind):
            return {"value": float(str(expr.value)) if kind == "number" else expr.value}
        elif (column := without_cast(expr)) is not None and self._is_of(column, kind):
            return {"column": column.name}
        raise QueryError(f"{function} does not take this", f"it takes {_ASKED[kind]}", expr.span)

    def _is_of(self, column: Column, kind: str) -> bool:
        type_ = self._types.get(column.name, "")
        if kind == "number":
            return type_ in INTEGER_TYPES | FLOAT_TYPES or decimal_parts(type_) is not None
        return kind == "text" and type_ == "string"


def told(value: SpatialValue) -> str:
    """What a column is computed of, in the words of the language; areas in few."""
    return _told(json.loads(value.call))


def _told(node: Any) -> str:
    match node:
        case {"geometry": text}:
            return outlined(from_hex(text))
        case {"column": name}:
            return str(name)
        case {"value": constant}:
            return repr(constant)
        case ["st_geomfromwkb", column]:
            return _told(column)
        case [name, *arguments]:
            return f"{name}({', '.join(map(_told, arguments))})"
    raise AssertionError(node)


def _in_degrees(call: SpatialCall) -> bool:
    """Whether a function measures in metres."""
    asked = call.name == "st_dwithin" and call.arguments[3:] and call.arguments[3]
    return call.name == "st_distancesphere" or (isinstance(asked, Literal) and asked.value is True)


def _is_point(expr: Expr) -> bool:
    geometry = constant_geometry(expr)
    is_call = isinstance(expr, SpatialCall) and expr.name == "st_point"
    return is_call or (geometry is not None and geometry.geom_type == "Point")


def _is_of(value: object, kind: str) -> bool:
    match kind:
        case "number":
            return isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        case "text":
            return isinstance(value, str)
        case _:
            return isinstance(value, bool)


def _columns(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [node["column"]] if "column" in node else []
    return [name for argument in node[1:] for name in _columns(argument)]
