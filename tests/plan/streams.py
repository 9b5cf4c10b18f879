"""The streams that the cases of tests/cases/plan speak of, and how those cases are read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.errors import QueryError
from penstock.language import parse
from penstock.language.ast import BareSelect
from penstock.plan.bind import bind
from penstock.plan.bound import BoundQuery
from penstock.plan.catalog import Catalog, Stream
from penstock.schema import Field, Schema

SENSORS = Schema.of(
    "id INT, room STRING, temp DOUBLE, hum DECIMAL(5,2), ok BOOLEAN, "
    "ts TIMESTAMP, arrived TIMESTAMP"
)
TAGGED = Schema.of("id INT, tags ARRAY<STRING>, ts TIMESTAMP")
CATALOG = Catalog.of(
    [
        Stream("Sensors", SENSORS, "file", "ts", "arrived"),
        Stream("Doors", Schema.of("id INT, open BOOLEAN, at TIMESTAMP"), "file", "at"),
        Stream("Log", Schema.of("line STRING, number BIGINT"), "file"),
        Stream(
            "Words", Schema.of("word STRING, n BIGINT, weight FLOAT, at TIMESTAMP"), "file", "at"
        ),
        Stream("Tagged", Schema((*TAGGED.fields, Field("more", "map<string,int>"))), "file", "ts"),
    ]
)
FOLDER = Path(__file__).parents[1] / "cases" / "plan"
HEADER = re.compile(r"^-- (\w+)(?: (\d+):(\d+))?: (.+)\n(?:-- is: (.+)\n)?", re.MULTILINE)


def cases(file: str, kind: str) -> list[object]:
    text = (FOLDER / file).read_text(encoding="utf-8")
    headers = list(HEADER.finditer(text))
    ends = [h.start() for h in headers[1:]] + [len(text)]
    return [
        pytest.param(header, text[header.end() : end].rstrip("\n"), id=header[4])
        for header, end in zip(headers, ends, strict=True)
        if header[1] == kind
    ]


def bound(text: str) -> list[BoundQuery]:
    """Every SELECT of a text, bound; errors speak of the text."""
    found = []
    for statement in parse(text):
        assert isinstance(statement, BareSelect)
        try:
            found.append(bind(statement.select, CATALOG))
        except QueryError as error:
            raise error.at(text) from None
    return found


def told(error: QueryError) -> str:
    """What a user is told: the message and what would be right."""
    return f"{error.message}. {error.hint}"
