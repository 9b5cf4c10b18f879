"""`( key = value, … )` of WITH and INTO, and the values that SET takes too."""

from __future__ import annotations

from penstock.errors import QueryError
from penstock.language.ast import Option
from penstock.language.cursor import Cursor, span_of, split_at_commas
from penstock.language.tokens import decode_string


def parse_options(cursor: Cursor) -> tuple[Option, ...]:
    """Read the group at the cursor; keys are lower case, dotted keys are one key."""
    opening = cursor.peek()
    inside = cursor.group()
    if not inside:
        raise QueryError("no options given", "write (key = 'value', …)", opening.span)
    options: dict[str, Option] = {}
    for piece in split_at_commas(inside, "an option"):
        each = Cursor(piece)
        key = _key(each)
        if key in options:
            raise QueryError(f"option {key} is given twice", "keep one of them", piece[0].span)
        each.expect("=")
        options[key] = Option(key, parse_value(each), span_of(piece))
        each.finish()
    return tuple(options.values())


def _key(cursor: Cursor) -> str:
    if cursor.peek().kind == "string":
        return decode_string(cursor.take().text).lower()
    parts = []
    while True:
        token = cursor.take()
        if not token.is_name:
            raise QueryError("expected an option's name", "write key = 'value'", token.span)
        parts.append(token.name)
        if not cursor.accept("."):
            return ".".join(parts).lower()


def parse_value(cursor: Cursor) -> str | int | float | bool:
    """A string, a number, TRUE or FALSE."""
    sign = cursor.accept("-", "+")
    token = cursor.peek()
    if token.kind == "number":
        cursor.take()
        text = ("-" if sign is not None and sign.text == "-" else "") + token.text
        try:
            return int(text) if token.text.isdigit() else float(text)
        except ValueError:
            raise QueryError(f"{token.text} is not a plain number", None, token.span) from None
    if token.kind == "string" and sign is None:
        cursor.take()
        return decode_string(token.text)
    if sign is None and (word := cursor.accept("TRUE", "FALSE")):
        return word.upper == "TRUE"
    hint = (
        f"quote it: '{token.text}'" if token.is_name else "write a string, a number or TRUE/FALSE"
    )
    raise QueryError(f"expected a value, found {token.shown}", hint, token.span)
