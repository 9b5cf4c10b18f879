"""Result rows as text: JSON lines with ISO-8601 UTC times, exact numbers, and CSV."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def plain(value: Any) -> Any:
    """A value as JSON has it: times as text in UTC, decimals as text (exact), NaN as text."""
    match value:
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat()
            return text + "Z" if value.tzinfo is not None else text
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return value.total_seconds()
        case decimal.Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case _:
            return value


def python_rows(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Rows as Python values; times outside Python's years stay microseconds since 1970."""
    for batch in rows.to_batches():
        columns = []
        for column in batch.columns:
            try:
                columns.append(column.to_pylist())
            except (ValueError, OverflowError):
                columns.append(column.cast(pa.int64()).to_pylist())
        yield from zip(*columns, strict=True)


def json_lines(
    rows: pa.Table, extra: dict[str, Any] | None = None, wrap: bool = True
) -> Iterator[str]:
    """One JSON object per row, `extra` first; without `wrap` the first column's value alone."""
    names = rows.schema.names
    for row in python_rows(rows):
        values = [plain(v) for v in row]
        body = {**(extra or {}), **dict(zip(names, values, strict=True))} if wrap else values[0]
        yield json.dumps(body, ensure_ascii=False)
