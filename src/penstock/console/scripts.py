"""A script as the commands need it: read, checked before Spark starts, cut in place.

Statements are taken out by overwriting them with spaces, so that the place an error names is a
place in the user's file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, Span
from penstock.language import parse
from penstock.language.ast import (
    BareSelect,
    CreateQuery,
    CreateRegions,
    CreateStream,
    Describe,
    Explain,
    SetOption,
    Show,
    Statement,
)
from penstock.plan.catalog import Stream
from penstock.schema import Field, Schema

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_QUESTIONS = (Show, Describe, Explain)


def read_script(path: str) -> tuple[str, tuple[Statement, ...]]:
    """A file (`-`: stdin) as text and as statements; errors need no Spark."""
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.start}"
        raise PenstockError(f"{path} is not text in UTF-8 ({place})", "save it as UTF-8") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PenstockError(
            f"cannot read {path}: {reason}", "name a file, or - for stdin"
        ) from None
    statements = parse(text)
    if not statements:
        raise PenstockError(f"{path} holds no statement", "write at least one, such as SELECT …;")
    return text, statements


def without(text: str, statements: Iterable[Statement]) -> str:
    """The text with these statements blanked out; everything else stays where it is.

    >>> script = "SHOW RINGS; SELECT a FROM S"
    >>> without(script, parse(script)[:1])
    '          ; SELECT a FROM S'
    """
    for statement in statements:
        text = _blanked(text, statement.span)
    return text


def _blanked(text: str, span: Span) -> str:
    gap = "".join("\n" if c == "\n" else " " for c in text[span.start : span.end])
    return text[: span.start] + gap + text[span.end :]


def closing_questions(statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The SHOW, DESCRIBE and EXPLAIN statements that end a script."""
    first = len(statements)
    while first and isinstance(statements[first - 1], _QUESTIONS):
        first -= 1
    return statements[first:]


def already_there(engine: Engine, statements: tuple[Statement, ...]) -> list[Statement]:
    """Statements whose stream or query the workspace holds from an earlier run of the script.

    What is there in another form is not among them: the engine refuses it by name.
    """
    queries = [parse(q.text)[0] for q in engine.queries()]
    changed = {s.stream.lower() for s in statements if isinstance(s, SetOption) and s.stream}
    found: list[Statement] = []
    for statement in statements:
        match statement:
            case CreateQuery() | BareSelect() | CreateStream() if statement in queries:
                queries.remove(statement)  # the same SELECT twice is two queries
                found.append(statement)
            case CreateStream() if _same_stream(engine, statement, changed):
                found.append(statement)
            case CreateRegions() if _same_regions(engine, statement):
                found.append(statement)
    return found


def _same_stream(engine: Engine, statement: CreateStream, changed: set[str]) -> bool:
    from penstock.runtime.streams import define_stream

    known = engine.catalog.get(statement.name)
    if known is None or statement.query is not None:
        return False
    schema = Schema(tuple(Field(c.name, c.type) for c in statement.columns))
    options = {o.key: o.value for o in statement.options}
    try:
        new = define_stream(statement.name, schema, options, 0)
    except PenstockError:
        return False  # the engine says what is wrong with it
    loose = {"start"} if str(options.get("start", "")).lower() == "now" else set()
    same = [
        (s.name.lower(), s.schema, s.source, s.event_time, s.arrival_time)
        + (() if s.name.lower() in changed else _disorder(s))
        + tuple(o for o in s.options if o[0] not in loose)
        for s in (known, new)
    ]
    return same[0] == same[1]


def _same_regions(engine: Engine, statement: CreateRegions) -> bool:
    """Whether the workspace holds them; what the file has become since then does not matter."""
    known = engine.catalog.regions.get(statement.name.lower())
    options = tuple(sorted((o.key, o.value) for o in statement.options))
    path = str(Path(statement.path).expanduser().absolute())
    return known is not None and (known.path, known.options) == (path, options)


def _disorder(stream: Stream) -> tuple[object, ...]:
    return (
        stream.estimator,
        stream.slack_us,
        stream.slack_tuples,
        stream.idle_us,
        stream.trust_us,
    )
