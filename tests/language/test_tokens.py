"""Tokens: where a script ends, what strings mean, and places in the text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import QueryError
from penstock.language import is_complete, parse
from penstock.language.ast import BareSelect
from penstock.language.render import quote_string
from penstock.language.tokens import decode_string


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("SHOW RINGS;", True),
        ("SHOW RINGS; -- done\n /* yes */ ", True),
        ("SHOW RINGS", False),
        ("SHOW RINGS; SHOW", False),
        ("SELECT ';", False),
        ("SELECT 'it''s';", True),
        ("SELECT 'a\\';", False),
        ("SELECT r'a\\';", True),
        ("SELECT `;", False),
        ("SELECT a -- ;", False),
        ("SELECT a /* ;", False),
        ("SELECT a /* /* */ ;", False),
        ("", False),
        (";", True),
    ],
)
def test_a_script_is_complete_when_it_ends_with_a_semicolon(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@given(st.text(st.characters(codec="utf-8")))
def test_a_quoted_string_decodes_to_its_value(value: str) -> None:
    assert decode_string(quote_string(value)) == value or "\\%" in value or "\\_" in value


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "b",
                "'",
                '"',
                "`",
                "\\",
                ";",
                "-",
                "--",
                "/*",
                "*/",
                "[",
                "]",
                "(",
                ")",
                ",",
                ".",
                "1",
                "1.5",
                "%",
                "\n",
                "{",
                "::",
                "->",
                "=>",
                "=",
                "<",
                ">",
                "!",
                "|",
                "||",
            ]
        )
        | st.sampled_from(
            [
                "AND",
                "OR",
                "NOT",
                "IN",
                "IS",
                "NULL",
                "LIKE",
                "BETWEEN",
                "CASE",
                "WHEN",
                "THEN",
                "END",
                "ANY",
                "FROM",
                "WHERE",
            ]
        )
        | st.sampled_from(
            [
                "AS",
                "max(",
                "count(*",
                "DISTINCT",
                "FILTER",
                "INTERVAL",
                "DATE",
                "CAST(",
                "RANGE",
                "NOW",
                "INTO",
                "SELECT",
            ]
        ),
        max_size=8,
    ).map(" ".join)
)
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    for script in (text, f"SELECT a FROM s WHERE {text}", f"SELECT {text} FROM s [{text}]"):
        error = refusal(script)
        if error is not None:
            assert error.text == script
            assert error.span is not None
            assert 0 <= error.span.start <= len(script)


def refusal(script: str) -> QueryError | None:
    try:
        parse(script)
    except QueryError as error:
        return error
    return None


def test_places_are_characters_of_the_whole_script() -> None:
    text = "SHOW RINGS;\n/* 😀 */ SELECT '😀', s.température\n\tFROM s [NOW] WHERE 数 > 1"
    _, statement = parse(text)
    assert isinstance(statement, BareSelect)
    select = statement.select

    def cut(node: object) -> str:
        return text[node.span.start : node.span.end]  # type: ignore[attr-defined]

    assert [cut(item) for item in select.items] == ["'😀'", "s.température"]
    assert cut(select.streams[0]) == "s [NOW]"
    assert cut(select.streams[0].window) == "[NOW]"
    assert cut(select.where) == "数 > 1"


def test_an_empty_script_has_no_statements() -> None:
    assert parse("  -- nothing\n;;") == ()


def test_deep_nesting_is_refused_and_long_chains_are_not() -> None:
    with pytest.raises(QueryError, match="nested too deeply"):
        parse(f"SELECT a FROM s WHERE {'(' * 5000}a{')' * 5000}")
    (statement,) = parse("SELECT a FROM s WHERE " + " AND ".join(["a > 1"] * 3000))
    assert isinstance(statement, BareSelect)
