"""Constants that Spark works out, and conditions taken apart with them: the same rows stay."""

from __future__ import annotations

import logging
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import QueryError
from penstock.language import parse
from penstock.language.ast import BareSelect, Expr, Literal, Opaque
from penstock.plan.bind import bind
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.comparisons import constant_of
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.specs import Constant
from penstock.plan.valuesets import contains
from penstock.runtime.analyzer import Analyzer, literal_of
from penstock.schema import Schema

SCHEMA = Schema.of(
    "a INT, b INT, l BIGINT, x DOUBLE, f FLOAT, m DECIMAL(10,2), w DECIMAL(38,30), s STRING,"
    " day DATE, ts TIMESTAMP"
)
CATALOG = Catalog.of([Stream("S", SCHEMA, "file", "ts")])
NAN = math.nan


@pytest.fixture(scope="module")
def analyzer(spark: SparkSession) -> Analyzer:
    return Analyzer(spark)


@pytest.mark.parametrize(
    ("sql", "literal"),
    [
        ("2 * 100", Literal(200)),
        ("10L", Literal(10)),
        ("unix_timestamp('2024-01-01 00:00:00')", Literal(1_704_067_200)),
        ("length('abc') = 3", Literal(True)),
        ("double('-Infinity')", Literal(-math.inf)),
        ("pi()", Literal(math.pi)),
        ("2.5 * 100", Literal(Decimal("250.0"))),
        ("cast(1.5 AS DECIMAL(10,4))", Literal(Decimal("1.5000"))),
        ("0.0000001 * 1", Literal(Decimal("1E-7"))),
        ("concat('it''s ', upper('é😀'))", Literal("it's É😀")),
        ("to_date('2024-01-01')", Opaque(("DATE '2024-01-01'",))),
        ("date'2024-02-28' + 2", Opaque(("DATE '2024-03-01'",))),
        (
            "timestamp'2024-01-01' + INTERVAL 1 HOUR",
            Opaque(("TIMESTAMP '2024-01-01 01:00:00'",)),
        ),
        (
            "timestamp_micros(-1)",
            Opaque(("TIMESTAMP '1969-12-31 23:59:59.999999'",)),
        ),
    ],
)
def test_what_has_no_columns_is_a_literal(analyzer: Analyzer, sql: str, literal: Expr) -> None:
    assert analyzer.fold(sql) == literal
    assert constant_of(literal) is not None


def test_not_a_number_is_a_literal_too(analyzer: Analyzer) -> None:
    found = analyzer.fold("double('NaN')")
    assert isinstance(found, Literal)
    assert isinstance(found.value, float)
    assert math.isnan(found.value)


@pytest.mark.parametrize(
    "sql",
    [
        *("current_timestamp()", "now()", "current_date", "date_add(current_date(), 1)"),
        *("unix_timestamp()", "date'today'", "cast('now' AS TIMESTAMP)", "to_date(' tomorrow')"),
        *("rand()", "rand(5)", "uuid()", "current_user()", "current_timezone()"),
        *("1 / 0", "cast('x' AS INT)", "raise_error('x')", "nosuch(1)", "1 +"),
        *("cast(NULL AS INT)", "float(0.1)", "timestamp_ntz'2024-01-01'", "interval 1 day"),
        *("array(1, 2)", "'a' COLLATE UTF8_LCASE", "date'0001-01-01' - 400"),
        "cast(1 AS DECIMAL(38,0))",
    ],
)
def test_what_changes_fails_or_has_no_literal_is_left_to_spark(
    analyzer: Analyzer, sql: str
) -> None:
    assert analyzer.fold(sql) is None


def test_times_beyond_the_literals_are_left_to_spark() -> None:
    assert literal_of("timestamp", 2**62) is None
    assert literal_of("date", 2**30) is None


ROWS: list[tuple[Any, ...]] = [
    (None,) * 10,
    (1, 1, 2**53 + 1, 1.5, 0.1, "1.50", "0.5", "abc", date(2024, 1, 1), datetime(2024, 1, 1)),
    (2, 3, 2**53, NAN, 1.5, "2.00", "5", "ABC%", date(2024, 1, 2), datetime(2024, 1, 1, 1)),
    (200, 200, 10, math.inf, NAN, "250.00", "-1", "", date(1970, 1, 1), datetime(1970, 1, 1)),
    (201, 2, -1, -0.0, -1.5, "-0.01", "0", "a\\c", date(2024, 1, 3), datetime(2024, 1, 1, 0, 59)),
    (0, 0, 1_704_067_200, 250.0, 250.0, "0.00", "7", "ab😀", date(1, 1, 1), datetime(2025, 1, 1)),
    (3, None, 0, 3.0, 2.0, "3.00", "3", "50%", date(2023, 12, 31), datetime(2023, 12, 31)),
]
CONDITIONS = r"""
a > 2 * 100
2 * 100 <= a
a BETWEEN 1 + 1 AND 2 * 100
a IN (1 + 1, 200)
l > 10L
l <= unix_timestamp('2024-01-01 00:00:00')
l <> bigint(2) * 5
l < 0.0000000000000000001
x > 2.5 * 100
x = double('NaN') OR a = 2
x <=> double('NaN')
x < double('Infinity')
f >= 1.5 * 1
f > double('NaN')
f = float(0.1)
m = 2.5 * 100
m > cast(1.5 AS DECIMAL(20,10))
m < 10L
w >= 2 + 3
w = 5L
w > cast(0.5 AS DECIMAL(12,1))
day >= to_date('2024-01-02')
day < date'2024-01-01' + 2
day <> timestamp'2024-01-01' + INTERVAL 1 DAY
ts > timestamp'2024-01-01' + INTERVAL 30 MINUTES
ts = to_timestamp('2024-01-01 01:00:00') OR ts < to_date('1980-01-01')
ts > concat('2024-01-', '01')
s = concat('a', 'bc')
s LIKE concat('a', '%')
s LIKE 'ab%' OR s LIKE 'ABC\%'
s LIKE 'ab😀%' OR s LIKE '50!%' ESCAPE '!'
s NOT LIKE 'a\\\\c'
NOT (s LIKE '%%')
s LIKE ''
s LIKE '%b_' AND a < 10
lower(s) LIKE 'abc%'
startswith(s, 'ab')
NOT startswith(s, '')
startswith(lower(s), 'ab')
a IN (1, 2.5, 3.0)
l IN (9007199254740993, 1.5D)
l IN (9007199254740993, 10)
a IN (200, b)
a NOT IN (200, b)
a NOT IN (200, b, NULL)
l IN (0, a, b)
l IN (0, x)
m IN (1.5, a, 250)
s IN ('x', lower(s))
length('abc') = 3 AND a > 1
1 + 1 = 3 OR a = 2
a > 1 AND (a = 1 + 1 OR b > 2)
"""


def constant(value: Any, type_: str) -> Constant | None:
    """A value as the selection sees it."""
    if isinstance(value, Decimal):
        return int(value.scaleb(30 if type_ == "decimal(38,30)" else 2))
    if isinstance(value, datetime):
        delta = value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return int(value) if isinstance(value, bool) else value  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    from pyspark.sql.types import StructType

    rows = [
        tuple(Decimal(v) if n in (5, 6) and v is not None else v for n, v in enumerate(row))
        for row in ROWS
    ]
    return spark.createDataFrame(rows, StructType.fromDDL(SCHEMA.ddl())).coalesce(1).cache()


def composed(where: str, analyzer: Analyzer) -> Composed:
    [statement] = parse(f"SELECT a FROM S WHERE {where}")
    assert isinstance(statement, BareSelect)
    query = bind(statement.select, CATALOG)
    return compose(query, analyzer.type_of, analyzer.fold)


@pytest.mark.parametrize("where", CONDITIONS.strip().splitlines())
def test_spark_keeps_the_same_rows(where: str, table: DataFrame, analyzer: Analyzer) -> None:
    query = composed(where, analyzer)
    derived = (*query.composition.derived, *query.derived)
    types = {f.name: f.type for f in SCHEMA.fields} | {a.name: a.type for a in derived}
    columns = [f"{a.sql} AS {a.name}" for a in derived]
    for row in table.selectExpr("*", *columns, f"({where}) AS wanted").collect():
        values = {name: constant(row[name], type_) for name, type_ in types.items()}
        kept = any(all(contains(v, values[n]) for n, v in t.sets) for t in query.terms)
        assert kept == (row["wanted"] is True), row


@pytest.mark.parametrize(
    ("where", "taken"),
    [
        ("a > 2 * 100", True),
        ("l > 10L", True),
        ("s LIKE 'a%'", True),
        ("ts > timestamp'2024-01-01' + INTERVAL 1 HOUR", True),
        ("ts > now() - INTERVAL 1 HOUR", False),
        ("w = 5L", False),  # as a bigint, 5 leaves no room for thirty digits
        ("f = float(0.1)", False),
    ],
)
def test_what_compares_exactly_is_taken_from_spark(
    where: str, taken: bool, analyzer: Analyzer
) -> None:
    query = composed(where, analyzer)
    assert (not query.derived and not query.composition.derived) == taken


def test_what_spark_refuses_is_said_once(
    analyzer: Analyzer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In penstock's words alone; PySpark goes on logging the errors of others."""
    logged: list[bool] = []
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        monkeypatch.setattr(logger, "handle", partial(_told, logger, logged))
    with pytest.raises(QueryError, match="nonsense"):
        analyzer.type_of("nonsense(a)", SCHEMA)
    assert analyzer.fold("nonsense(1)") is None
    assert logged
    assert not any(logged)
    with pytest.raises(AnalysisException):
        spark.sql("SELECT nonsense(1)")
    assert any(logged)


def _told(logger: logging.Logger, logged: list[bool], record: logging.LogRecord) -> None:
    logged.append(bool(logger.filter(record)))
