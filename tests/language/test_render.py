"""Rendering: random expressions survive a round trip, and the details of literals are right."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.language import parse, render
from penstock.language.ast import (
    Aggregate,
    And,
    BareSelect,
    Between,
    Column,
    Comparison,
    Expr,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    Opaque,
    Or,
    SelectItem,
    SpatialCall,
    StartsWith,
)
from penstock.language.functions import SPATIAL
from penstock.language.render import default_name
from penstock.language.tree import aggregates_of, columns_of, walk


def read(text: str) -> Expr:
    (statement,) = parse(f"SELECT {text} AS x FROM s")
    assert isinstance(statement, BareSelect)
    (item,) = statement.select.items
    assert isinstance(item, SelectItem)
    return item.expr


names = st.one_of(
    st.sampled_from(
        ["a", "Temp", "date", "end", "select", "max", "größe", "温度", "a b", "x``y", "5"]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=5),
)
columns = st.builds(Column, names, st.none() | st.sampled_from(["s", "S.late", "from", "`"]))
literals = st.builds(
    Literal,
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**15), 10**15, allow_nan=False, places=4)
    | st.text(st.characters(codec="utf-8"), max_size=8),
)
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


def two_or_more(
    part: st.SearchStrategy[Expr], node: type[And] | type[Or]
) -> st.SearchStrategy[Expr]:
    flat = part.filter(lambda e: not isinstance(e, node))
    return st.lists(flat, min_size=2, max_size=3).map(lambda parts: node(tuple(parts)))


def deeper(part: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    plain = part.filter(lambda e: not aggregates_of(e))
    some = st.lists(part, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Comparison, operators, part, part),
        two_or_more(part, And),
        two_or_more(part, Or),
        st.builds(Not, part),
        st.builds(InList, part, some),
        st.builds(Between, part, part, part),
        st.builds(IsNull, part),
        st.builds(Like, part, part, st.sampled_from(["\\", "!", "'", "%"])),
        st.builds(StartsWith, part, part),
        st.builds(SpatialCall, st.sampled_from(sorted(SPATIAL)), some),
        st.builds(
            Aggregate,
            st.sampled_from(["sum", "max", "any", "percentile"]),
            st.lists(plain, min_size=1, max_size=2).map(tuple),
            st.booleans(),
            st.none() | plain,
        ),
        st.just(Aggregate("count", ())),
        columns.map(lambda c: Opaque(("lower(", c, ")"))),
        columns.map(lambda c: Opaque(("(", c, " + 1)"))),
        columns.map(lambda c: Opaque(("(", c, " RLIKE 'a+')"))),
    )


expressions = st.recursive(columns | literals, deeper, max_leaves=8)


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_a_rendered_expression_reads_back_as_the_same(expr: Expr) -> None:
    assert read(render(expr)) == expr


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000.0, "1000.0D"),
        (-0.5, "-0.5D"),
        (1e22, "1e+22D"),
        (float("nan"), "double('NaN')"),
        (float("-inf"), "double('-Infinity')"),
        (Decimal("0.0000001"), "0.0000001"),
        (Decimal("5"), "5BD"),
        (Decimal("1E3"), "1000BD"),
        (-7, "-7"),
        (True, "TRUE"),
        (None, "NULL"),
        ("it's \\ \n", "'it\\'s \\\\ \\n'"),
    ],
)
def test_a_literal_is_written_with_its_type(value: object, text: str) -> None:
    assert render(Literal(value)) == text  # type: ignore[arg-type]


def test_nodes_inside_kept_text_are_rendered_as_the_caller_says() -> None:
    expr = read("100 * sum(a) / lower(s.b)")
    text = render(expr, column=lambda c: f"<{c.name}>", aggregate=lambda a: f"[{a.name}]")
    assert text == "(100 * [sum] / lower(<b>))"


def test_kept_text_stays_right_when_a_node_in_it_is_replaced() -> None:
    minus = Opaque(("(", Column("a"), " - ", Literal(-5), ")"))
    assert render(minus) == "(`a` - (-5))"
    compared = Opaque(("(", Comparison("=", Column("a"), Literal(1)), " :: INT)"))
    assert render(compared) == "((`a` = 1) :: INT)"


def test_columns_and_aggregates_are_found_everywhere() -> None:
    expr = read(
        "CASE WHEN a IN (1) THEN sum(b + c) FILTER (WHERE d > 1) ELSE transform(e, x -> x) END"
    )
    assert [c.name for c in columns_of(expr)] == ["a", "b", "c", "d", "e"]
    assert [a.name for a in aggregates_of(expr)] == ["sum"]
    assert next(walk(expr)) == expr


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("s.temp", "temp"),
        ("MAX( s.temp )", "max(temp)"),
        ("count(*)", "count(*)"),
        ("temp*2", "temp * 2"),
        ("(a + b) * (c + d)", "(a + b) * (c + d)"),
        ("a > 1", "a > 1"),
        ("'x'", "'x'"),
    ],
)
def test_an_item_without_alias_is_named_after_its_text(text: str, name: str) -> None:
    assert default_name(read(text)) == name
