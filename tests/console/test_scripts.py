"""Scripts cut in place."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.console.repl import piped_statements
from penstock.console.scripts import already_there, closing_questions, read_script, without
from penstock.errors import PenstockError, QueryError
from penstock.language import parse
from penstock.language.ast import CreateStream
from penstock.plan.catalog import Catalog
from penstock.runtime.streams import define_stream
from penstock.schema import Schema

SCRIPT = "SHOW RINGS; -- first\nSELECT a\n  FROM S; SHOW QUERIES;\nSHOW STREAMS"


def test_what_is_left_of_a_script_stays_where_it_was() -> None:
    first, second, *_ = statements = parse(SCRIPT)
    left = without(SCRIPT, statements[:1])
    assert len(left) == len(SCRIPT)
    assert left[second.span.start :] == SCRIPT[second.span.start :]
    assert parse(left) == statements[1:]
    assert parse(without(SCRIPT, statements)) == ()
    assert first not in parse(left)


def test_only_the_questions_at_the_end_close_a_script() -> None:
    statements = parse(SCRIPT)
    assert closing_questions(statements) == statements[2:]
    assert closing_questions(statements[:2]) == ()


def test_a_script_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="no such file"):
        read_script(str(tmp_path / "missing.cql"))
    (tmp_path / "latin.cql").write_bytes(b"-- caf\xe9\nSHOW RINGS;")
    with pytest.raises(PenstockError, match="not text in UTF-8"):
        read_script(str(tmp_path / "latin.cql"))
    (tmp_path / "empty.cql").write_text("-- nothing yet\n")
    with pytest.raises(PenstockError, match="no statement"):
        read_script(str(tmp_path / "empty.cql"))


def test_an_error_in_a_script_is_placed_before_spark_is_needed(tmp_path: Path) -> None:
    (tmp_path / "a.cql").write_text("SHOW RINGS;\nSELECT FROM S;")
    with pytest.raises(QueryError) as caught:
        read_script(str(tmp_path / "a.cql"))
    assert caught.value.line == 2


def test_piped_lines_become_statements_that_know_their_line() -> None:
    lines = ["SHOW RINGS;\n", "\n", "SELECT a\n", "FROM S;\n", ".help\n", "SHOW STREAMS"]
    found = [
        (s.count("\n", 0, len(s) - len(s.lstrip())) + 1, s.strip()) for s in piped_statements(lines)
    ]
    assert found == [
        (1, "SHOW RINGS;"),
        (3, "SELECT a\nFROM S;"),
        (5, ".help"),
        (6, "SHOW STREAMS"),
    ]


CREATE = (
    "CREATE STREAM S (id INT, ts TIMESTAMP)"
    " WITH (source = 'generator', event_time = 'ts', rows = 5, idle = '5 s'{more})"
)


@pytest.mark.parametrize(
    ("script", "known"),
    [
        (CREATE.format(more=""), True),
        (CREATE.format(more=", trust = '1 day'"), True),
        (CREATE.format(more=", trust = '2 days'"), False),
        (CREATE.format(more=", slack = 5"), False),
        (CREATE.format(more=", slack = 5") + "; SET S.idle = '1 s'", True),
        (CREATE.format(more="").replace("5 s", "6 s"), False),
    ],
)
def test_a_stream_is_there_already_if_its_disorder_is_the_same(script: str, known: bool) -> None:
    [statement] = parse(CREATE.format(more=""))
    assert isinstance(statement, CreateStream)
    options = {o.key: o.value for o in statement.options}
    stream = define_stream("S", Schema.of("id INT, ts TIMESTAMP"), options, 0)
    engine: Any = SimpleNamespace(queries=list, catalog=Catalog.of([stream]))
    create, *_ = statements = parse(script)
    assert already_there(engine, statements) == ([create] if known else [])
