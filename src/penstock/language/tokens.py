"""Text to tokens that know their place, and a cursor to read them.

sqlglot cuts the text; here its tokens are brought to what Spark 4 reads: `'it''s'` is one string,
`.5` one number and `10L` one token. Every token keeps the sqlglot tokens it came from, so that a
piece of a statement can be handed to sqlglot's parser with the positions of the whole script.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar
from typing import Literal as OneOf

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as RawToken
from sqlglot.tokenizer_core import TokenType

from penstock.errors import QueryError, Span

Kind = OneOf["word", "quoted", "string", "number", "symbol", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is the token as written, `upper` a word to compare with (empty unless a bare word)."""

    kind: Kind
    text: str
    upper: str
    span: Span
    raw: tuple[RawToken, ...] = ()

    @property
    def name(self) -> str:
        """The identifier that a word or a quoted token stands for."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text

    @property
    def shown(self) -> str:
        """How a message names this token."""
        return "the end of the statement" if self.kind == "end" else self.text

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")


class _Tokenizer(Spark.Tokenizer):
    # By default SHOW would swallow its statement as one string.
    COMMANDS: ClassVar[set[TokenType]] = set()


_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}
_FOREIGN = frozenset("@${}?#\\")
_PIECE = re.compile(
    r"""
      (?P<blank>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`)
    | (?P<open>['"`])
    | (?P<word>\w+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def _comment_end(text: str, start: int) -> int | None:
    """End of the comment that opens at `start`; comments nest, as in Spark."""
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return None


def _pieces(text: str) -> Iterator[tuple[str, Span]]:
    """Coarse pieces: strings, comments, words, single characters; an unclosed one ends the walk."""
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        assert match is not None
        assert match.lastgroup is not None
        kind, end = match.lastgroup, match.end()
        if kind == "comment":
            closing = _comment_end(text, at)
            kind, end = ("blank", closing) if closing is not None else ("unclosed", len(text))
        elif kind == "open":
            kind, end = "unclosed", len(text)
        yield kind, Span(at, end)
        at = end


def is_complete(text: str) -> bool:
    """Whether the text ends with `;` (blanks and comments aside), outside strings and comments."""
    last = ""
    for kind, span in _pieces(text):
        if kind == "unclosed":
            return False
        if kind != "blank":
            last = text[span.start : span.end]
    return last == ";"


def tokenize(text: str) -> list[Token]:
    """Cut a script into tokens; comments and blanks are gone, positions are those of the script."""
    for kind, span in _pieces(text):
        if kind == "other" and text[span.start] in _FOREIGN:
            raise QueryError(f"{text[span.start]} has no meaning here", None, span)
        if kind == "unclosed":
            opener = "/*" if text.startswith("/*", span.start) else text[span.start]
            what = {"/*": "comment", "`": "quoted name"}.get(opener, "string")
            raise QueryError(
                f"this {what} is not closed",
                f"close it with {'*/' if opener == '/*' else opener}",
                Span(span.start, span.start + len(opener)),
            )
    try:
        raw = _Tokenizer(dialect=Spark()).tokenize(text)
    except TokenError as error:
        raise QueryError(f"cannot read this text: {error}", None, Span(0, len(text))) from None
    tokens: list[Token] = []
    for token in raw:
        _append(tokens, token, text)
    return tokens


def _append(tokens: list[Token], raw: RawToken, text: str) -> None:
    span = Span(raw.start, raw.end + 1)
    written = text[span.start : span.end]
    last = tokens[-1] if tokens else None
    if last is not None and span == last.span:
        # A number with a suffix (10L) comes as three tokens of one place.
        tokens[-1] = Token(last.kind, last.text, last.upper, last.span, (*last.raw, raw))
        return
    touches = last is not None and last.span.end == span.start
    if last is not None and touches and _doubled_quote(last, raw, written):
        whole = Span(last.span.start, span.end)
        tokens[-1] = Token("string", text[whole.start : whole.end], "", whole, (*last.raw, raw))
        return
    if last is not None and touches and last.is_symbol(".") and raw.token_type == TokenType.NUMBER:
        before = tokens[-2] if len(tokens) > 1 else None
        if before is None or before.span.end < last.span.start or before.kind == "symbol":
            whole = Span(last.span.start, span.end)
            tokens[-1] = Token("number", "." + written, "", whole, (*last.raw, raw))
            return
    if raw.token_type == TokenType.HINT:
        raise QueryError("hints are not supported", "leave the hint out", span)
    tokens.append(Token(_kind(raw, written), written, _upper(raw, written), span, (raw,)))


def _doubled_quote(last: Token, raw: RawToken, written: str) -> bool:
    return (
        last.kind == "string"
        and raw.token_type == TokenType.STRING
        and last.text[-1] == written[0]
        and last.text[0] == written[0]
    )


def _kind(raw: RawToken, written: str) -> Kind:
    if raw.token_type in _STRINGS:
        return "string"
    if raw.token_type == TokenType.IDENTIFIER:
        return "quoted"
    if raw.token_type == TokenType.NUMBER:
        return "number"
    if raw.token_type == TokenType.HEX_STRING:
        return "symbol"
    return "word" if written[0].isalnum() or written[0] == "_" else "symbol"


def _upper(raw: RawToken, written: str) -> str:
    if _kind(raw, written) != "word":
        return ""
    return " ".join(written.upper().split()) if not {"-", "/"} & set(written) else raw.text.upper()


def decode_string(written: str) -> str:
    r"""The value of a string literal as Spark reads it.

    >>> decode_string(r"'it''s \u0041\t'"), decode_string(r"r'\d'")
    ("it's A\t", '\\d')
    """
    if written[0] in "rR":
        return written[2:-1]
    quote, body = written[0], written[1:-1]
    value = _ESCAPE.sub(lambda m: quote if m[0] == quote * 2 else _unescape(m[0]), body)
    try:  # two escapes may be the halves of one character
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        hint = r"write both halves (\ud83d\ude00) or the whole (\U0001f600)"
        raise QueryError("a string holds half a character", hint) from None


_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7]{2}|.)|''|\"\"", re.DOTALL)
_NAMED_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def _unescape(escape: str) -> str:
    if escape[0] != "\\":
        return escape  # the other quote, doubled
    code = escape[1:]
    if len(code) > 1:
        number = int(code[1:], 16) if code[0] in "uU" else int(code, 8)
        if number > sys.maxunicode:
            raise QueryError(f"{escape} is no character", r"the last one is \U0010ffff")
        return chr(number)
    if code in "%_":
        return "\\" + code  # kept for LIKE, which reads the escape itself
    return _NAMED_ESCAPES.get(code, code)
