"""One form for what may be written in several ways, so that queries which say the same are equal.

Only what cannot change a result is brought to one form: parentheses around a column, the sides of a
comparison. Conditions that become value sets need none of it: those are in normal form already.
"""

from __future__ import annotations

import re

from penstock.language.ast import Column, Comparison, Expr, Literal, Opaque, Operator
from penstock.language.render import RenderColumn, render, render_column
from penstock.language.tree import rebuild

FLIPPED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

# Between these an operand stands alone, with or without parentheses; `->` begins a lambda's body.
_OPENING = re.compile(r"([-+*/%(,]\s*)\(\Z")
_CLOSING = re.compile(r"\)(?=\s*(?:[+*/%),]|-(?!>)))")


def without_parentheses(expr: Expr) -> Expr:
    """The expression without the parentheses around single columns: `(a) + 1` is `a + 1`."""
    return rebuild(expr, lambda e: _bare(e) if isinstance(e, Opaque) else None)


def _bare(opaque: Opaque) -> Opaque:
    parts = list(opaque.parts)
    for place in range(1, len(parts) - 1):
        before, node, after = parts[place - 1 : place + 2]
        while isinstance(before, str) and isinstance(node, Column) and isinstance(after, str):
            if not (_OPENING.search(before) and _CLOSING.match(after)):
                break
            before, after = _OPENING.sub(r"\1", before), after[1:]
            parts[place - 1], parts[place + 1] = before, after
    return Opaque(tuple(parts), opaque.span)


def oriented(expr: Expr, column: RenderColumn = render_column) -> Expr:
    """The condition with the sides of each comparison in one order, literals on the right.

    Spark does not look at the right side where the left one is NULL: the same rows only if no side
    can fail, or one is a literal.
    """

    def change(e: Expr) -> Expr | None:
        if not isinstance(e, Comparison) or _side(e.left, column) <= _side(e.right, column):
            return None
        return Comparison(FLIPPED.get(e.op, e.op), e.right, e.left, e.span)

    return rebuild(expr, change)


def with_literals_right(expr: Expr) -> Expr:
    """The condition with `5 < x` as `x > 5`."""

    def change(e: Expr) -> Expr | None:
        match e:
            case Comparison(op, Literal() as left, right) if not isinstance(right, Literal):
                return Comparison(FLIPPED.get(op, op), right, left, e.span)
        return None

    return rebuild(expr, change)


def _side(expr: Expr, column: RenderColumn) -> tuple[bool, str]:
    return isinstance(expr, Literal), render(expr, column)
