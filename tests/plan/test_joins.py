"""The WHERE of a join taken apart: into what, and that the parts say what the whole said."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.plan.streams import bound

from penstock.language.ast import (
    And,
    Column,
    Comparison,
    Expr,
    IsNull,
    Literal,
    Not,
    Opaque,
    Or,
)
from penstock.language.render import render
from penstock.language.tree import columns_of
from penstock.plan.joins import JoinCondition, JoinScope, Node, take_apart

TYPES = {"x": "int", "y": "int", "w": "bigint", "s": "string", "f": "double", "g": "float"}
ALIASES = ("A", "B", "C")
SCOPE = JoinScope(ALIASES)


def type_of(node: Node) -> str:
    [column, *_] = columns_of(node[1])
    return TYPES[column.name]


def apart(where: Expr | None) -> JoinCondition:
    return take_apart(where, SCOPE, type_of, lambda _: True, lambda e: isinstance(e, Literal))


# Rows, and what Spark would say of them. Text meets numbers as a number, so '01' = 1 = '1' but
# '01' <> '1'; NaN equals itself; -0.0 equals 0.0 but is another value.
VALUES: dict[str, list[Any]] = {
    "x": [0, 1, None],
    "y": [0, 1, None],
    "w": [0, 1, None],
    "s": ["1", "01", "0", None],
    "f": [0.0, -0.0, 1.0, math.nan, None],
    "g": [0.0, -0.0, 1.0, math.nan, None],
}
ROWS = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})
Row = dict[str, Any]


def equal(left: Any, right: Any) -> bool:
    if isinstance(left, str) != isinstance(right, str):
        left, right = float(left), float(right)
    return left == right or (left != left and right != right)


def less(left: Any, right: Any) -> bool:
    if isinstance(left, str) != isinstance(right, str):
        left, right = float(left), float(right)
    if left != left or right != right:
        return left == left
    return bool(left < right)


def value(expr: Expr, rows: dict[str | None, Row]) -> Any:
    """SQL's three-valued answer; None is NULL."""
    match expr:
        case Column(name, qualifier):
            return rows[qualifier][name]
        case Literal(constant):
            return constant
        case IsNull(part):
            return value(part, rows) is None
        case Not(part):
            known = value(part, rows)
            return None if known is None else not known
        case And(parts) | Or(parts):
            ends = isinstance(expr, Or)
            found = [value(part, rows) for part in parts]
            return ends if ends in found else None if None in found else not ends
        case Opaque((_, Column() as column, text)):
            argument = value(column, rows)
            if argument is None:
                return None
            return argument + 1 if text == " + 1)" else math.copysign(1, argument) < 0
        case Comparison(op, left, right):
            a, b = value(left, rows), value(right, rows)
            if op == "<=>" and None in (a, b):
                return a is b
            if None in (a, b):
                return None
            return less(a, b) if op == "<" else equal(a, b)
    raise AssertionError(expr)


def columns(names: str = "xywsfg") -> st.SearchStrategy[Expr]:
    return st.builds(Column, st.sampled_from(names), st.sampled_from(ALIASES))


next_ = st.builds(lambda c: Opaque(("(", c, " + 1)")), columns("xyw"))
operands = st.one_of(columns(), columns("xy"), columns("xy"), next_)
leaves = st.one_of(
    st.builds(Comparison, st.just("="), operands, operands),
    st.builds(Comparison, st.sampled_from(["<", "<=>"]), operands, operands),
    st.builds(Comparison, st.sampled_from(["=", "<"]), operands, st.just(Literal(1))),
    st.builds(IsNull, columns()),
    st.builds(lambda c: Opaque(("negative(", c, ")")), columns("xywfg")),
    st.builds(Literal, st.sampled_from([True, None])),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(lambda *parts: Or(parts), inner, inner),
        st.builds(lambda *parts: And(parts), inner, inner),
    ),
    max_leaves=3,
)
SAME_X = [Comparison("=", Column("x", "A"), Column("x", other)) for other in "BC"]
equalities = st.builds(Comparison, st.just("="), columns("xy"), columns("xy"))
wheres = st.builds(
    lambda keyed, parts: And((*(SAME_X if keyed else ()), *parts)),
    st.booleans(),
    st.lists(conditions, min_size=1, max_size=6) | st.lists(equalities, min_size=1, max_size=4),
)


def eq(left: str, right: str) -> Expr:
    return Comparison("=", *(Column(*reversed(side.split("."))) for side in (left, right)))


@given(wheres, st.lists(st.tuples(ROWS, ROWS, ROWS), min_size=1, max_size=40))
@example(
    And((eq("A.f", "B.f"), eq("B.f", "C.g"), Not(Opaque(("negative(", Column("f", "A"), ")"))))),
    [tuple(dict.fromkeys(TYPES, v) for v in (0.0, -0.0, 0.0))],
)
@example(
    And((eq("A.s", "B.x"), eq("B.x", "C.s"), eq("A.x", "B.x"), eq("B.x", "C.x"))),
    [tuple({**dict.fromkeys(TYPES, 1), "s": s} for s in ("1", "1", "01"))],
)
def test_the_parts_together_say_what_the_whole_says(
    where: Expr, combinations: list[tuple[Row, Row, Row]]
) -> None:
    condition = apart(where)
    for rows in combinations:
        of_all: dict[str | None, Row] = dict(zip(ALIASES, rows, strict=True))
        selected = all(
            value(e, {None: row}) is True
            for row, exprs in zip(rows, condition.pushed, strict=True)
            for e in exprs
        )
        keys = [
            [value(e, {None: row}) for row, e in zip(rows, part.exprs, strict=True)]
            for part in condition.key
        ]
        met = all(None not in key and all(equal(key[0], v) for v in key) for key in keys)
        kept = selected and met and all(value(e, of_all) is True for e in condition.residual)
        assert kept == (value(where, of_all) is True)
        if kept:
            for part, key in zip(condition.key, keys, strict=True):
                for one, other in ((0, 1), (1, 2), (2, 0)):
                    if part.stands_for(one, other):
                        assert repr(key[one]) == repr(key[other])


@given(wheres, st.randoms())
def test_the_key_does_not_depend_on_the_order_of_the_text(where: And, random: Any) -> None:
    parts = list(where.parts)
    random.shuffle(parts)
    assert apart(And(tuple(parts))).key == apart(where).key


def shown(where: str, streams: str = "Sensors A [NOW], Sensors B [NOW], Sensors C [NOW]") -> str:
    """`A: pushed; …; key; residual` of a WHERE on Sensors."""
    [query] = bound(f"SELECT A.id FROM {streams} WHERE {where}")
    scope = JoinScope(tuple(source.alias for source in query.inputs))

    def type_of(node: Node) -> str:
        field = query.inputs[node[0]].stream.schema.field(columns_of(node[1])[0].name)
        assert field is not None
        return field.type

    def is_safe(node: Node) -> bool:
        return "/" not in render(node[1])

    found = take_apart(query.where, scope, type_of, is_safe, lambda e: isinstance(e, Literal))
    pushed = [
        f"{alias}: {' and '.join(map(render, exprs))}"
        for alias, exprs in zip(scope.aliases, found.pushed, strict=True)
        if exprs
    ]
    keys = [f"{' = '.join(map(render, part.exprs))} {part.type}" for part in found.key]
    return "; ".join([*pushed, *keys, *map(render, found.residual)]).replace("`", "")


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        ("A.id = B.id AND B.id = C.id", "id = id = id int"),
        ("A.id = B.id AND A.temp > 3", "A: temp > 3; A.id = B.id"),
        (
            "A.id = B.id AND B.id = C.id AND A.temp > 3 AND C.ok",
            "A: temp > 3; C: ok; id = id = id int",
        ),
        (
            "A.id = B.id AND B.id = C.id AND A.room = C.room AND C.room = B.room",
            "id = id = id int; room = room = room string",
        ),
        (
            "A.id = B.id AND B.id = C.id AND A.room = C.room",
            "id = id = id int; A.room = C.room",
        ),
        (
            "upper(A.room) = B.room AND B.room = C.room",
            "upper(room) = room = room string",
        ),
        (
            "A.id = B.id AND B.id = C.id AND A.id <=> C.id AND A.temp + B.temp > 1",
            "id = id = id int; A.id <=> C.id; (A.temp + B.temp) > 1",
        ),
        (
            "A.id = B.id AND B.id = C.id AND B.id < 5",
            "A: id < 5; B: id < 5; C: id < 5; id = id = id int",
        ),
        (
            "A.id = B.id AND B.id = C.id AND 1 / B.id < 5",
            "B: (1 / id) < 5; id = id = id int",
        ),
        (
            "A.temp = B.temp AND B.temp = C.temp AND B.temp < 5",
            "B: temp < 5; temp = temp = temp double",
        ),
        (
            "A.id + 1 = B.id AND A.id = B.id AND B.id = C.id",
            "id = id = id int; (A.id + 1) = B.id",
        ),
        ("A.ts = B.arrived AND B.arrived = C.ts", "ts = arrived = ts timestamp"),
        ("A.id = B.id AND B.id = C.id AND TRUE", "A: TRUE; id = id = id int"),
        ("A.id = B.id AND B.id = C.id AND rand() < 1", "id = id = id int; rand() < 1"),
        ("A.id = B.id AND B.room = C.room", "A.id = B.id; B.room = C.room"),
        ("A.id = B.id OR B.id = C.id", "A.id = B.id OR B.id = C.id"),
    ],
)
def test_a_condition_is_taken_apart(where: str, parts: str) -> None:
    assert shown(where) == parts


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        ("id = n AND n > 3", "W: n > 3; id = n bigint"),
        ("temp = weight", "temp = weight double"),
        ("room = word AND word > 'a'", "A: room > 'a'; W: word > 'a'; room = word string"),
        ("room = n", "A.room = W.n"),
        ("hum = n AND id = n", "id = n bigint; A.hum = W.n"),
        ("ts = word OR ok", "A.ts = W.word OR A.ok"),
        ("id = weight", "A.id = W.weight"),
    ],
)
def test_keys_of_different_types(where: str, parts: str) -> None:
    assert shown(where, "Sensors A, Words W") == parts


def test_arrays_and_maps_are_no_keys() -> None:
    both = "A.tags = B.tags; A.more = B.more"
    assert shown(both.replace(";", " AND"), "Tagged A, Tagged B") == both
