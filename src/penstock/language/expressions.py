"""Expressions: boolean structure becomes nodes, everything else stays the user's own Spark SQL.

The grammar is Spark's (`booleanExpression`, `valueExpression`), read by recursive descent:
NOT binds tighter than AND, one predicate (IN, BETWEEN, LIKE, IS) may follow a chain of comparisons.
What lies below a comparison is not taken apart: its text is kept, evenly spaced, with the columns
and aggregates in it as nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.errors import QueryError, Span
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
    Operator,
    Or,
    SpatialCall,
    StartsWith,
)
from penstock.language.columns import find_columns
from penstock.language.cursor import Cursor, span_of, split_at_commas
from penstock.language.functions import AGGREGATES, SPATIAL
from penstock.language.spelling import LIKES, STOPS, gap, number_value, spelling
from penstock.language.tokens import Token, decode_string

_COMPARISONS: dict[str, Operator] = {
    "=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
    "<=>": "<=>",
}  # fmt: skip
_CONSTANTS: dict[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_QUANTIFIERS = ("ANY", "SOME", "ALL")


def parse_expression(tokens: Sequence[Token], script: str) -> Expr:
    """Read one expression that uses up all the tokens."""
    found = find_columns(tokens, script)
    if found.alias is not None:
        token = tokens[found.alias]
        raise QueryError(f"unexpected {token.text}", None, token.span)
    return _Reader(tokens, found.columns).whole()


def parse_named(tokens: Sequence[Token], script: str) -> tuple[Expr, str | None]:
    """Read `expr`, `expr name` or `expr AS name`."""
    found = find_columns(tokens, script)
    if found.alias is None:
        return _Reader(tokens, found.columns).whole(), None
    end = found.alias - (tokens[found.alias - 1].upper == "AS")
    return _Reader(tokens[:end], found.columns).whole(), tokens[found.alias].name


class _Reader(Cursor):
    """A cursor that knows the columns; `base` is where its tokens begin in the whole expression."""

    def __init__(
        self,
        tokens: Sequence[Token],
        columns: dict[int, tuple[Column, int]],
        base: int = 0,
        in_aggregate: bool = False,
    ) -> None:
        super().__init__(tokens)
        self.columns = columns
        self.base = base
        self.in_aggregate = in_aggregate

    def inner(self, start: int, end: int, in_aggregate: bool = False) -> _Reader:
        return _Reader(
            self.tokens[start:end],
            self.columns,
            self.base + start,
            in_aggregate or self.in_aggregate,
        )

    def whole(self) -> Expr:
        if self.done:
            raise self.unexpected("expected an expression")
        try:
            expr = self._or()
        except RecursionError:
            raise QueryError(
                "this expression is nested too deeply", None, span_of(self.tokens)
            ) from None
        self.finish()
        return expr

    def _since(self, start: int) -> Span:
        return span_of(self.tokens[start : self.at])

    def _or(self) -> Expr:
        return self._chain("OR", Or, self._and)

    def _and(self) -> Expr:
        return self._chain("AND", And, self._not)

    def _chain(self, word: str, node: type[And] | type[Or], part: Callable[[], Expr]) -> Expr:
        start, parts = self.at, [part()]
        while self.accept(word):
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        flat: list[Expr] = []
        for each in parts:
            flat.extend(each.parts if isinstance(each, node) else (each,))
        return node(tuple(flat), self._since(start))

    def _not(self) -> Expr:
        start = self.at
        if self.accept("NOT", "!"):
            return Not(self._not(), self._since(start))
        return self._predicate()

    def _predicate(self) -> Expr:
        start = self.at
        left = self._comparison()
        left_end = self.at
        negated = self.accept("NOT") is not None
        token = self.peek()
        expr: Expr
        if self.accept("IN"):
            expr = InList(left, self._items(), self._since(start))
        elif self.accept("BETWEEN"):
            low = self._comparison()
            self.expect("AND")
            expr = Between(left, low, self._comparison(), self._since(start))
        elif token.kind == "word" and token.upper in LIKES:
            operator = self.at
            self.take()
            if self.peek().upper in _QUANTIFIERS and self.peek(1).is_symbol("("):
                self.take()
                self.group()
                # NOT LIKE ALL is not the opposite of LIKE ALL: NOT goes to each item
                return self._opaque(range(start, self.at))
            pattern, escape = self._comparison(), self._escape()
            if token.upper == "LIKE":
                expr = Like(left, pattern, escape, self._since(start))
            else:
                expr = self._opaque([*range(start, left_end), *range(operator, self.at)])
        elif not negated and self.accept("IS"):
            return self._is(left, start, left_end)
        elif negated:
            raise self.unexpected(
                "expected IN, BETWEEN or LIKE after NOT", ["IN", "BETWEEN", "LIKE"]
            )
        else:
            return left
        return Not(expr, expr.span) if negated else expr

    def _escape(self) -> str:
        if not self.accept("ESCAPE"):
            return "\\"
        if self.peek().kind != "string":
            raise self.unexpected("expected a string after ESCAPE")
        return decode_string(self.take().text)

    def _is(self, left: Expr, start: int, left_end: int) -> Expr:
        is_at = self.at - 1
        negated = self.accept("NOT") is not None
        value_at = self.at
        expr: Expr
        if self.accept("NULL"):
            expr = IsNull(left, self._since(start))
        elif self.accept("DISTINCT"):
            self.expect("FROM")
            expr = Comparison("<=>", left, self._comparison(), self._since(start))
            negated = not negated
        elif self.accept("TRUE", "FALSE", "UNKNOWN"):
            expr = self._opaque([*range(start, left_end), is_at, value_at])
        else:
            raise self.unexpected("expected NULL, TRUE, FALSE or DISTINCT FROM after IS", ["NULL"])
        return Not(expr, self._since(start)) if negated else expr

    def _items(self) -> tuple[Expr, ...]:
        if not self.peek().is_symbol("("):
            raise self.unexpected("expected ( after IN")
        start = self.at + 1
        self.group()
        return self._list(start, self.at - 1)

    def _list(self, start: int, end: int, in_aggregate: bool = False) -> tuple[Expr, ...]:
        exprs: list[Expr] = []
        if start == end:
            raise QueryError("expected an expression", None, self.tokens[end].span)
        for piece in split_at_commas(self.tokens[start:end], "an expression"):
            exprs.append(self.inner(start, start + len(piece), in_aggregate).whole())
            start += len(piece) + 1
        return tuple(exprs)

    def _comparison(self) -> Expr:
        start = self.at
        left = self._value()
        while (token := self.peek()).kind == "symbol" and token.text in _COMPARISONS:
            self.take()
            left = Comparison(_COMPARISONS[token.text], left, self._value(), self._since(start))
        return left

    def _value(self) -> Expr:
        """Take what lies between operators of the boolean grammar."""
        start = self.at
        cases = 0
        while not self.done:
            token = self.peek()
            place = self.base + self.at
            if place in self.columns:
                self.at = self.columns[place][1] - self.base
                continue
            after_dot = self.at > start and self.tokens[self.at - 1].is_symbol(".")
            if token.kind == "word" and not after_dot:
                cases += (token.upper == "CASE") - (token.upper == "END" and cases > 0)
            if cases == 0 and not after_dot and self._stops(token):
                break
            if token.is_symbol("(", "["):
                self.group()
            elif token.is_symbol("::"):
                self._type()
            else:
                self.take()
        if self.at == start:
            raise self.unexpected("expected an expression")
        return self._classify(start, self.at)

    @staticmethod
    def _stops(token: Token) -> bool:
        if token.kind == "word":
            return token.upper in STOPS
        return token.is_symbol(",", "!", "->", *_COMPARISONS)

    def _type(self) -> None:
        """Take `:: type`, whose angle brackets are no comparisons."""
        self.take()
        if self.peek().kind != "word":
            raise self.unexpected("expected a type after ::")
        self.take()
        if self.peek().is_symbol("<"):
            depth = 0
            while not self.done:
                token = self.take()
                depth += token.is_symbol("<") - token.is_symbol(">")
                if depth == 0:
                    break

    def _classify(self, start: int, end: int) -> Expr:
        first, span = self.tokens[start], span_of(self.tokens[start:end])
        place = self.base + start
        if place in self.columns and self.columns[place][1] == self.base + end:
            return self.columns[place][0]
        if end - start == 1:
            if first.kind == "string":
                return Literal(decode_string(first.text), span)
            if first.upper in _CONSTANTS:
                return Literal(_CONSTANTS[first.upper], span)
        signed = first.is_symbol("-", "+") and end - start == 2
        number = self.tokens[end - 1]
        if number.kind == "number" and (signed or end - start == 1):
            value = number_value(number, negative=signed and first.text == "-")
            if value is not None:
                return Literal(value, span)
        if first.is_symbol("(") and self._closing(start) == end - 1 and end - start > 2:
            inside = split_at_commas(self.tokens[start + 1 : end - 1], "an expression")
            if len(inside) == 1:  # with commas it is a row, which stays text
                return self.inner(start + 1, end - 1).whole()
        if self._is_aggregate(start):
            aggregate, after = self._aggregate(start)
            if after == end:
                return aggregate
        if first.upper == "STARTSWITH" and end - start > 3 and self._closing(start + 1) == end - 1:
            arguments = self._list(start + 2, end - 1)
            if len(arguments) == 2:
                return StartsWith(*arguments, span)
        if self._is_spatial(start):
            call, after = self._spatial(start)
            if after == end:
                return call
        return self._opaque(range(start, end))

    def _is_spatial(self, index: int) -> bool:
        token, following = self.tokens[index], self.tokens[index + 1 : index + 2]
        called = bool(following) and following[0].is_symbol("(")
        return called and token.is_name and token.name.lower() in SPATIAL

    def _spatial(self, start: int) -> tuple[SpatialCall, int]:
        """Read the spatial function that starts here; returns it and the index after it."""
        end = self._closing(start + 1) + 1
        arguments = self._list(start + 2, end - 1, self.in_aggregate)
        span = span_of(self.tokens[start:end])
        return SpatialCall(self.tokens[start].name.lower(), arguments, span), end

    def _closing(self, opening: int) -> int:
        depth = 0
        for index in range(opening, len(self.tokens)):
            token = self.tokens[index]
            depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
            if depth == 0:
                return index
        raise AssertionError("brackets are balanced")

    def _is_aggregate(self, index: int) -> bool:
        token = self.tokens[index]
        if not token.is_name or token.name.lower() not in AGGREGATES:
            return False
        if index + 1 >= len(self.tokens) or not self.tokens[index + 1].is_symbol("("):
            return False
        before = self.tokens[index - 1] if index else None
        quantifier = before is not None and before.upper in LIKES and token.upper in _QUANTIFIERS
        return not (quantifier or (before is not None and before.is_symbol(".")))

    def _aggregate(self, start: int) -> tuple[Aggregate, int]:
        """Read the aggregate call that starts here; returns it and the index after it."""
        token = self.tokens[start]
        name, opening, closing = token.name.lower(), start + 1, self._closing(start + 1)
        if self.in_aggregate:
            raise QueryError(
                f"{name} stands inside another aggregate",
                "compute the inner one in a derived stream: CREATE STREAM … AS SELECT …",
                token.span,
            )
        if name in ("grouping", "grouping_id"):
            raise QueryError(f"{name} is not supported", "GROUP BY takes plain keys", token.span)
        first = opening + 1
        distinct = self.tokens[first].upper == "DISTINCT"
        if distinct or (self.tokens[first].upper == "ALL" and closing - first > 1):
            first += 1
        arguments: tuple[Expr, ...] = ()
        if name == "count" and closing == first + 1 and self.tokens[first].is_symbol("*"):
            if distinct:
                raise QueryError("COUNT(DISTINCT *) is not supported", "name columns", token.span)
        elif first == closing:
            right = "write count(*)" if name == "count" else None
            raise QueryError(f"{name} needs an argument", right, token.span)
        else:
            for inside in self.tokens[first:closing]:
                if inside.upper in ("ORDER BY", "LIMIT"):
                    raise QueryError(
                        f"{inside.upper} in {name} is not supported", None, inside.span
                    )
            arguments = self._list(first, closing, in_aggregate=True)
        where, after = None, closing + 1
        if after + 1 < len(self.tokens) and self.tokens[after].upper == "FILTER":
            end = self._closing(after + 1)
            where = self.inner(after + 3, end, in_aggregate=True).whole()
            after = end + 1
        span = span_of(self.tokens[start:after])
        return Aggregate(name, arguments, distinct, where, span), after

    def _opaque(self, indexes: Sequence[int]) -> Opaque:
        """Keep these tokens as text, in parentheses unless they are one token or one call."""
        tokens = [self.tokens[i] for i in indexes]
        atomic = len(tokens) == 1 or (
            tokens[0].is_name
            and tokens[1].is_symbol("(")
            and self._closing(indexes[1]) == indexes[-1]
        )
        parts: list[str | Expr] = []
        text = "" if atomic else "("
        before: Token | None = None
        skip_to = -1
        for index in indexes:
            if index < skip_to:
                continue
            token = self.tokens[index]
            following = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
            text += gap(before, token)
            node: Expr | None = None
            if self.base + index in self.columns:
                node, after = self.columns[self.base + index]
                skip_to = after - self.base
            elif self._is_aggregate(index):
                node, skip_to = self._aggregate(index)
            elif self._is_spatial(index):
                node, skip_to = self._spatial(index)
            if node is not None:
                parts += [text, node] if text else [node]
                text = ""
                before = self.tokens[skip_to - 1]
            else:
                text += spelling(token, before, following)
                before = token
        text += "" if atomic else ")"
        return Opaque((*parts, text) if text else tuple(parts), span_of(tokens))
