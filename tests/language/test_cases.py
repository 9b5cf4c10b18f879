"""Every case in tests/cases/language: `-- ok` survives a round trip, `-- fail` is refused.

A case starts at its header and ends at the next one:
    -- ok: why this is interesting
    -- is: the statement as it should be understood            (optional)
    -- fail 2:14: part of the message
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.errors import QueryError
from penstock.language import parse
from tests.language.script import show

FOLDER = Path(__file__).parents[1] / "cases" / "language"
HEADER = re.compile(r"^-- (ok|fail)(?: (\d+):(\d+))?: (.+)\n(?:-- is: (.+)\n)?", re.MULTILINE)


def cases(kind: str) -> list[object]:
    found = []
    for path in sorted(FOLDER.glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        headers = list(HEADER.finditer(text))
        ends = [h.start() for h in headers[1:]] + [len(text)]
        for header, end in zip(headers, ends, strict=True):
            if header[1] == kind:
                body = text[header.end() : end].rstrip("\n")
                found.append(pytest.param(header, body, id=f"{path.stem}: {header[4]}"))
    return found


@pytest.mark.parametrize(("header", "text"), cases("ok"))
def test_parses_and_reads_its_own_rendering_as_the_same(header: re.Match[str], text: str) -> None:
    statements = parse(text)
    assert statements
    shown = "; ".join(map(show, statements))
    assert parse(shown) == statements
    if header[5]:
        assert shown.replace("`", "") == header[5]


@pytest.mark.parametrize(("header", "text"), cases("ok"))
def test_spans_cover_each_statement_without_its_semicolon(header: re.Match[str], text: str) -> None:
    for statement in parse(text):
        piece = text[statement.span.start : statement.span.end]
        assert parse(piece) == (statement,)
        assert not piece.endswith(";")


@pytest.mark.parametrize(("header", "text"), cases("fail"))
def test_is_refused_at_its_place(header: re.Match[str], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert header[4] in str(caught.value)
    assert caught.value.text == text
    if header[2]:
        assert (caught.value.line, caught.value.column) == (int(header[2]), int(header[3]))
