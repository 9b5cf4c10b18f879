"""WHERE taken apart: against a three-valued evaluator, and by the paper's example."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import QueryError
from penstock.language.ast import (
    And,
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
    Operator,
    Or,
    StartsWith,
)
from penstock.plan.conjunctions import MAX_TERMS
from penstock.plan.failing import cannot_fail
from penstock.plan.patterns import matching
from penstock.plan.predicates import Predicate, analyse
from penstock.plan.specs import Attribute, Constant, Interval, Term, ValueSet
from penstock.plan.valuesets import compare, contains, intersect, one_of

OPERATORS: list[Operator] = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
TYPES = {
    "a": "int",
    "b": "int",
    "l": "bigint",
    "x": "double",
    "y": "double",
    "s": "string",
    "flag": "boolean",
    "day": "date",
    "ts": "timestamp",
    "tags": "array<string>",
    "m": "decimal(10,2)",
}
A, B, X, S = Column("a"), Column("b"), Column("x"), Column("s")
QUOTIENT = Opaque((A, " / ", B))
TWO, NOT_A_NUMBER, AB = Opaque(("(1 + 1)",)), Opaque(("double('NaN')",)), Opaque(("('a' || 'b')",))
IS_TRUE = compare(">=", 1)

Value = int | float | str | bool | None


def derive(expr: Expr) -> Attribute:
    """A stand-in for Spark's analyser: knows the types of the few expressions used here."""
    name = "d_" + hashlib.sha256(repr(expr).encode()).hexdigest()[:8]
    texts = "" if not isinstance(expr, Opaque) else "".join(map(str, expr.parts))
    if not isinstance(expr, Opaque) or " LIKE " in texts:
        return Attribute(name, "boolean", repr(expr))
    if "upper" in texts:
        return Attribute(name, "string", repr(expr))
    return Attribute(name, "int" if "length" in texts else "double", repr(expr))


CONSTANTS: dict[str, Expr] = {
    "(1 + 1)": Literal(2),
    "double('NaN')": Literal(float("nan")),
    "('a' || 'b')": Literal("ab"),
    "(1 + 1) = 2": Literal(True),
    "(1 + 1) > 2": Literal(False),
    "to_date('1970-01-02')": Opaque(("DATE '1970-01-02'",)),
}


def fold(sql: str) -> Expr | None:
    """A stand-in for Spark's optimiser: knows the few constants used here."""
    return CONSTANTS.get(sql)


def keeps(predicate: Predicate, row: Mapping[str, Constant | None]) -> bool:
    return any(all(contains(s, row[name]) for name, s in t.sets) for t in predicate.terms)


def gt(left: Expr, value: Value | Decimal) -> Comparison:
    return Comparison(">", left, Literal(value))


def the_set(where: Expr) -> ValueSet:
    """The one set of the one term that the condition becomes."""
    ((sets),) = (term.sets for term in analyse(where, TYPES, derive, fold).terms)
    ((_, values),) = sets
    return values


# Three-valued logic

SMALL = [None, 0, 1, 2, 3]


def like(text: str, pattern: str, escape: str) -> bool:
    """LIKE as a regular expression, character by character."""
    found, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            found += re.escape(next(characters))
        else:
            found += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return re.fullmatch(found, text, re.DOTALL) is not None


def evaluate(expr: Expr, row: Mapping[str, int | str | None]) -> bool | int | str | None:
    """SQL's truth tables, written down as they stand in the books."""
    match expr:
        case Column(name):
            return row[name]
        case Literal(value):
            assert value is None or isinstance(value, int | str)
            return value
        case Opaque():
            return evaluate(CONSTANTS[str(expr.parts[0])], row)
        case Like(operand, pattern, escape):
            a, b = evaluate(operand, row), evaluate(pattern, row)
            return like(a, b, escape) if isinstance(a, str) and isinstance(b, str) else None
        case StartsWith(operand, prefix):
            a, b = evaluate(operand, row), evaluate(prefix, row)
            return a.startswith(b) if isinstance(a, str) and isinstance(b, str) else None
        case Not(part):
            truth = evaluate(part, row)
            return None if truth is None else not truth
        case And(parts):
            truths = [evaluate(p, row) for p in parts]
            return False if False in truths else None if None in truths else True
        case Or(parts):
            truths = [evaluate(p, row) for p in parts]
            return True if True in truths else None if None in truths else False
        case IsNull(operand):
            return evaluate(operand, row) is None
        case Between(operand, low, high):
            at_least = Comparison(">=", operand, low)
            return evaluate(And((at_least, Comparison("<=", operand, high))), row)
        case InList(operand, items):
            return evaluate(Or(tuple(Comparison("=", operand, i) for i in items)), row)
        case Comparison(op, left, right):
            a, b = evaluate(left, row), evaluate(right, row)
            if op == "<=>":
                return a == b
            if a is None or b is None:
                return None
            assert not isinstance(a, str)
            assert not isinstance(b, str)
            return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[
                op
            ]
    raise AssertionError(expr)


def conditions() -> st.SearchStrategy[Expr]:
    columns = st.sampled_from([A, B, Column("l")])
    literals: st.SearchStrategy[Expr] = st.builds(Literal, st.sampled_from(SMALL)) | st.just(TWO)
    patterns = st.sampled_from(["a%", "%", "ab", "", "a!%", "a!!%", "!_%%", "a%%", None])
    texts: st.SearchStrategy[Expr] = st.builds(Literal, patterns) | st.just(AB)
    operators = st.sampled_from(OPERATORS)
    leaves: st.SearchStrategy[Expr] = st.one_of(
        st.builds(Comparison, operators, columns, literals),
        st.builds(Comparison, operators, literals, columns),
        st.builds(
            Comparison, operators, st.just(Literal(1)), st.builds(Literal, st.integers(0, 2))
        ),
        st.builds(Between, columns, literals, literals),
        st.builds(InList, columns, st.lists(literals, min_size=1, max_size=3).map(tuple)),
        st.builds(IsNull, columns),
        st.builds(Like, st.just(S), texts, st.just("!")),
        st.builds(StartsWith, st.just(S), texts),
        st.builds(Comparison, st.sampled_from(["=", ">"]), st.just(TWO), st.just(Literal(2))),
        st.builds(Literal, st.sampled_from([True, False, None])),
    )

    def grow(part: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        parts = st.lists(part, min_size=2, max_size=3).map(tuple)
        return st.builds(And, parts) | st.builds(Or, parts) | st.builds(Not, part)

    return st.recursive(leaves, grow, max_leaves=8)


@given(conditions())
def test_terms_keep_exactly_the_rows_for_which_the_condition_is_true(where: Expr) -> None:
    predicate = analyse(where, TYPES, derive, fold)
    assert not predicate.derived
    assert not predicate.failing
    for a in SMALL:
        for b in SMALL:
            for c, s in ((None, "a"), (0, "ab"), (2, None), (0, "b"), (0, "a%"), (2, "_")):
                row = {"a": a, "b": b, "l": c, "s": s}
                assert keeps(predicate, row) == (evaluate(where, row) is True), (where, row)


@given(st.lists(conditions(), min_size=2, max_size=4), st.randoms())
def test_the_order_of_writing_does_not_matter(parts: list[Expr], random: object) -> None:
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for connective in (And, Or):
        assert analyse(connective(tuple(parts)), TYPES, derive, fold) == analyse(
            connective(tuple(shuffled)), TYPES, derive, fold
        )


# Shapes


def test_the_worked_example_of_the_paper() -> None:
    types = {"A1": "int", "A2": "string", "A3": "int"}
    a1, a2, a3 = (Column(n) for n in types)
    queries = [
        And(
            (
                Comparison("=", a1, Literal(20)),
                Comparison("=", a2, Literal("C02")),
                Comparison("=", a3, Literal(50)),
            )
        ),
        And((gt(a1, 10), Comparison("=", a2, Literal("C04")))),
        And(
            (
                Comparison("=", a1, Literal(30)),
                Comparison(">=", a3, Literal(30)),
                Comparison("<=", a3, Literal(50)),
            )
        ),
    ]
    predicates = [analyse(q, types, derive, fold) for q in queries]
    assert all(len(p.terms) == 1 and not p.derived for p in predicates)
    assert dict(predicates[2].terms[0].sets)["A3"].intervals == (Interval(30, True, 50, True),)
    tuples = [(40, "C04", 50), (20, "C02", 50), (10, "C04", 20)]
    rows = [dict(zip(types, t, strict=True)) for t in tuples]
    matches = [[i for i, p in enumerate(predicates, 1) if keeps(p, row)] for row in rows]
    assert matches == [[2], [1], []]


def test_no_condition_is_always_true() -> None:
    assert analyse(None, TYPES, derive, fold) == Predicate((Term(()),))
    assert analyse(Comparison("=", Literal(1), Literal(1)), TYPES, derive, fold).terms == (
        Term(()),
    )


def test_a_disjunction_on_one_attribute_is_one_term() -> None:
    either = Or((Comparison("<", A, Literal(3)), gt(A, 10)))
    assert the_set(either).intervals == (
        Interval(None, False, 2, True),
        Interval(11, True, None, False),
    )
    assert analyse(And((gt(B, 0), either)), TYPES, derive, fold).terms[0].sets[1] == (
        "b",
        compare(">", 0),
    )


def test_contradictions_leave_no_term_and_implied_terms_go() -> None:
    assert analyse(And((gt(A, 5), Not(gt(A, 3)))), TYPES, derive, fold).terms == ()
    weaker, stronger = gt(A, 3), And((gt(A, 5), gt(B, 1)))
    assert analyse(Or((stronger, weaker)), TYPES, derive, fold) == analyse(
        weaker, TYPES, derive, fold
    )


def test_a_boolean_column_is_a_condition() -> None:
    flag = Column("flag")
    assert the_set(flag) == the_set(Comparison("=", flag, Literal(True))) == IS_TRUE
    assert the_set(Not(flag)) == the_set(Comparison("=", flag, Literal(False)))


def test_many_alternatives_on_one_column_stay_one_term() -> None:
    where = Or(tuple(Comparison("=", A, Literal(i)) for i in range(0, 1000, 2)))
    assert the_set(where) == one_of(range(0, 1000, 2))


def test_a_condition_that_multiplies_out_too_far_is_left_whole() -> None:
    columns = {f"c{i}": "int" for i in range(14)}
    names = list(columns)
    pairs = [
        Or((gt(Column(p), 1), gt(Column(q), 1))) for p, q in zip(names[:7], names[7:], strict=True)
    ]
    some = analyse(And(tuple(pairs[:6])), columns, derive, fold)
    assert len(some.terms) == MAX_TERMS
    assert not some.derived
    where = And(tuple(pairs))
    assert analyse(where, columns, derive, fold) == Predicate(
        (Term(((derive(where).name, IS_TRUE),)),), (derive(where),)
    )


def test_of_a_condition_that_multiplies_out_too_far_plain_conjuncts_stay() -> None:
    columns = {f"c{i}": "int" for i in range(14)} | {"a": "int", "b": "int"}
    pairs = [Or((gt(Column(f"c{i}"), 1), gt(Column(f"c{i + 7}"), 1))) for i in range(7)]
    rest = derive(And(tuple(pairs)))
    narrowed = analyse(And((gt(A, 5), *pairs, Not(gt(B, 7)))), columns, derive, fold)
    sets = (("a", compare(">", 5)), ("b", compare("<=", 7)), (rest.name, IS_TRUE))
    assert narrowed == Predicate((Term(sets),), (rest,))
    guarded = And((Comparison("<>", B, Literal(0)), gt(QUOTIENT, 2), *pairs))
    assert analyse(guarded, columns, derive, fold).failing == (derive(guarded),)


def test_conditions_on_an_expression_make_it_a_derived_attribute() -> None:
    upper = Opaque(("upper(", S, ")"))
    where = And((gt(A, 1), Comparison("=", Literal("X"), upper)))
    predicate = analyse(where, TYPES, derive, fold)
    assert predicate.derived == (derive(upper),)
    assert dict(predicate.terms[0].sets)[derive(upper).name] == compare("=", "X")


@pytest.mark.parametrize(
    "leaf",
    [
        Comparison("<", A, B),
        Comparison(">", Column("l"), Literal(10**25)),
        Comparison(">", Column("m"), Column("x")),
        IsNull(Column("tags")),
        Opaque((S, " LIKE 'a%'")),
        Like(S, Literal("%a")),
        Like(S, Literal("a_%")),
        InList(A, (B, Column("l"))),
    ],
    ids=str,
)
def test_other_conditions_are_derived_as_booleans(leaf: Expr) -> None:
    predicate = analyse(And((gt(X, 1), Not(leaf))), TYPES, derive, fold)
    assert predicate.derived == (derive(leaf),)
    assert dict(predicate.terms[0].sets)[derive(leaf).name] == compare("<=", 0)


def test_a_list_of_constants_and_columns_is_split_where_all_compare_alike() -> None:
    where = InList(A, (Literal(1), B, TWO, Literal(None)))
    equal = derive(Comparison("=", A, B))
    predicate = analyse(where, TYPES, derive, fold)
    assert predicate.derived == (equal,)
    assert {term.sets for term in predicate.terms} == {
        (("a", one_of([1, 2])),),
        ((equal.name, IS_TRUE),),
    }
    assert analyse(Not(where), TYPES, derive, fold).terms == ()


@pytest.mark.parametrize(
    "where",
    [
        InList(Column("l"), (Literal(1), X)),  # all as doubles, where two bigints may be one
        InList(A, (B, Column("l"))),
    ],
    ids=str,
)
def test_other_lists_stay_whole(where: Expr) -> None:
    predicate = analyse(where, TYPES, derive, fold)
    assert predicate.derived == (derive(where),)


# Patterns and constants


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Like(S, Literal("abc%")), Interval("abc", True, "abd", False)),
        (Like(S, Literal("abc%%")), Interval("abc", True, "abd", False)),
        (Like(S, Literal("abc")), Interval("abc", True, "abc", True)),
        (Like(S, Literal("")), Interval(None, False, "", True)),
        (Like(S, Literal("%")), Interval(None, False, None, False)),
        (Like(S, Literal("5\\%")), Interval("5%", True, "5%", True)),
        (Like(S, Literal("5!%%"), "!"), Interval("5%", True, "5&", False)),
        (Like(S, Literal("5%%"), "%"), Interval("5%", True, "5%", True)),
        (Like(S, Literal("\ud7ff%")), Interval("\ud7ff", True, "\ue000", False)),
        (Like(S, Literal("a\U0010ffff%")), Interval("a\U0010ffff", True, "b", False)),
        (Like(S, Literal("\U0010ffff%")), Interval("\U0010ffff", True, None, False)),
        (Like(S, AB), Interval("ab", True, "ab", True)),
        (StartsWith(S, Literal("50%")), Interval("50%", True, "50&", False)),
        (StartsWith(S, Literal("")), Interval(None, False, None, False)),
    ],
    ids=str,
)
def test_patterns_that_are_ranges(where: Expr, expected: Interval) -> None:
    assert the_set(where).intervals == (expected,)


def test_what_does_not_match_is_the_complement() -> None:
    assert the_set(Not(Like(S, Literal("b%")))).intervals == (
        Interval(None, False, "b", False),
        Interval("c", True, None, False),
    )
    assert analyse(Not(Like(S, Literal("%"))), TYPES, derive, fold).terms == ()
    for never in (Like(S, Literal(None)), StartsWith(S, Literal(None))):
        assert analyse(Not(never), TYPES, derive, fold).terms == ()


@given(
    st.text("ab%_!\ud7ff\ue000\U0010ffff", max_size=4),
    st.lists(st.text("abc%_!\ud7ff\ue000\U0010ffff", max_size=4)),
)
def test_a_pattern_keeps_the_strings_that_match(pattern: str, strings: list[str]) -> None:
    found = matching(pattern, "!")
    if found is None:
        return
    for text in (*strings, pattern.replace("%", ""), pattern.replace("%", "x")):
        assert contains(found, text) == like(text, pattern, "!"), (pattern, text)


@pytest.mark.parametrize("pattern", ["a!", "a!b", "%a", "a_", "a%b"])
def test_patterns_that_are_wrong_or_no_range(pattern: str) -> None:
    assert matching(pattern, "!") is None
    assert matching("a", "!!") is None
    assert matching("a", "\U0001f600") is None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Comparison(">", A, TWO), compare(">", 2)),
        (Comparison(">", TWO, A), compare("<", 2)),
        (Between(A, TWO, Literal(5)), intersect(compare(">=", 2), compare("<=", 5))),
        (InList(A, (TWO, Literal(3))), one_of([2, 3])),
        (Comparison("<=>", X, NOT_A_NUMBER), compare("=", float("nan"))),
        (Comparison(">=", Column("day"), Opaque(("to_date('1970-01-02')",))), compare(">=", 1)),
    ],
    ids=str,
)
def test_parts_without_columns_are_constants(where: Expr, expected: ValueSet) -> None:
    assert the_set(where) == expected


def test_conditions_without_columns_are_decided() -> None:
    true, false = Comparison("=", TWO, Literal(2)), Comparison(">", TWO, Literal(2))
    assert analyse(true, TYPES, derive, fold).terms == (Term(()),)
    assert analyse(And((gt(A, 1), false)), TYPES, derive, fold).terms == ()
    unknown = Comparison(">", Opaque(("rand()",)), Literal(2))
    assert analyse(unknown, TYPES, derive, fold).failing == (derive(Opaque(("rand()",))),)


def test_spark_gets_the_words_of_the_user_and_not_the_constants() -> None:
    where = Comparison(">", S, TWO)
    assert analyse(where, TYPES, derive, fold).failing == (derive(where),)


# Expressions that can fail


def test_the_first_condition_may_fail_since_spark_computes_it_for_every_row() -> None:
    first = gt(QUOTIENT, 2)
    predicate = analyse(And((first, gt(A, 1))), TYPES, derive, fold)
    assert (predicate.derived, predicate.failing) == ((), (derive(QUOTIENT),))
    assert len(predicate.terms[0].sets) == 2


@pytest.mark.parametrize("connective", [And, Or])
def test_a_guarded_expression_is_left_to_spark_with_its_guard(connective: type[And | Or]) -> None:
    where = connective((Comparison("<>", B, Literal(0)), gt(QUOTIENT, 2)))
    assert analyse(where, TYPES, derive, fold) == Predicate(
        (Term(((derive(where).name, IS_TRUE),)),), (), (derive(where),)
    )


def test_a_text_compared_with_a_number_is_left_to_spark_with_its_guard() -> None:
    where = And((gt(A, 1), gt(S, 5)))
    assert analyse(where, TYPES, derive, fold).failing == (derive(where),)


def test_a_condition_that_cannot_be_derived_is_refused() -> None:
    with pytest.raises(QueryError, match="cannot be evaluated"):
        analyse(Comparison("<", A, B), TYPES, lambda _: None, fold)


SAFE = [
    A,
    Comparison("<", A, Column("x")),
    Comparison("<", Column("m"), Column("l")),
    Comparison(">", Column("day"), Literal("2020-01-01")),
    Opaque(("upper(", S, ")")),
    Opaque((S, " LIKE 'a%'")),
    Opaque((X, " * 2 - ", Column("y"))),
    Opaque(("CASE WHEN ", X, " > 1 THEN 2 ELSE 3 END")),
    Opaque(("concat(", S, ", '_', ", A, ")")),
    Opaque(("coalesce(", S, ", 'none')")),
    Opaque(("length(", S, ")")),
    Opaque(("DATE '2020-01-01'",)),
    Like(S, Literal("%a\\_")),
    Like(A, Literal("1%")),
    Opaque(("weekofyear(", Column("day"), ")")),
    Opaque(("sqrt(", A, ")")),
    Opaque(("hour(", Column("ts"), ")")),
    StartsWith(S, Opaque(("upper(", S, ")"))),
]
UNSAFE = [
    Column("unknown"),
    QUOTIENT,
    Opaque((A, " + 1")),
    Opaque((X, " % 2")),
    Opaque((X, " + (2147483647 + 1)")),
    Opaque(("CAST(", S, " AS INT)")),
    Opaque(("raise_error(", S, ")")),
    Opaque(("upper(", QUOTIENT, ")")),
    Opaque((S, " LIKE '\\\\'")),
    Opaque((S, " LIKE ", S)),
    Opaque((S, " RLIKE '('")),
    Like(S, S),
    Like(S, Literal("a\\b")),
    Like(S, Literal("a"), ""),
    Like(QUOTIENT, Literal("a")),
    StartsWith(S, A),
    Opaque(("sqrt(", S, ")")),
    Opaque(("hour(", S, ")")),
    Opaque(("hour(", Column("day"), ")")),
    Opaque(("coalesce(", A, ", 'x')")),
    Opaque(("substring(", S, ", ", Column("l"), ")")),
    Opaque(("CASE WHEN ", S, " > 5 THEN 1 END")),
    Opaque(("length(", S, ") = ", S)),
    Opaque(("coalesce(", S, " LIKE 'a%', 'x')")),
    Opaque((Column("tags"), "[0]")),
    Comparison("<", A, S),
    Comparison(">", Column("day"), Literal("soon")),
    InList(A, (Literal(1), Literal("x"))),
]


def _type_of(expr: Expr) -> str | None:
    return TYPES.get(expr.name) if isinstance(expr, Column) else derive(expr).type


@pytest.mark.parametrize("expr", SAFE, ids=str)
def test_expressions_that_have_a_value_for_every_row(expr: Expr) -> None:
    assert cannot_fail(expr, _type_of)


@pytest.mark.parametrize("expr", UNSAFE, ids=str)
def test_expressions_that_can_raise_an_error(expr: Expr) -> None:
    assert not cannot_fail(expr, _type_of)


# Literals that the types do not share


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (gt(A, Decimal("1.5")), compare(">=", 2)),
        (gt(A, 1.5), compare(">=", 2)),
        (gt(X, 3), compare(">", 3.0)),
        (gt(Column("m"), Decimal("1.005")), compare(">=", 101)),
        (gt(Column("day"), "1969-12-31"), compare(">", -1)),
        (Comparison("<", Opaque(("(date '1970-01-02')",)), Column("day")), compare(">", 1)),
        (Comparison("=", Column("l"), Literal(2.0**53)), one_of([2**53, 2**53 + 1])),
    ],
    ids=str,
)
def test_literals_become_bounds_in_the_values_of_the_column(
    where: Expr, expected: ValueSet
) -> None:
    assert the_set(where) == expected
