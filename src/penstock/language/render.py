"""Expressions back to Spark SQL.

Operands are put in parentheses unless they are a column, a literal, a call or an `Opaque`, so the
text means the same whatever the precedence; parsing it again gives an equal expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
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

RenderColumn = Callable[[Column], str]
RenderAggregate = Callable[[Aggregate], str]


def quote_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def quote_string(value: str) -> str:
    r"""A Spark string literal of this value.

    >>> quote_string("it's a \\ b")
    "'it\\'s a \\\\ b'"
    """
    text = "".join(_ESCAPES.get(c, c) for c in value)
    return f"'{text}'"


_ESCAPES = {
    "\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b",
    "\0": "\\u0000", "\x1a": "\\Z",
}  # fmt: skip


def render_column(column: Column) -> str:
    """The backquoted name; each part of a qualifier such as `Sensors.late` is quoted by itself."""
    qualifier = [] if column.qualifier is None else column.qualifier.split(".")
    return ".".join(quote_name(part) for part in (*qualifier, column.name))


def render_literal(literal: Literal) -> str:
    match literal.value:
        case None:
            return "NULL"
        case bool(value):
            return "TRUE" if value else "FALSE"
        case int(value):
            return str(value)
        case float(value):
            # NaN and infinities have no literal of their own.
            return f"{value!r}D" if math.isfinite(value) else f"double('{_not_finite(value)}')"
        case Decimal() as value:
            text = format(value, "f")
            return text if "." in text else f"{text}BD"
        case str(value):
            return quote_string(value)
        case other:
            assert_never(other)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def render(
    expr: Expr, column: RenderColumn = render_column, aggregate: RenderAggregate | None = None
) -> str:
    """Spark SQL of an expression; `column` and `aggregate` may say how those nodes are written."""

    def whole(e: Expr) -> str:
        return render(e, column, aggregate)

    def operand(e: Expr) -> str:
        alone = isinstance(e, Column | Literal | StartsWith | SpatialCall | Aggregate | Opaque)
        return whole(e) if alone else f"({whole(e)})"

    def like(e: Like, word: str) -> str:
        # LIKE any(x) would be LIKE ANY (x)
        pattern = operand(e.pattern)
        pattern = f"({pattern})" if isinstance(e.pattern, Aggregate) else pattern
        escape = "" if e.escape == "\\" else f" ESCAPE {quote_string(e.escape)}"
        return f"{operand(e.operand)} {word} {pattern}{escape}"

    def condition(e: Expr) -> str:
        return f"({whole(e)})" if isinstance(e, And | Or) else whole(e)

    def inside_text(e: Expr) -> str:
        signed = isinstance(e, Literal) and whole(e).startswith("-")
        return f"({whole(e)})" if signed else operand(e)

    match expr:
        case Column():
            return column(expr)
        case Literal():
            return render_literal(expr)
        case Comparison(op, left, right):
            return f"{operand(left)} {op} {operand(right)}"
        case And(parts):
            return " AND ".join(condition(p) for p in parts)
        case Or(parts):
            return " OR ".join(condition(p) for p in parts)
        case Not(InList(value, items)):
            return f"{operand(value)} NOT IN ({', '.join(whole(i) for i in items)})"
        case Not(Between(value, low, high)):
            return f"{operand(value)} NOT BETWEEN {operand(low)} AND {operand(high)}"
        case Not(IsNull(value)):
            return f"{operand(value)} IS NOT NULL"
        case Not(Like() as part):
            return like(part, "NOT LIKE")
        case Not(part):
            return f"NOT {operand(part)}"
        case InList(value, items):
            return f"{operand(value)} IN ({', '.join(whole(i) for i in items)})"
        case Between(value, low, high):
            return f"{operand(value)} BETWEEN {operand(low)} AND {operand(high)}"
        case IsNull(value):
            return f"{operand(value)} IS NULL"
        case Like():
            return like(expr, "LIKE")
        case StartsWith(value, prefix):
            return f"startswith({whole(value)}, {whole(prefix)})"
        case SpatialCall(name, arguments):
            return f"{name}({', '.join(whole(a) for a in arguments)})"
        case Aggregate(name, arguments, distinct, where):
            if aggregate is not None:
                return aggregate(expr)
            inside = ", ".join(whole(a) for a in arguments) if arguments else "*"
            condition_text = "" if where is None else f" FILTER (WHERE {whole(where)})"
            return f"{name}({'DISTINCT ' if distinct else ''}{inside}){condition_text}"
        case Opaque(parts):
            return "".join(p if isinstance(p, str) else inside_text(p) for p in parts)
        case other:
            assert_never(other)


def default_name(expr: Expr) -> str:
    """The output name of an item without an alias: a column's name, else its compact text.

    >>> default_name(Aggregate("max", (Column("temp", "A"),)))
    'max(temp)'
    """
    if isinstance(expr, Column):
        return expr.name
    text = render(expr, column=lambda c: c.name)
    wrapped = isinstance(expr, Opaque) and isinstance(expr.parts[0], str)
    return text[1:-1] if wrapped and text.startswith("(") and text.endswith(")") else text
