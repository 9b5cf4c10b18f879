"""Comparison of an attribute with a literal, as a value set, exactly as Spark (ANSI, UTC) compares.

Spark first brings both sides to one type. Where that keeps the order of the attribute's values, the
comparison is a bound on the attribute itself: `x > 1.5` on integers is `x >= 2`, and a bigint that
is compared as a double gets a bound found by bisection, because rounding is monotone. Wherever the
conversion can lose digits, fail, or depend on how Spark holds the value, the answer is None: let
Spark compare.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from penstock.language.ast import Expr, Literal, Opaque, Operator
from penstock.plan.specs import ValueSet
from penstock.plan.valuesets import (
    ALL_VALUES,
    NOTHING,
    compare,
    complement,
    intersect,
    restrict,
    union,
)
from penstock.schema import FLOAT_TYPES, decimal_parts

LiteralValue = int | float | Decimal | str | bool | date | datetime | None

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGER_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_SCALAR_TYPES = {"string", "boolean", "date", "timestamp", "timestamp_ntz"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_MAX_DECIMAL_DIGITS = 38
MAX_WHOLE_DIGITS = _INTEGER_DIGITS["bigint"]  # of a constant that stands for an expression
# Up to here a decimal becomes a double by one correctly rounded division, however Spark holds it.
_EXACT_DOUBLE_DIGITS = 15

_DATE_TEXT = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP_TEXT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?(Z?))?")
_TYPED_LITERAL = re.compile(r"(DATE|TIMESTAMP)\s*'([^']*)'", re.IGNORECASE)
_CAST_LITERAL = re.compile(r"CAST\s*\(\s*'([^']*)'\s+AS\s+(DATE|TIMESTAMP)\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal that stands in a predicate; `value` None is NULL."""

    value: LiteralValue


def is_comparable_type(type_: str) -> bool:
    """Whether attributes of this type can be selected by value sets at all."""
    return is_exact_type(type_) or type_ in FLOAT_TYPES or type_ in _SCALAR_TYPES


def is_exact_type(type_: str) -> bool:
    return type_ in INTEGER_BITS or decimal_parts(type_) is not None


def constant_of(expr: Expr) -> Constant | None:
    """Read a literal, or `DATE '…'` and `TIMESTAMP '…'` in ISO form; None for anything else."""
    if isinstance(expr, Literal):
        return Constant(expr.value)
    if not isinstance(expr, Opaque) or not all(isinstance(p, str) for p in expr.parts):
        return None
    text = "".join(str(part) for part in expr.parts).strip()
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    if typed := _TYPED_LITERAL.fullmatch(text):
        kind, content = typed[1], typed[2]
    elif cast := _CAST_LITERAL.fullmatch(text):
        kind, content = cast[2], cast[1]
    else:
        return None
    value = _read_date(content) if kind.upper() == "DATE" else _read_timestamp(content)
    return None if value is None else Constant(value)


def literal_type(value: LiteralValue) -> str | None:
    """The type that Spark gives to a literal; None for NULL and for what Spark cannot hold."""
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int() if -(2**63) <= value < 2**63:
            return "int" if -(2**31) <= value < 2**31 else "bigint"
        case int() | Decimal():
            whole, scale = _digits(value)
            fits = max(whole + scale, 1) <= _MAX_DECIMAL_DIGITS
            return f"decimal({max(whole + scale, 1)},{scale})" if fits else None
        case float():
            return "double"
        case str():
            return "string"
        case datetime():
            return "timestamp"
        case date():
            return "date"


def compared(type_: str, op: Operator, value: LiteralValue) -> ValueSet | None:
    """The non-null values v of the type for which Spark finds `v op value` true; value not NULL."""
    if type_ in INTEGER_BITS and _is_number(value):
        greatest = 2 ** (INTEGER_BITS[type_] - 1) - 1
        if isinstance(value, float):
            return _monotone(op, value, -greatest - 1, greatest, float)
        assert isinstance(value, int | Decimal)
        # Beyond bigint Spark folds the comparison to TRUE or FALSE even where the column is NULL.
        literal = literal_type(value) if -(2**63) <= value <= 2**63 - 1 else None
        if literal is None or not fit_one_decimal([type_, literal]):
            return None
        return restrict(_lattice(op, Fraction(value)), -greatest - 1, greatest)
    if type_ in FLOAT_TYPES and _is_number(value):
        double = _as_double(value)
        return None if double is None else compare(op, double)
    if parts := decimal_parts(type_):
        return _compared_decimal(*parts, op, value)
    match type_, value:
        case "string", str():
            return compare(op, value)
        case "boolean", bool():
            return restrict(compare(op, int(value)), 0, 1)
        case "date", str():
            day = _read_date(value)
            return None if day is None else compare(op, _days(day))
        case "date", datetime():
            return _lattice(op, Fraction(_microseconds(value), _DAY_US))
        case "date", date():
            return compare(op, _days(value))
        case "timestamp", str():
            moment = _read_timestamp(value)
            return None if moment is None else compare(op, _microseconds(moment))
        case "timestamp_ntz", str():
            moment = None if value.endswith("Z") else _read_timestamp(value)
            return None if moment is None else compare(op, _microseconds(moment))
        case "timestamp", datetime():
            return compare(op, _microseconds(value))
        case (("timestamp" | "timestamp_ntz"), date()) if not isinstance(value, datetime):
            return compare(op, _days(value) * _DAY_US)
    return None


def members(type_: str, values: Sequence[LiteralValue]) -> ValueSet | None:
    """The values v for which Spark finds `v IN (values)` true; no value is NULL.

    Spark brings the operand and all items to one common type, so items of different kinds may
    change how each of them compares: then the answer is None.
    """
    if not values:
        return NOTHING
    types = [literal_type(value) for value in values]
    known = [t for t in types if t is not None]
    if len(known) < len(types):
        return None
    if all(is_exact_type(t) or t in FLOAT_TYPES for t in (type_, *known)):
        if any(t in FLOAT_TYPES for t in (type_, *known)):
            values = [_as_double(value) for value in values]
        elif not fit_one_decimal([type_, *known]):
            return None
    elif len(set(known)) > 1:
        return None
    sets = [None if value is None else compared(type_, "=", value) for value in values]
    found = [s for s in sets if s is not None]
    return union(*found) if len(found) == len(sets) else None


def compare_alike(types: list[str]) -> bool:
    """Whether values of these types compare in pairs as they do when brought to one type."""
    if all(is_exact_type(type_) for type_ in types):
        return fit_one_decimal(types)
    return len(set(types)) == 1 or FLOAT_TYPES.issuperset(types)


def fit_one_decimal(types: list[str]) -> bool:
    """Whether exact numeric types have a common decimal type that keeps all their digits.

    The type of a constant may be wider than its digits say, up to a bigint's: there is room left.
    """
    whole, scale = MAX_WHOLE_DIGITS, 0
    for type_ in types:
        precision, digits = decimal_parts(type_) or (_INTEGER_DIGITS[type_], 0)
        whole, scale = max(whole, precision - digits), max(scale, digits)
    return whole + scale <= _MAX_DECIMAL_DIGITS


def _compared_decimal(
    precision: int, scale: int, op: Operator, value: LiteralValue
) -> ValueSet | None:
    greatest = 10**precision - 1
    if isinstance(value, float):
        if precision > _EXACT_DOUBLE_DIGITS:
            return None
        return _monotone(op, value, -greatest, greatest, lambda v: v / 10**scale)
    type_ = literal_type(value)
    if type_ is None or not isinstance(value, int | Decimal) or isinstance(value, bool):
        return None
    if not fit_one_decimal([f"decimal({precision},{scale})", type_]):
        return None
    return restrict(_lattice(op, Fraction(value) * 10**scale), -greatest, greatest)


def _lattice(op: Operator, bound: Fraction) -> ValueSet:
    """The integers v with `v op bound`."""
    match op:
        case "=" | "<=>":
            return compare("=", bound.numerator) if bound.denominator == 1 else NOTHING
        case "<>":
            return compare("<>", bound.numerator) if bound.denominator == 1 else ALL_VALUES
        case "<" | ">=":
            return compare(op, math.ceil(bound))
        case "<=" | ">":
            return compare(op, math.floor(bound))


def _monotone(
    op: Operator, limit: float, least: int, greatest: int, as_double: Callable[[int], float]
) -> ValueSet:
    """The integers v with `as_double(v) op limit`, for a conversion that keeps the order."""
    reaches = _first(least, greatest, lambda v: as_double(v) >= limit)
    exceeds = _first(least, greatest, lambda v: as_double(v) > limit)
    match op:
        case "<" | ">=":
            found = compare(op, reaches)
        case "<=":
            found = compare("<", exceeds)
        case ">":
            found = compare(">=", exceeds)
        case "=" | "<=>" | "<>":
            found = intersect(compare(">=", reaches), compare("<", exceeds))
            found = complement(found) if op == "<>" else found
    return restrict(found, least, greatest)


def _first(least: int, greatest: int, holds: Callable[[int], bool]) -> int:
    """The first integer for which it holds, greatest + 1 if for none; once true it stays true."""
    low, high = least, greatest + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _as_double(value: LiteralValue) -> float | None:
    """The double that Spark makes of a numeric literal; None where its two ways do not agree."""
    if isinstance(value, float):
        return value
    if not isinstance(value, int | Decimal) or literal_type(value) is None:
        return None
    rounded = float(value)
    _, scale = _digits(value)
    # Short decimals are divided as doubles, long ones are rounded once.
    divided = float(Fraction(value) * 10**scale) / float(10**scale)
    return rounded if rounded == divided else None


def _digits(value: int | Decimal) -> tuple[int, int]:
    """Digits before and after the point, as Spark types the literal."""
    _, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)  # Spark has no infinite or NaN decimal literals
    scale = max(-exponent, 0)
    return max(len(digits) + exponent, 0), scale


def _is_number(value: LiteralValue) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _read_date(text: str) -> date | None:
    if not _DATE_TEXT.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _read_timestamp(text: str) -> datetime | None:
    match = _TIMESTAMP_TEXT.fullmatch(text)
    if match is None:
        return None
    day, time, fraction, _ = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time or '00:00:00'}").replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment + timedelta(microseconds=int((fraction or "").ljust(6, "0")))


def _days(day: date) -> int:
    return day.toordinal() - _EPOCH.toordinal()


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
