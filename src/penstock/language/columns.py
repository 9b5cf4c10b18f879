"""Which words of an expression are columns: sqlglot's parse says, by position.

The parse also checks the syntax and finds aliases. Its tree is not kept: sqlglot rewrites functions
between dialects, and the user's own words are what Spark should read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.tokenizer_core import Token as RawToken
from sqlglot.tokenizer_core import TokenType

from penstock.errors import QueryError
from penstock.language.ast import Column
from penstock.language.cursor import span_of
from penstock.language.spelling import LIKES
from penstock.language.tokens import Token

COMPANIONS = ("late", "bad")
_UNIT_FUNCTIONS = ("timestampadd", "timestampdiff", "dateadd", "date_add", "datediff", "date_diff")
_UNITS = (
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND"),
    *("MILLISECOND", "MICROSECOND"),
)
_OWN_SYNTAX = (
    *(
        "cast",
        "try_cast",
        "extract",
        "trim",
        "substring",
        "substr",
        "position",
        "overlay",
        "struct",
    ),
    *("both", "leading", "trailing", "placing", "for"),
)
_CALL_NAMES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.ANY, TokenType.SOME}


@dataclass(frozen=True, slots=True)
class Found:
    """Columns by the index of their first token, with the index after them; the alias's index."""

    columns: dict[int, tuple[Column, int]]
    alias: int | None


def find_columns(tokens: Sequence[Token], script: str) -> Found:
    """Parse one expression (`expr` or `expr AS alias`) and place its columns."""
    _refuse_unsupported(tokens)
    raw = [r for index in range(len(tokens)) for r in _for_sqlglot(tokens, index)]
    try:
        parsed = Spark().parser(error_level=ErrorLevel.RAISE).parse_into(exp.Expr, raw, script)
    except ParseError as error:
        raise _syntax_error(error, tokens, script) from None
    except RecursionError:
        raise QueryError("this expression is nested too deeply", None, span_of(tokens)) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # sqlglot stumbles over some broken texts (`INTERVAL -`) instead of refusing them.
        raise QueryError("cannot read this expression", None, span_of(tokens)) from None
    tree = parsed[0] if len(parsed) == 1 else None
    if tree is None:
        raise QueryError("cannot read this expression", None, span_of(tokens))
    if isinstance(tree, exp.Aliases):
        raise QueryError("an expression has one name", None, span_of(tokens))
    places = {token.span.start: index for index, token in enumerate(tokens)}
    columns: dict[int, tuple[Column, int]] = {}
    for node in tree.find_all(exp.Column):
        if isinstance(node.this, exp.Star):
            raise QueryError(
                "* stands for columns only alone or in COUNT(*)", None, span_of(tokens)
            )
        start = node.parts[0].meta.get("start")
        if start not in places:
            raise QueryError("cannot place the columns of this expression", None, span_of(tokens))
        index = places[start]
        columns[index] = _column(tokens, index)
    alias = None
    if isinstance(tree, exp.Alias):
        alias = places.get(tree.args["alias"].meta.get("start"))
        if alias != len(tokens) - 1 or not tokens[alias].is_name:
            raise QueryError("the name after AS must be a plain name", None, tokens[-1].span)
    return Found(columns, alias)


def _for_sqlglot(tokens: Sequence[Token], index: int) -> tuple[RawToken, ...]:
    """A token as sqlglot should see it.

    Calls are made anonymous, so that sqlglot neither counts their arguments nor takes one of them
    for a keyword (in `date_trunc(unit, ts)` it would); only calls with a syntax of their own stay.
    """
    token, raw = tokens[index], tokens[index].raw[0]
    before = tokens[index - 1] if index else None
    called = index + 1 < len(tokens) and tokens[index + 1].is_symbol("(")
    if token.kind == "word" and _is_unit(tokens, index):
        return (RawToken(TokenType.STRING, raw.text, raw.line, raw.col, raw.start, raw.end),)
    if not called or not token.is_name or token.name.lower() in _OWN_SYNTAX:
        return token.raw
    if raw.token_type not in _CALL_NAMES:
        return token.raw
    if before is not None and (before.upper in LIKES or before.is_symbol(".")):
        return token.raw
    return (RawToken(TokenType.VAR, "call", raw.line, raw.col, raw.start, raw.end),)


def _is_unit(tokens: Sequence[Token], index: int) -> bool:
    """Whether this is MINUTE in `timestampdiff(MINUTE, a, b)`; of two arguments it is a column."""
    if index < 2 or tokens[index].upper not in _UNITS or not tokens[index - 1].is_symbol("("):
        return False
    if tokens[index - 2].text.lower() not in _UNIT_FUNCTIONS:
        return False
    depth, commas = 0, 0
    for token in tokens[index:]:
        depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        if depth < 0:
            break
        commas += depth == 0 and token.is_symbol(",")
    return commas == 2


def _column(tokens: Sequence[Token], index: int) -> tuple[Column, int]:
    """The column that starts here: `c`, `s.c` or `s.late.c`; what follows are its fields."""
    chain = [tokens[index]]
    while (
        len(chain) < 3
        and len(tokens) > (after := index + 2 * len(chain))
        and tokens[after - 1].is_symbol(".")
        and tokens[after].is_name
        and (len(chain) == 1 or chain[1].name.lower() in COMPANIONS)
    ):
        chain.append(tokens[after])
    names = [token.name for token in chain]
    qualifier = ".".join(names[:-1]) or None
    return Column(names[-1], qualifier, span_of(chain)), index + 2 * len(chain) - 1


def _refuse_unsupported(tokens: Sequence[Token]) -> None:
    """Queries in expressions and window functions, wherever they stand in the expression."""
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        if token.is_symbol("->") and not _follows_parameter(tokens, index):
            raise QueryError(
                "-> stands only in an argument of a function",
                "write transform(items, x -> x + 1)",
                token.span,
            )
        if token.is_symbol(".") and not (before and (before.is_name or before.text in ")]")):
            raise QueryError("unexpected .", None, token.span)
        if before is None:
            continue
        if token.upper in ("SELECT", "WITH") and before.is_symbol("("):
            raise QueryError(
                "queries inside expressions are not supported",
                "make the inner query a stream with CREATE STREAM … AS and join it",
                token.span,
            )
        if token.upper == "OVER" and before.is_symbol(")"):
            raise QueryError(
                "window functions with OVER are not supported",
                "put the window after the stream: FROM s [RANGE 5 MINUTES] … GROUP BY …",
                token.span,
            )
        if token.upper == "WITHIN" and before.is_symbol(")"):
            raise QueryError(
                "WITHIN GROUP is not supported",
                "for a percentile write percentile(x, 0.5)",
                token.span,
            )
        if token.upper in ("IGNORE", "RESPECT") and (before.is_symbol(")") or before.is_name):
            raise QueryError(
                f"{token.upper} NULLS is not supported", "write first(x, true)", token.span
            )


def _follows_parameter(tokens: Sequence[Token], arrow: int) -> bool:
    if arrow > 0 and tokens[arrow - 1].is_symbol(")"):
        return True
    return arrow > 1 and tokens[arrow - 1].is_name and tokens[arrow - 2].is_symbol("(", ",")


def _syntax_error(error: ParseError, tokens: Sequence[Token], script: str) -> QueryError:
    detail = error.errors[0] if error.errors else {}
    description = str(detail.get("description", ""))
    token = _token_at(detail, tokens, script)
    span = token.span if token is not None else span_of(tokens)
    word = token.text if token is not None else "this expression"
    if description.startswith("Expecting"):
        return QueryError(
            f"expected {description.removeprefix('Expecting ')} at {word}", None, span
        )
    if description.startswith("Required"):
        return QueryError(f"something is missing at {word}", None, span)
    return QueryError(f"unexpected {word}" if token else "cannot read this expression", None, span)


def _token_at(detail: dict[str, object], tokens: Sequence[Token], script: str) -> Token | None:
    """The token of an error: sqlglot gives the line and column of its last character."""
    line, column = detail.get("line"), detail.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    begin = 0
    for _ in range(line - 1):
        begin = script.find("\n", begin) + 1
    return next((t for t in tokens if t.span.end == begin + column), None)
