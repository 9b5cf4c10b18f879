"""The one traversal of expressions: children, walking, and rebuilding from the leaves up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

from penstock.language.ast import (
    Aggregate,
    And,
    Between,
    Column,
    Comparison,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    SpatialCall,
    StartsWith,
)


def children(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Column() | Literal():
            return ()
        case Comparison(_, left, right):
            return (left, right)
        case And(parts) | Or(parts):
            return parts
        case Not(part):
            return (part,)
        case InList(operand, items):
            return (operand, *items)
        case Between(operand, low, high):
            return (operand, low, high)
        case IsNull(operand):
            return (operand,)
        case Like(operand, text) | StartsWith(operand, text):
            return (operand, text)
        case SpatialCall(_, arguments):
            return arguments
        case Aggregate():
            return (*expr.arguments, *((expr.where,) if expr.where is not None else ()))
        case Opaque(parts):
            return tuple(p for p in parts if not isinstance(p, str))
        case _:
            assert_never(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def columns_of(expr: Expr) -> tuple[Column, ...]:
    """The columns in an expression, in order."""
    return tuple(e for e in walk(expr) if isinstance(e, Column))


def aggregates_of(expr: Expr) -> tuple[Aggregate, ...]:
    """The aggregates in an expression, in order."""
    return tuple(e for e in walk(expr) if isinstance(e, Aggregate))


def rebuild(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Replace nodes from the top: where `change` answers, its answer stands and is not entered."""
    if (changed := change(expr)) is not None:
        return changed

    def go(e: Expr) -> Expr:
        return rebuild(e, change)

    match expr:
        case Column() | Literal():
            return expr
        case Comparison(op, left, right):
            return Comparison(op, go(left), go(right), expr.span)
        case And(parts) | Or(parts):
            return replace(expr, parts=tuple(go(p) for p in parts))
        case Not(part):
            return Not(go(part), expr.span)
        case InList(operand, items):
            return InList(go(operand), tuple(go(i) for i in items), expr.span)
        case Between(operand, low, high):
            return Between(go(operand), go(low), go(high), expr.span)
        case IsNull(operand):
            return IsNull(go(operand), expr.span)
        case Like(operand, pattern, escape):
            return Like(go(operand), go(pattern), escape, expr.span)
        case StartsWith(operand, prefix):
            return StartsWith(go(operand), go(prefix), expr.span)
        case SpatialCall(name, arguments):
            return SpatialCall(name, tuple(go(a) for a in arguments), expr.span)
        case Aggregate():
            where = None if expr.where is None else go(expr.where)
            return replace(expr, arguments=tuple(go(a) for a in expr.arguments), where=where)
        case Opaque(parts):
            return Opaque(tuple(p if isinstance(p, str) else go(p) for p in parts), expr.span)
        case _:
            assert_never(expr)
