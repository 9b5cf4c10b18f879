"""Random tables with everything that is awkward in them, and such tables as files of any format."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import math
import os
import random
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.schema import Schema

# k: few values, NULLs. b: may be summed. h: the whole range of 64 bits. x: may be summed and
# averaged. f: also NaN, infinities and both zeros. r: 32 bits. m: decimal. ts: the event time, may
# be NULL.
SCHEMA = Schema.of(
    "k INT, b BIGINT, h BIGINT, x DOUBLE, f DOUBLE, r FLOAT, m DECIMAL(12,3), "
    "s STRING, flag BOOLEAN, day DATE, ts TIMESTAMP"
)
FORMATS = ("parquet", "arrow", "csv", "json")
TEXTS = (
    *("", " ", "a", "ab", "abc", "A", "b", "a%b", "a_b", "o'neil", '"q"', "a,b", "back\\slash"),
    *("é", "e\u0301", "ü", "Ångström", "日本", "日本語", "😀", "a😀b", "Ω", "null", "NULL", "zz"),
)
SPANS_S = (5, 60, 600, 3600)
STARTS = (
    dt.datetime(2024, 3, 10, 1, 59, 30),
    dt.datetime(1969, 12, 31, 23, 59, 0),  # windows on both sides of 1970
    dt.datetime(1905, 6, 30, 12, 0, 0),
    dt.datetime(2101, 1, 1),
)
_NUMBERS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, 1e300, -1e300, 5e-324, 0.1)
_UTC = dt.UTC


@dataclass(frozen=True, slots=True)
class Table:
    rows: pa.Table
    start: dt.datetime
    span_s: int


def random_table(rng: random.Random, rows: int) -> Table:
    start, span_s = rng.choice(STARTS), rng.choice(SPANS_S)
    nulls = rng.choice((0.0, 0.1, 0.5))
    data = [_random_row(rng, start, span_s, nulls) for _ in range(rows)]
    for _ in range(rows // 10):  # doubles, wherever they may fall
        data.insert(rng.randrange(len(data) + 1), rng.choice(data))
    return Table(pa.Table.from_pylist(data, SCHEMA.arrow()), start, span_s)


def _random_row(
    rng: random.Random, start: dt.datetime, span_s: int, nulls: float
) -> dict[str, Any]:
    # a third of the times lie exactly on a second, where windows begin and end
    offset_us = rng.randrange(span_s * 1_000_000)
    unit_us = rng.choice((1, 1_000, 1_000_000))
    offset_us = offset_us // unit_us * unit_us
    row = {
        "k": rng.choice((*range(-3, 8), -100, 100)),
        "b": rng.choice(
            (rng.randint(-10, 10), rng.randint(-(10**9), 10**9), rng.randint(-(10**15), 10**15))
        ),
        "h": rng.choice(
            (-(2**63), 2**63 - 1, 2**53 + 1, 2**53, 0, rng.randint(-(2**63), 2**63 - 1))
        ),
        "x": rng.choice(
            (round(rng.uniform(-1000, 1000), 2), float(rng.randint(-5, 5)), rng.gauss(0, 10))
        ),
        "f": rng.choice((*_NUMBERS, rng.uniform(-2, 2))),
        "r": rng.choice((0.5, 0.25, -1.75, 16777216.0, 3.0, float(rng.randint(-9, 9)) / 8)),
        "m": Decimal(
            rng.choice((rng.randint(-9999, 9999), rng.randint(-(10**12) + 1, 10**12 - 1)))
        ).scaleb(-3),
        "s": rng.choice(TEXTS),
        "flag": rng.random() < 0.5,
        "day": dt.date(1970, 1, 1)
        + dt.timedelta(days=rng.choice((-30000, -1, 0, 1, 19000, 19001))),
        "ts": start.replace(tzinfo=_UTC) + dt.timedelta(microseconds=offset_us),
    }
    for name in row:
        if rng.random() < (nulls / 10 if name == "ts" else nulls):
            row[name] = None
    return row


def write_files(rng: random.Random, rows: pa.Table, format_: str, directory: Path) -> None:
    """Split a table into files in random order; some may be empty."""
    directory.mkdir(parents=True)
    cuts = sorted(rng.randrange(rows.num_rows + 1) for _ in range(rng.randint(0, 5)))
    bounds = [0, *cuts, rows.num_rows]
    pieces = [rows.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    rng.shuffle(pieces)
    for number, piece in enumerate(pieces):
        path = directory / f"{number:03d}.{format_}"
        if format_ == "parquet":
            pq.write_table(piece, path, row_group_size=rng.choice((7, 64, 100_000)))
        elif format_ == "arrow":
            with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, piece.schema) as writer:
                writer.write_table(piece, max_chunksize=rng.choice((5, 1000)))
        else:
            lines = csv_lines(piece) if format_ == "csv" else json_lines(piece)
            path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        seconds = rng.randrange(10)  # files are read by modification time
        os.utime(path, (1_700_000_000 + seconds, 1_700_000_000 + seconds))


def csv_lines(rows: pa.Table) -> list[str]:
    lines = [",".join(rows.schema.names)]
    return lines + [",".join(_csv(v) for v in row.values()) for row in rows.to_pylist()]


def json_lines(rows: pa.Table) -> list[str]:
    return [
        json.dumps({n: _json(v) for n, v in row.items()}, ensure_ascii=False)
        for row in rows.to_pylist()
    ]


def _csv(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return "" if value is None else str(_json(value))


def _json(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
        case bool() | int() | float() | str() | None:
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() | dt.date():
            return value.isoformat()
        case _:
            return str(value)
