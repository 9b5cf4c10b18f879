"""DuckDB's answers, and when two answers are the same."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def open_duckdb(rows: pa.Table) -> duckdb.DuckDBPyConnection:
    """A connection with the table as `t`; 32-bit floats are compared as doubles, as in Spark."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET threads = 1")
    connection.register("rows", rows)
    connection.execute(
        "CREATE TABLE t AS SELECT * REPLACE (r::DOUBLE AS r), epoch_us(ts) AS ts_us FROM rows"
    )
    return connection


def difference(ours: pa.Table, theirs: pa.Table, keys: int) -> str | None:
    """How two answers differ; None if they are the same bag of rows.

    Numbers are the same within 1e-9 of each other: two engines add up in different orders.
    """
    a, b = _sorted(ours, keys), _sorted(theirs, keys)
    if len(a) != len(b):
        spare = [r for r in a if not any(_same_row(r, o) for o in b)][:3]
        missing = [r for r in b if not any(_same_row(r, o) for o in a)][:3]
        return f"{len(a)} rows instead of {len(b)}; not expected: {spare}; missing: {missing}"
    for mine, other in zip(a, b, strict=True):
        if not _same_row(mine, other):
            return f"{mine} instead of {other}"
    return None


def _sorted(table: pa.Table, keys: int) -> list[tuple[Any, ...]]:
    columns = [[_plain(v) for v in column.to_pylist()] for column in table.columns]
    rows = list(zip(*columns, strict=True))
    return sorted(rows, key=lambda row: tuple(map(_order, row[:keys] if keys else row)))


def _plain(value: Any) -> Any:
    """A value without its engine: times as microseconds, decimals and whole numbers alike."""
    match value:
        case dt.datetime():
            aware = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
            return ("time", (aware - _EPOCH) // _MICROSECOND)
        case Decimal():
            return int(value) if value == value.to_integral_value() else value
        case float() if value == 0:
            return 0.0
        case _:
            return value


def _order(value: Any) -> tuple[str, Any]:
    if value is None:
        return ("", 0)
    if isinstance(value, float) and math.isnan(value):
        return ("nan", 0)
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return ("number", value) if number else (type(value).__name__, value)


def _same_row(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(map(_same, a, b))


def _same(a: Any, b: Any) -> bool:
    exact = (type(None), bool, str, tuple, dt.date)
    if isinstance(a, exact) or isinstance(b, exact):
        return type(a) is type(b) and a == b
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, Decimal) or isinstance(b, Decimal):
        return abs(Decimal(a) - Decimal(b)) <= Decimal("1e-6")
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-7)
