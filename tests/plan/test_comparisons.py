"""Comparisons with literals: the value sets select exactly the rows that Spark selects."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.language.ast import (
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
    StartsWith,
)
from penstock.language.render import render
from penstock.plan.comparisons import compared, constant_of, members
from penstock.plan.predicates import Predicate, analyse
from penstock.plan.specs import Attribute, Constant
from penstock.plan.valuesets import ALL_VALUES, NOTHING, contains, one_of
from penstock.schema import decimal_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATORS: list[Operator] = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
BIG = 2**53
FLOATS = [0.1, -0.0, 0.0, 1.0, 1.5, float(BIG), float(BIG + 2), 1e300, -1e300, math.nan]
DAYS = [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2020, 2, 29), date(9999, 12, 31)]
TIMES = [
    datetime(1960, 5, 1, 23, 59, 59, 999_999),
    datetime(1970, 1, 1),
    datetime(2020, 2, 29, 12, 30, 0, 1),
    datetime(2020, 3, 1),
]
COLUMNS: dict[str, list[Any]] = {
    "tinyint": [-128, -1, 0, 1, 2, 127],
    "smallint": [-(2**15), -2, 0, 1, 300, 2**15 - 1],
    "int": [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    "bigint": [-(2**63), -BIG - 1, -1, 0, 1, 2, BIG - 1, BIG, BIG + 1, BIG + 2, 2**63 - 1],
    "float": [0.1, 1.0, 1.5, -0.0, 16777216.0, 3.0e38, math.inf, -math.inf, math.nan],
    "double": [*FLOATS, math.inf, -math.inf, 12345678901234567.8],
    "decimal(5,2)": [Decimal(v) for v in ("-999.99", "-0.01", "0", "1", "1.01", "1.5", "999.99")],
    "decimal(18,4)": [Decimal(v) for v in ("-1.5", "0", "0.1", "90071992547409.9201", "2")],
    "decimal(38,10)": [Decimal(v) for v in ("0.1", "1", "1.5", "9007199254740993", "-1")],
    "decimal(38,0)": [Decimal(v) for v in (0, 1, 10**37, 2**63, -(10**37))],
    "string": ["", "a", "A", "ab", "b", "é", "zz", "\U0001f600", "\uffee", "2020-01-01", "5"],
    "boolean": [True, False],
    "date": DAYS,
    "timestamp": [t.replace(tzinfo=UTC) for t in TIMES],
    "timestamp_ntz": TIMES,
}
NUMBERS = [
    *(-1, 0, 1, 2, 127, 128, 300, -32769, 2**31 - 1, 2**31, BIG, BIG + 1, BIG + 2),
    *(2**63 - 1, -(2**63)),
    *(Decimal(v) for v in ("0.1", "1.0", "1.5", "-0.5", "1.005", "0.10000000000000001")),
    *(Decimal(v) for v in ("999.994", "1000", "12345678901234567.8", "9007199254740993.5")),
    *(Decimal(v) for v in ("9223372036854775807.5", "99999999999999999999", "0.00000000001")),
    *(0.1, -0.0, 1.0, 1.5, 1.005, 127.5, float(BIG), float(BIG + 2), float(2**63), -1e300, 1e300),
]
TEXTS = ["", "a", "ab", "é", "\uffef", "\U0001f600", "it's \\ %"]
PATTERNS = ["", "a%", "a", "%", "%%", "é%", "\uffee%", "\U0001f600%%", "!%%", "!!", "5%", None]
MOMENTS: list[str | Opaque] = [
    *("1969-12-31", "2020-02-29", "9999-12-31", "2020-02-29 12:30:00.000001"),
    *("2020-03-01T00:00:00", "1960-05-01 23:59:59.999999", "2020-02-29 12:30:00.1Z"),
    Opaque(("DATE '1970-01-01'",)),
    Opaque(("(date '2020-02-29')",)),
    Opaque(("TIMESTAMP '2020-02-29 12:30:00.000001'",)),
    Opaque(("TIMESTAMP '2020-03-01'",)),
    Opaque(("CAST('2020-02-29' AS DATE)",)),
]


def _literals(type_: str) -> list[Expr]:
    if type_ == "string":
        return [Literal(t) for t in TEXTS]
    if type_ == "boolean":
        return [Literal(True), Literal(False)]
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        return [m if isinstance(m, Opaque) else Literal(m) for m in MOMENTS]
    return [Literal(n) for n in NUMBERS]


def _leaves(type_: str, rng: random.Random) -> list[Expr]:
    """Every operator with every literal, and a sample of ranges and lists; some with NULL."""
    column = Column(type_)
    literals = _literals(type_)
    leaves: list[Expr] = [IsNull(column)]
    leaves += [Comparison(op, column, literal) for op in OPERATORS for literal in literals]
    leaves += [Comparison(rng.choice(OPERATORS), literal, column) for literal in literals]
    leaves += [Comparison(op, column, Literal(None)) for op in OPERATORS]
    if type_ == "string":
        leaves += [Like(column, Literal(pattern), "!") for pattern in PATTERNS]
        leaves += [StartsWith(column, literal) for literal in literals]
    literals = [*literals, Literal(None)]
    for _ in range(40):
        leaves.append(Between(column, rng.choice(literals), rng.choice(literals)))
        leaves.append(InList(column, tuple(rng.choices(literals, k=rng.randint(1, 3)))))
    return leaves


def _not_derived(_: Expr) -> Attribute:
    return Attribute("derived", "boolean", "")


def _not_folded(_: str) -> None:
    return None


def _constant(type_: str, value: Any) -> Constant | None:
    """A row's value as the selection kernels see it."""
    if value is None:
        return None
    if parts := decimal_parts(type_):
        return int(value.scaleb(parts[1]))
    if type_ == "date":
        return int((value - date(1970, 1, 1)).days)
    if isinstance(value, datetime):
        delta = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return int(value) if isinstance(value, bool) else value  # type: ignore[no-any-return]


def _is_taken(predicate: Predicate) -> bool:
    return not predicate.derived and not predicate.failing


def _kept(predicate: Predicate, rows: list[Constant | None]) -> list[bool]:
    return [
        any(all(contains(values, row) for _, values in term.sets) for term in predicate.terms)
        for row in rows
    ]


@pytest.mark.spark
@pytest.mark.parametrize("type_", COLUMNS)
def test_spark_selects_the_same_rows(spark: SparkSession, type_: str) -> None:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(f"`{type_}` {type_}")
    values = [*COLUMNS[type_], None]
    table = spark.createDataFrame([(v,) for v in values], schema).coalesce(1)
    leaves = _leaves(type_, random.Random(type_))
    taken = [e for e in leaves if _is_taken(analyse(e, {type_: type_}, _not_derived, _not_folded))]
    assert len(taken) > len(leaves) / 4
    for begin in range(0, len(taken), 100):
        some = taken[begin : begin + 100]
        held, *answers = zip(
            *table.selectExpr(f"`{type_}`", *map(render, some)).collect(), strict=True
        )
        # What Spark holds, not what was written: 0.1 as a float is another number.
        rows = [_constant(type_, value) for value in held]
        for leaf, truths in zip(some, answers, strict=True):
            for expr, truth in ((leaf, True), (Not(leaf), False)):
                predicate = analyse(expr, {type_: type_}, _not_derived, _not_folded)
                assert _kept(predicate, rows) == [t is truth for t in truths], render(expr)


def test_what_spark_compares_in_another_way_is_not_taken() -> None:
    assert compared("bigint", "<", 2**63) is None  # Spark: TRUE even for NULL
    assert compared("decimal(18,4)", "=", 0.1) is None  # the double depends on how it is held
    assert compared("double", "=", Decimal("9007199254740993.5")) is not None
    assert compared("string", ">", 5) is None
    assert compared("int", "=", "5") is None
    assert compared("int", "=", True) is None
    assert compared("boolean", "=", 1) is None
    assert compared("date", "=", "2021-02-30") is None
    assert compared("date", "=", "2020-01-01 00:00:00") is None
    assert compared("timestamp_ntz", "=", "2020-01-01 00:00:00Z") is None
    assert compared("decimal(38,30)", "=", 10**9) is None
    assert compared("bigint", "<", Decimal("1E-19")) is None  # rounded to the digits left
    assert members("decimal(18,4)", [1, 1.5]) is None
    assert members("string", ["a", 5]) is None


def test_a_double_in_a_list_makes_all_of_it_doubles() -> None:
    assert members("bigint", [BIG + 1, 1.5]) == one_of([BIG, BIG + 1])
    assert members("int", [1, Decimal("2.5"), 3.0]) == one_of([1, 3])


def test_integers_beyond_a_type_are_never_or_always_reached() -> None:
    assert compared("tinyint", ">", 300) == NOTHING
    assert compared("tinyint", "<>", 300) == ALL_VALUES


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("DATE '2020-01-01'", date(2020, 1, 1)),
        (" ( date'2020-01-01' ) ", date(2020, 1, 1)),
        ("TIMESTAMP '2020-01-01 01:02:03.5'", datetime(2020, 1, 1, 1, 2, 3, 500_000, UTC)),
        ("timestamp '2020-01-01T01:02:03Z'", datetime(2020, 1, 1, 1, 2, 3, 0, UTC)),
    ],
)
def test_typed_literals_are_read(text: str, value: date) -> None:
    constant = constant_of(Opaque((text,)))
    assert constant is not None
    assert constant.value == value


@pytest.mark.parametrize(
    "text",
    [
        "DATE '2020-1-1'",
        "DATE '2021-02-30'",
        "DATE 'today'",
        "DATE '2020-01-01' + 1",
        "TIMESTAMP '2020-01-01 01:02:03 Asia/Seoul'",
        "INTERVAL '1' DAY",
        "current_date()",
    ],
)
def test_other_text_is_no_literal(text: str) -> None:
    assert constant_of(Opaque((text,))) is None
