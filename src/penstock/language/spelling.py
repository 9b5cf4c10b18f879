"""How kept text is written, and what a number's spelling means.

Equal expressions should become equal text whatever their spacing and case, so that queries share.
"""

from __future__ import annotations

from decimal import Decimal

from penstock.errors import QueryError
from penstock.language.tokens import Token

LIKES = ("LIKE", "ILIKE", "RLIKE", "REGEXP")
STOPS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "ESCAPE", *LIKES})
_INT64 = range(-(2**63), 2**63)
_TIGHT_AFTER = ("(", "[", ".")
_TIGHT_BEFORE = (")", "]", ",", ".", "[")
_SPACED_BEFORE_PAREN = STOPS | {"CASE", "WHEN", "THEN", "ELSE", "ANY", "SOME", "ALL"}


def gap(before: Token | None, token: Token) -> str:
    """The space between two tokens of kept text; equal expressions should become equal text."""
    if before is None or before.is_symbol(*_TIGHT_AFTER) or token.is_symbol(*_TIGHT_BEFORE):
        return ""
    if token.is_symbol("(") and before.is_name and before.upper not in _SPACED_BEFORE_PAREN:
        return ""
    return " "


def spelling(token: Token, before: Token | None, following: Token | None) -> str:
    """Call names in lower case, keywords in upper case, everything else as written."""
    if token.kind != "word" or (before is not None and before.is_symbol(".")):
        return token.text
    if (
        following is not None
        and following.is_symbol("(")
        and token.upper not in _SPACED_BEFORE_PAREN
    ):
        return token.text.lower()
    return token.upper if token.raw[0].token_type.name != "VAR" else token.text


def number_value(token: Token, negative: bool) -> int | float | Decimal | None:
    """The value of a number as Spark types it; None where only the text can say (10L, 1.5F)."""
    digits = token.raw[0].text if token.text[0] != "." else token.text
    suffix = token.text[len(digits) :].upper()
    sign = "-" if negative else ""
    value: int | float | Decimal
    if suffix == "D" or (suffix == "" and "e" in digits.lower()):
        value = float(sign + digits)
        if value in (float("inf"), float("-inf")):
            raise QueryError(f"{token.text} is too large for a double", None, token.span)
        return value
    if suffix not in ("", "BD"):
        return None
    if suffix == "" and digits.isdigit() and int(sign + digits) in _INT64:
        return int(sign + digits)
    value = Decimal(sign + digits)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and max(len(value.as_tuple().digits), -exponent) > 38:
        raise QueryError(f"{token.text} has more than 38 digits", None, token.span)
    return value
