"""A reader over the tokens of one statement, with the refusals that all of the grammar shares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from penstock.errors import QueryError, Span
from penstock.language.tokens import Token

# Words that end or join clauses; as names they need backquotes.
RESERVED = frozenset(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "HAVING",
        "AS",
        "WITH",
        "INTO",
        "ON",
        "JOIN",
        "INNER",
        "CROSS",
        "LEFT",
        "RIGHT",
        "FULL",
        "NATURAL",
        "USING",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "BETWEEN",
        "LIKE",
        "NULL",
        "TRUE",
        "FALSE",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "DISTINCT",
    ]
) | {"GROUP BY", "ORDER BY", "PARTITION BY"}


def suggestion(word: str, known: Iterable[str]) -> str | None:
    """`did you mean X?` for a word that is nearly one of the known ones."""
    names = {k.upper(): k for k in known}
    close = difflib.get_close_matches(word.upper(), names, n=1, cutoff=0.7)
    return f"did you mean {names[close[0]]}?" if close else None


def span_of(tokens: Sequence[Token]) -> Span:
    return Span(tokens[0].span.start, tokens[-1].span.end)


def split_at_commas(tokens: Sequence[Token], what: str) -> list[list[Token]]:
    """Cut at the commas outside all brackets; no piece may be empty."""
    pieces: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        if depth == 0 and token.is_symbol(","):
            if not pieces[-1]:
                raise QueryError(f"expected {what} before the comma", None, token.span)
            pieces.append([])
        else:
            pieces[-1].append(token)
    if not pieces[-1]:
        after = next((t for t in reversed(tokens) if t.is_symbol(",")), None)
        raise QueryError(f"expected {what}", None, after.span if after else None)
    return pieces


def check_brackets(tokens: Sequence[Token]) -> None:
    """Refuse a bracket without its partner; all later steps rely on balance."""
    partner = {")": "(", "]": "["}
    opened: list[Token] = []
    for token in tokens:
        if token.is_symbol("(", "["):
            opened.append(token)
        elif token.is_symbol(")", "]"):
            if not opened or opened[-1].text != partner[token.text]:
                raise QueryError(
                    f"{token.text} without its {partner[token.text]}", None, token.span
                )
            opened.pop()
    if opened:
        closing = ")" if opened[-1].text == "(" else "]"
        raise QueryError(f"{opened[-1].text} is not closed", f"add {closing}", opened[-1].span)


class Cursor:
    """A position in a token sequence; `peek` past the end gives an end token with a place."""

    def __init__(self, tokens: Sequence[Token], after: int | None = None) -> None:
        self.tokens = tokens
        self.at = 0
        end = after if after is not None else (tokens[-1].span.end if tokens else 0)
        self._end = Token("end", "", "", Span(end, end + 1))

    def peek(self, ahead: int = 0) -> Token:
        at = self.at + ahead
        return self.tokens[at] if 0 <= at < len(self.tokens) else self._end

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def accept(self, *words: str) -> Token | None:
        """Take the next token if it is one of these words or symbols."""
        token = self.peek()
        if token.upper in words if token.kind == "word" else token.is_symbol(*words):
            return self.take()
        return None

    def expect(self, *words: str) -> Token:
        if token := self.accept(*words):
            return token
        raise self.unexpected(f"expected {' or '.join(words)}", words)

    def unexpected(self, wanted: str, known: Iterable[str] = ()) -> QueryError:
        token = self.peek()
        hint = suggestion(token.text, known) if token.kind == "word" else None
        return QueryError(f"{wanted}, found {token.shown}", hint, token.span)

    def name(self, what: str) -> Token:
        token = self.peek()
        if not token.is_name:
            raise self.unexpected(f"expected {what}")
        if token.upper in RESERVED:
            raise QueryError(
                f"expected {what}, found the keyword {token.text}",
                f"to use it as a name write `{token.text}`",
                token.span,
            )
        return self.take()

    def group(self) -> list[Token]:
        """Take `( … )` or `[ … ]` and return what is inside."""
        self.take()
        start, depth = self.at, 1
        while depth:
            token = self.take()
            depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        return list(self.tokens[start : self.at - 1])

    def finish(self, known: Iterable[str] = ()) -> None:
        if not self.done:
            token = self.peek()
            hint = suggestion(token.text, known) if token.kind == "word" else None
            raise QueryError(f"unexpected {token.shown}", hint, token.span)
