"""SELECT: its clauses, cut at their keywords; FROM with windows and joins."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import QueryError, Span
from penstock.language.ast import (
    And,
    Column,
    EventsOf,
    Expr,
    Literal,
    Select,
    SelectItem,
    Star,
    StreamRef,
    Window,
)
from penstock.language.columns import COMPANIONS
from penstock.language.cursor import RESERVED, Cursor, span_of, split_at_commas, suggestion
from penstock.language.expressions import parse_expression, parse_named
from penstock.language.tokens import Token
from penstock.language.tree import aggregates_of
from penstock.language.windows import parse_dwell, parse_window

CLAUSES = ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING")
_ONE_QUERY = "write two queries, or filter one stream with OR"
_REFUSED = {
    "ORDER BY": "a stream has no end to sort; order the results where you read them",
    "SORT BY": "a stream has no end to sort; order the results where you read them",
    "CLUSTER BY": "leave it out",
    "DISTRIBUTE BY": "leave it out",
    "LIMIT": "a continuous query has no last row; DROP QUERY stops it",
    "OFFSET": "leave it out",
    "FETCH": "a continuous query has no last row; DROP QUERY stops it",
    "UNION": _ONE_QUERY,
    "EXCEPT": _ONE_QUERY,
    "INTERSECT": _ONE_QUERY,
    "MINUS": _ONE_QUERY,
    "QUALIFY": "put the window after the stream and use HAVING",
    "WINDOW": "put the window after the stream: FROM s [RANGE 5 MINUTES]",
    "LATERAL": "leave it out",
}
_OUTER = ("LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL", "ASOF")
_OPERATORS = RESERVED - {"NULL", "TRUE", "FALSE"} | {"BY", "RLIKE", "ILIKE", "WHEN", "DIV"}


def parse_select(tokens: Sequence[Token], script: str) -> Select:
    """Read a SELECT (without INTO) that uses up all the tokens."""
    clauses = _cut(tokens)
    span = span_of(tokens)
    if "FROM" not in clauses:
        raise _without_from(tokens)
    items = _items(clauses["SELECT"], script)
    streams, conditions = _streams(clauses["FROM"], script)
    if "WHERE" in clauses:
        conditions.append(_condition(clauses["WHERE"], "WHERE", script))
    where = _all(conditions)
    keys = tuple(
        _key(piece, items, script)
        for piece in (
            split_at_commas(clauses["GROUP BY"], "a key") if "GROUP BY" in clauses else []
        )
    )
    having = parse_expression(clauses["HAVING"], script) if "HAVING" in clauses else None
    return Select(items, streams, where, keys, having, span)


def _cut(tokens: Sequence[Token]) -> dict[str, Sequence[Token]]:
    """The tokens of each clause, by its keyword."""
    starts: list[tuple[str, int]] = [("SELECT", 0)]
    depth = 0
    for index, token in enumerate(tokens[1:], 1):
        depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        before = tokens[index - 1]
        if depth or token.kind != "word" or before.is_symbol("."):
            continue
        last = starts[-1][0]
        if token.upper in _REFUSED and last != "SELECT" and _ends_operand(before):
            raise QueryError(f"{token.upper} is not supported", _REFUSED[token.upper], token.span)
        if token.upper == "SELECT":
            raise QueryError("a second SELECT", "end the first statement with ;", token.span)
        if token.upper not in CLAUSES or (token.upper == "FROM" and before.upper == "DISTINCT"):
            continue
        if CLAUSES.index(token.upper) <= CLAUSES.index(last):
            problem = "is given twice" if token.upper == last else f"must stand before {last}"
            raise QueryError(f"{token.upper} {problem}", None, token.span)
        starts.append((token.upper, index))
    clauses: dict[str, Sequence[Token]] = {}
    ends = [index for _, index in starts[1:]] + [len(tokens)]
    for (word, start), end in zip(starts, ends, strict=True):
        if end == start + 1:
            raise QueryError(f"{word} is empty", None, tokens[start].span)
        clauses[word] = tokens[start + 1 : end]
    return clauses


def _ends_operand(token: Token) -> bool:
    if token.kind == "word":
        return token.upper not in _OPERATORS
    return token.kind in ("quoted", "string", "number") or token.is_symbol(")", "]", "*")


def _without_from(tokens: Sequence[Token]) -> QueryError:
    for token in tokens[1:]:
        if token.kind == "word" and (hint := suggestion(token.text, ["FROM"])):
            return QueryError(f"SELECT needs FROM; found {token.text}", hint, token.span)
    return QueryError("SELECT needs FROM", "name a stream: SELECT … FROM s", tokens[0].span)


def _items(tokens: Sequence[Token], script: str) -> tuple[SelectItem | Star, ...]:
    first = tokens[0]
    if first.upper == "DISTINCT" and len(tokens) > 1 and not tokens[1].is_symbol(",", "."):
        raise QueryError(
            "SELECT DISTINCT is not supported", "group by the columns instead", first.span
        )
    return tuple(_item(piece, script) for piece in split_at_commas(tokens, "an expression"))


def _item(tokens: Sequence[Token], script: str) -> SelectItem | Star:
    span = span_of(tokens)
    qualifier, star = tokens[:-1], tokens[-1]
    if star.is_symbol("*") and (not qualifier or qualifier[-1].is_symbol(".")):
        if not all(t.is_name if i % 2 == 0 else t.is_symbol(".") for i, t in enumerate(qualifier)):
            raise QueryError("expected a stream before .*", None, span)
        return Star(".".join(t.name for t in qualifier[::2]) or None, span)
    expr, name = parse_named(tokens, script)
    return SelectItem(expr, name, span)


def _condition(tokens: Sequence[Token], clause: str, script: str) -> Expr:
    expr = parse_expression(tokens, script)
    for aggregate in aggregates_of(expr):
        raise QueryError(
            f"{aggregate.name} is an aggregate and cannot stand in {clause}",
            "filter groups with HAVING",
            aggregate.span,
        )
    return expr


def _key(tokens: Sequence[Token], items: tuple[SelectItem | Star, ...], script: str) -> Expr:
    first = tokens[0]
    if first.upper in ("ROLLUP", "CUBE", "GROUPING", "GROUPING SETS", "ALL"):
        raise QueryError(f"GROUP BY {first.upper} is not supported", "list plain keys", first.span)
    for token in tokens:
        if token.upper in ("WITH", "GROUPING SETS"):
            raise QueryError(f"{token.upper} is not supported here", "list plain keys", token.span)
    expr = _condition(tokens, "GROUP BY", script)
    if not isinstance(expr, Literal) or type(expr.value) is not int:
        return expr
    # A plain number is a place in the select list, as in Spark.
    chosen = items[expr.value - 1] if 1 <= expr.value <= len(items) else None
    if not isinstance(chosen, SelectItem) or aggregates_of(chosen.expr):
        raise QueryError(
            f"GROUP BY {expr.value} names no plain item of the select list",
            "write the key itself",
            expr.span,
        )
    return chosen.expr


def _all(conditions: Sequence[Expr]) -> Expr | None:
    """All conditions at once, flat."""
    parts: list[Expr] = []
    for each in conditions:
        parts.extend(each.parts if isinstance(each, And) else (each,))
    if len(parts) < 2:
        return parts[0] if parts else None
    spans = [c.span for c in conditions]
    return And(tuple(parts), Span(min(s.start for s in spans), max(s.end for s in spans)))


def _streams(tokens: Sequence[Token], script: str) -> tuple[tuple[StreamRef, ...], list[Expr]]:
    cursor = Cursor(tokens)
    streams, conditions = [_stream(cursor, script)], list[Expr]()
    while not cursor.done:
        token = cursor.peek()
        if token.upper in _OUTER:
            raise QueryError(
                f"{token.upper} joins are not supported",
                "use JOIN … ON, which keeps matching tuples only",
                token.span,
            )
        if cursor.accept(","):
            streams.append(_stream(cursor, script))
            continue
        inner = cursor.accept("INNER", "CROSS")
        if not cursor.accept("JOIN"):
            raise _unexpected_in_from(cursor)
        streams.append(_stream(cursor, script))
        if cursor.peek().upper == "USING":
            raise QueryError("USING is not supported", "write ON a.x = b.x", cursor.peek().span)
        if inner is not None and inner.upper == "CROSS":
            continue
        cursor.expect("ON")
        start, depth = cursor.at, 0
        while not cursor.done:
            token = cursor.peek()
            joins = token.is_symbol(",") or token.upper in ("JOIN", "INNER", "CROSS", *_OUTER)
            call = cursor.peek(1).is_symbol("(")  # left(x, 2) is a function
            if depth == 0 and joins and not call and _ends_operand(cursor.peek(-1)):
                break
            depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
            cursor.take()
        if cursor.at == start:
            raise cursor.unexpected("expected a condition after ON")
        conditions.append(_condition(tokens[start : cursor.at], "ON", script))
    return tuple(streams), conditions


def _unexpected_in_from(cursor: Cursor) -> QueryError:
    token, before = cursor.peek(), cursor.peek(-1)
    if token.is_symbol("["):
        return QueryError("a stream has one window", None, token.span)
    known = ("WHERE", "GROUP BY", "GROUP", "HAVING", "JOIN", "INTO")
    for each in (token, before):
        if each.kind == "word" and (hint := suggestion(each.text, known)):
            return QueryError(
                f"unexpected {each.text}", hint.replace("GROUP?", "GROUP BY?"), each.span
            )
    return QueryError(
        f"unexpected {token.shown} after a stream",
        "expected a window, a comma, JOIN or WHERE",
        token.span,
    )


def _stream(cursor: Cursor, script: str) -> StreamRef:
    """`name [AS alias] [window]`; the window may also stand before the alias."""
    if cursor.peek().is_symbol("("):
        raise QueryError(
            "queries inside FROM are not supported",
            "make the inner query a stream with CREATE STREAM … AS",
            cursor.peek().span,
        )
    start = cursor.at
    if cursor.peek().upper == "EVENTS" and cursor.peek(1).upper == "OF":
        return _events(cursor, script)
    first = cursor.name("a stream")
    if cursor.peek().is_symbol("("):
        raise QueryError(f"{first.text}(…) is not a stream", None, first.span)
    name = first.name
    if cursor.accept("."):
        companion = cursor.name("late or bad")
        if companion.name.lower() not in COMPANIONS:
            hint = suggestion(companion.name, COMPANIONS)
            raise QueryError(
                f"{name} has no companion {companion.name}",
                hint or f"companions: {name}.late, {name}.bad",
                companion.span,
            )
        name = f"{name}.{companion.name.lower()}"
    window = _window(cursor)
    alias = _alias(cursor)
    window = window or _window(cursor)
    return StreamRef(name, alias, window, span_of(cursor.tokens[start : cursor.at]))


def _alias(cursor: Cursor) -> str | None:
    follows = cursor.peek()
    if cursor.accept("AS"):
        return cursor.name("an alias").name
    if follows.is_name and follows.upper not in RESERVED and follows.upper not in _OUTER:
        return cursor.take().name
    return None


def _events(cursor: Cursor, script: str) -> StreamRef:
    """`EVENTS OF name BY column AT ST_Point(x, y) IN regions [DWELL …] [AS alias]`."""
    start = cursor.at
    cursor.expect("EVENTS")
    cursor.expect("OF")
    name = cursor.name("a stream").name
    cursor.expect("BY")
    by = cursor.name("the column that names objects")
    cursor.expect("AT")
    point = cursor.at
    cursor.name("ST_Point(x, y)")
    if not cursor.peek().is_symbol("("):
        raise cursor.unexpected("expected ST_Point(x, y) after AT")
    cursor.group()
    place = parse_expression(cursor.tokens[point : cursor.at], script)
    cursor.expect("IN")
    regions = cursor.name("regions").name
    dwell_us, drop_ratio = None, None
    opening = cursor.peek()
    if opening.is_symbol("["):
        inside = cursor.group()
        brackets = Span(opening.span.start, cursor.peek(-1).span.end)
        dwell_us, drop_ratio = parse_dwell(inside, brackets)
    span = span_of(cursor.tokens[start : cursor.at])
    key = Column(by.name, None, by.span)
    events = EventsOf(key, place, regions, dwell_us, drop_ratio, span)
    return StreamRef(name, _alias(cursor), None, span, events)


def _window(cursor: Cursor) -> Window | None:
    opening = cursor.peek()
    if not opening.is_symbol("["):
        return None
    inside = cursor.group()
    return parse_window(inside, Span(opening.span.start, cursor.peek(-1).span.end))
