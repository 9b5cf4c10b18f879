"""The window clause: `[RANGE 5 MINUTES SLIDE 1 MINUTE WATTR ts DRATIO 1% PER id]`, `[NOW]` …

Parts stand in any order, each at most once; PER belongs to DRATIO and follows it. The engine's
clock counts milliseconds, so lengths are whole milliseconds; a part that is absent is None and gets
its default when the query is bound.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Literal as OneOf

from penstock.errors import QueryError, Span
from penstock.language.ast import Column, Window
from penstock.language.cursor import Cursor, span_of
from penstock.language.tokens import Token, decode_string

PARTS = ("RANGE", "SLIDE", "WATTR", "DRATIO", "NOW", "UNBOUNDED")
_REFUSED = ("ROWS", "PARTITION BY", "PARTITION")
_WORDS = (*PARTS, "PER", "DWELL", *_REFUSED)
_MILLISECOND = 1_000
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": _MILLISECOND,
    "SECOND": 1_000 * _MILLISECOND,
    "MINUTE": 60_000 * _MILLISECOND,
    "HOUR": 3_600_000 * _MILLISECOND,
    "DAY": 86_400_000 * _MILLISECOND,
    "WEEK": 7 * 86_400_000 * _MILLISECOND,
}
_LENGTH = re.compile(r"\s*([+-]?\s*(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\W\d]+)")
_LONGEST = 2**63 - 1


def parse_window(inside: Sequence[Token], span: Span) -> Window:
    """Read what stands between the brackets; `span` is the clause with its brackets."""
    cursor = Cursor(inside, span.end - 1)
    if not inside:
        raise QueryError("this window is empty", "write [RANGE 5 MINUTES], [NOW] …", span)
    found: dict[str, Token] = {}
    range_us: int | None = None
    slide_us: int | None = None
    drop_ratio: float | None = None
    per: Column | None = None
    wattr: Column | None = None
    while not cursor.done:
        part = cursor.peek()
        if part.upper in _REFUSED:
            what = "PARTITION BY" if part.upper.startswith("PARTITION") else part.upper
            raise QueryError(
                f"{what} windows are not supported yet", "use [RANGE n unit]", part.span
            )
        if part.upper == "PER":
            raise _misplaced_per(part, per)
        if part.upper not in PARTS:
            raise cursor.unexpected(
                f"expected {', '.join(PARTS[:-1])} or {PARTS[-1]}", (*PARTS, "PER")
            )
        if part.upper in found:
            raise QueryError(f"{part.upper} is given twice", "keep one of them", part.span)
        found[part.upper] = cursor.take()
        match part.upper:
            case "RANGE" if cursor.peek().upper in ("UNBOUNDED", "NOW"):
                del found["RANGE"]  # CQL also writes [RANGE UNBOUNDED]
            case "RANGE":
                range_us = _length(cursor, "RANGE")
            case "SLIDE":
                slide_us = _length(cursor, "SLIDE")
            case "WATTR":
                wattr = _attribute(cursor, "WATTR")
            case "DRATIO":
                drop_ratio = _drop_ratio(cursor)
                per = _attribute(cursor, "PER") if cursor.accept("PER") else None
    kinds = [p for p in ("RANGE", "NOW", "UNBOUNDED") if p in found]
    if len(kinds) > 1:
        raise QueryError(
            f"{kinds[0]} and {kinds[1]} exclude each other", "keep one", found[kinds[1]].span
        )
    if "SLIDE" in found and "RANGE" not in found:
        raise QueryError(
            "SLIDE needs a RANGE", "write [RANGE n unit SLIDE n unit]", found["SLIDE"].span
        )
    kind: OneOf["range", "now", "unbounded"]
    kind = "range" if "RANGE" in found else "now" if "NOW" in found else "unbounded"
    return Window(kind, range_us, slide_us, wattr, drop_ratio, per, span)


def parse_dwell(inside: Sequence[Token], span: Span) -> tuple[int | None, float | None]:
    """What `[DWELL 5 MINUTES DRATIO 1%]` says, in microseconds and as a fraction."""
    cursor = Cursor(inside, span.end - 1)
    found = set[str]()
    dwell_us: int | None = None
    drop_ratio: float | None = None
    while not cursor.done:
        part = cursor.expect("DWELL", "DRATIO")
        if part.upper in found:
            raise QueryError(f"{part.upper} is given twice", "keep one of them", part.span)
        found.add(part.upper)
        if part.upper == "DWELL":
            dwell_us = _length(cursor, "DWELL")
        else:
            drop_ratio = _drop_ratio(cursor)
    if not found:
        raise QueryError("these brackets are empty", "write [DWELL 5 MINUTES]", span)
    return dwell_us, drop_ratio


def _length(cursor: Cursor, part: str) -> int:
    """Read `5 MINUTES`, `'5 minutes'` or `1 HOUR 30 MINUTES` as microseconds."""
    first = cursor.peek()
    if first.kind == "string":
        tokens, text = [cursor.take()], decode_string(first.text)
    else:
        tokens = []
        while not cursor.done and cursor.peek().upper not in _WORDS:
            tokens.append(cursor.take())
        text = " ".join(t.text for t in tokens)
    right = f"write {part} 5 MINUTES"
    if not tokens:
        raise QueryError(f"{part} needs a length", right, first.span)
    span = span_of(tokens)
    total, at = Decimal(0), 0
    while match := _LENGTH.match(text, at):
        total += _number(match[1], span) * _unit(match[2], span)
        at = match.end()
    if at == 0 or text[at:].strip():
        raise QueryError(f"{text} is not a length of time", right, span)
    if total <= 0:
        raise QueryError(f"{part} must be longer than zero", right, span)
    if total % _MILLISECOND:
        raise QueryError(f"{part} {text} is not a whole number of milliseconds", "round it", span)
    if total > _LONGEST:
        raise QueryError(f"{part} {text} is too long", "write UNBOUNDED", span)
    return int(total)


def _number(text: str, span: Span) -> Decimal:
    try:
        return Decimal(text.replace(" ", ""))
    except InvalidOperation:
        raise QueryError(f"{text} is not a number", None, span) from None


def _unit(word: str, span: Span) -> int:
    name = word.upper()
    singular = name[:-1] if name.endswith("S") else name
    if singular in ("MONTH", "QUARTER", "YEAR"):
        raise QueryError(f"a {singular.lower()} has no fixed length", "use DAYS", span)
    if singular not in _UNITS:
        known = ", ".join(f"{u}S" for u in list(_UNITS)[1:])
        raise QueryError(f"{word} is not a unit of time", f"units: {known}", span)
    return _UNITS[singular]


def _attribute(cursor: Cursor, part: str) -> Column:
    first = cursor.name(f"a column after {part}")
    if cursor.accept("."):
        second = cursor.name("a column")
        return Column(second.name, first.name, Span(first.span.start, second.span.end))
    return Column(first.name, None, first.span)


def _misplaced_per(part: Token, given: Column | None) -> QueryError:
    if given is not None:
        return QueryError("PER is given twice", "keep one of them", part.span)
    return QueryError("PER needs a DRATIO before it", "write DRATIO 1% PER column", part.span)


def _drop_ratio(cursor: Cursor) -> float:
    sign = cursor.accept("-", "+")
    number = cursor.peek()
    right = "write DRATIO 1% for at most one tuple in a hundred"
    if number.kind != "number":
        raise QueryError("DRATIO needs a percentage", right, number.span)
    cursor.take()
    if not cursor.accept("%"):
        raise QueryError("DRATIO is a percentage and needs its %", right, number.span)
    try:
        percent = Decimal(number.text)
    except InvalidOperation:
        raise QueryError(f"{number.text} is not a percentage", right, number.span) from None
    if (sign is not None and sign.text == "-") or not 0 < percent < 100:
        raise QueryError("DRATIO must lie between 0% and 100%, both excluded", right, number.span)
    return float(percent / 100)
