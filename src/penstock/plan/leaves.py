"""A condition without AND, OR, NOT as value sets: where it is TRUE and where it is FALSE.

What is neither is unknown. Leaves that compare one operand with literals are sets of that operand;
of any other leaf nothing is known here.
"""

from __future__ import annotations

from penstock.language.ast import (
    Between,
    Column,
    Comparison,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Operator,
    SpatialCall,
    StartsWith,
)
from penstock.plan.comparisons import (
    LiteralValue,
    compared,
    constant_of,
    literal_type,
    members,
)
from penstock.plan.normal import FLIPPED
from penstock.plan.patterns import matching, starting_with
from penstock.plan.specs import ValueSet
from penstock.plan.valuesets import (
    ALL_VALUES,
    NOTHING,
    ONLY_NULL,
    compare,
    complement,
    contains,
    intersect,
    restrict,
    union,
)

Pair = tuple[ValueSet, ValueSet]  # where a leaf is TRUE, where it is FALSE

IS_TRUE, IS_FALSE = restrict(compare("=", 1), 0, 1), restrict(compare("=", 0), 0, 1)
_UNKNOWN: Pair = (NOTHING, NOTHING)
_NEGATED: dict[Operator, Operator] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}


def operand_of(leaf: Expr) -> Expr | None:
    """The expression that a leaf compares with literals only; None for other leaves."""
    others: tuple[Expr, ...]
    match leaf:
        case Comparison(_, left, right):
            operand, others = (right, (left,)) if constant_of(left) else (left, (right,))
        case Between(operand, low, high):
            others = (low, high)
        case InList(operand, items):
            others = items
        case Like(operand, text) | StartsWith(operand, text):
            others = (text,)
        case IsNull(operand):
            others = ()
        case _:
            return leaf if isinstance(leaf, Column | SpatialCall) else None
    if constant_of(operand) or not all(constant_of(other) for other in others):
        return None
    return operand


def constant_truth(comparison: Comparison) -> bool | None:
    """What a comparison of two plain literals says (`1 = 1`); None for any other."""
    if not isinstance(comparison.left, Literal) or constant_of(comparison.right) is None:
        return None
    value = comparison.left.value
    type_ = literal_type(value)
    if type_ is None or not isinstance(value, int | str):
        return None
    pair = _comparison(type_, comparison.op, comparison.right)
    return None if pair is None else contains(pair[0], value)


def sets_of(leaf: Expr, type_: str) -> Pair | None:
    """Where a leaf with an operand of this type is TRUE and FALSE; None if Spark has to compare."""
    match leaf:
        case Column() | SpatialCall():
            return (IS_TRUE, IS_FALSE) if type_ == "boolean" else None
        case IsNull():
            return ONLY_NULL, ALL_VALUES
        case Comparison(op, left, right) if constant_of(left):
            return _comparison(type_, FLIPPED.get(op, op), left)
        case Comparison(op, _, right):
            return _comparison(type_, op, right)
        case Between(_, low, high):
            above, below = _comparison(type_, ">=", low), _comparison(type_, "<=", high)
            if above is None or below is None:
                return None
            return intersect(above[0], below[0]), union(above[1], below[1])
        case InList(_, items):
            return _membership(type_, items)
        case Like(_, pattern, escape) if type_ == "string":
            value = _value(pattern)
            return _text_pair(value, matching(value, escape) if isinstance(value, str) else None)
        case StartsWith(_, prefix) if type_ == "string":
            value = _value(prefix)
            return _text_pair(value, starting_with(value) if isinstance(value, str) else None)
    return None


def _value(literal: Expr) -> LiteralValue:
    constant = constant_of(literal)
    assert constant is not None
    return constant.value


def _comparison(type_: str, op: Operator, literal: Expr) -> Pair | None:
    value = _value(literal)
    if value is None:
        return (ONLY_NULL, ALL_VALUES) if op == "<=>" else _UNKNOWN
    if op == "<=>":
        equal = compared(type_, "=", value)
        return None if equal is None else (equal, union(complement(equal), ONLY_NULL))
    true, false = (compared(type_, o, value) for o in (op, _NEGATED[op]))
    return None if true is None or false is None else (true, false)


def _membership(type_: str, items: tuple[Expr, ...]) -> Pair | None:
    values = [_value(item) for item in items]
    found = members(type_, [value for value in values if value is not None])
    if found is None:
        return None
    # A value that equals no item may still equal the NULL among them: unknown.
    return found, NOTHING if None in values else complement(found)


def _text_pair(text: LiteralValue, found: ValueSet | None) -> Pair | None:
    if text is None:
        return _UNKNOWN
    return None if found is None else (found, complement(found))
