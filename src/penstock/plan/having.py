"""Constants of HAVING are data: queries share a ring whatever they compare its aggregates with.

A constant that is compared with an aggregate becomes a column of the ring's rows, which has the
value of each row's query. It is of the aggregate's own type, so a comparison means what it meant:
doubles are compared as doubles with any number, 64-bit integers with integers. All other constants
stay where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from penstock.language.ast import Aggregate, And, Between, Column, Comparison, Expr, Literal
from penstock.language.render import render
from penstock.language.tree import rebuild
from penstock.plan.aggregates import result_type
from penstock.plan.joins import conjuncts_of
from penstock.plan.specs import Constant

_TOO_LARGE = 10**38  # Spark's numbers have up to 38 digits


def constant_name(place: int) -> str:
    """What a constant of HAVING is called in the ring's rows."""
    return f"__h{place}"


def with_parts_in_order(having: Expr, types: Mapping[str, str]) -> Expr:
    """The condition with its parts in an order that the text has no part in, if none can fail."""
    parts = conjuncts_of(having)
    if len(parts) < 2 or not all(_cannot_fail(part, types) for part in parts):
        return having
    return And(tuple(sorted(parts, key=_shape)), having.span)


def _shape(part: Expr) -> str:
    """What a condition is without its constants."""
    return render(rebuild(part, lambda e: Column("?") if isinstance(e, Literal) else None))


def _cannot_fail(part: Expr, types: Mapping[str, str]) -> bool:
    """Aggregates that are numbers, compared with numbers; sums of integers may be too large."""
    match part:
        case Comparison(_, Aggregate() as call, Literal(value)):
            constants = [value]
        case Between(Aggregate() as call, Literal(low), Literal(high)):
            constants = [low, high]
        case _:
            return False
    type_ = _type_of(call, types)
    if type_ is None or (call.name == "sum" and type_ == "bigint"):
        return False
    return all(type(constant) in (int, float, Decimal) for constant in constants)


def _type_of(call: Aggregate, types: Mapping[str, str]) -> str | None:
    """The type of an aggregate, if it is one that constants are taken from."""
    match call.arguments:
        case ():
            return result_type(call.name, None)
        case (Column(name),) if name in types:
            return result_type(call.name, types[name])
    return None


@dataclass(slots=True)
class HavingConstants:
    """Constants as they are taken out of a condition: their types, and a query's own values."""

    arguments: Mapping[str, str] = field(default_factory=dict)  # types of columns to aggregate
    types: list[str] = field(default_factory=list)
    values: list[Constant] = field(default_factory=list)

    def taken_out(self, having: Expr) -> Expr:
        """The condition with columns in place of constants."""

        def change(e: Expr) -> Expr | None:
            match e:
                case Comparison(op, Aggregate() as call, Literal() as constant):
                    return Comparison(op, call, self._column(call, constant), e.span)
                case Between(Aggregate() as call, Literal() as low, Literal() as high):
                    bounds = self._column(call, low), self._column(call, high)
                    return Between(call, *bounds, e.span)
            return None

        return rebuild(having, change)

    def _column(self, call: Aggregate, constant: Literal) -> Expr:
        type_ = _type_of(call, self.arguments)
        value = None if type_ is None else _as(type_, constant.value)
        if type_ is None or value is None:
            return constant
        self.types.append(type_)
        self.values.append(value)
        return Column(constant_name(len(self.types) - 1))


def _as(type_: str, value: object) -> Constant | None:
    """A constant as a value of an aggregate's type; None if it has none there, or is too large."""
    match value:
        case bool():
            return None
        case int() | float() | Decimal() if type_ == "double":
            return float(value) if -_TOO_LARGE < value < _TOO_LARGE else None
        case int() if type_ == "bigint":
            return value if -(2**63) <= value < 2**63 else None
    return None
