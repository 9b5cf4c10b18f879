"""Continuous queries of ten kinds over one stream, for penstock and for Structured Streaming.

Five kinds select, each other columns; five aggregate in windows, by other keys or with other
functions. Queries of a kind differ in their predicate and their RANGE. penstock needs two rings:
one for all that select, since they compute nothing, and one for all that aggregate, since which
columns they group by and aggregate, and how, is data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.bench.tuples import SLACK, WEIGHTS


@dataclass(frozen=True, slots=True)
class Kind:
    """columns: what is selected, or by what is grouped; aggregates: by name, of a window."""

    columns: tuple[str, ...]
    aggregates: dict[str, str] = field(default_factory=dict)
    width: int = 5  # how many of the thousand values of `w` a query wants

    @property
    def names(self) -> list[str]:
        """Of the results."""
        times = ["window_start", "window_end"] if self.aggregates else []
        return [*times, *self.columns, *self.aggregates]


_WIDE = 50
KINDS = (
    Kind(("ts", "v")),
    Kind(("key",), {"n": "count(*)", "s": "sum(v)"}, _WIDE),
    Kind(("key", "v")),
    Kind(("key",), {"high": "max(v)", "low": "min(v)"}, _WIDE),
    Kind(("ts", "w")),
    Kind((), {"n": "count(*)", "a": "avg(v)"}, _WIDE),
    Kind(("key", "ts", "v", "w")),
    Kind(("key",), {"a": "avg(v)"}, _WIDE),
    Kind(("v", "w")),
    Kind((), {"high": "max(v)", "s": "sum(w)"}, _WIDE),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One continuous query."""

    kind: Kind
    low: int
    range_minutes: int

    @property
    def predicate(self) -> str:
        return f"w >= {self.low} AND w < {self.low + self.kind.width}"

    @property
    def text(self) -> str:
        results = [*self.kind.columns, *(f"{a} AS {n}" for n, a in self.kind.aggregates.items())]
        window = f" [RANGE {self.range_minutes} MINUTES SLIDE 1 MINUTE]"
        text = f"SELECT {', '.join(results)} FROM S{window if self.kind.aggregates else ''}"
        text += f" WHERE {self.predicate}"
        if self.kind.aggregates and self.kind.columns:
            text += f" GROUP BY {', '.join(self.kind.columns)}"
        return text

    def native(self, stream: DataFrame) -> DataFrame:
        """The same as Structured Streaming says it."""
        if not self.kind.aggregates:
            return stream.where(self.predicate).select(*self.kind.columns)
        window = F.window("ts", f"{self.range_minutes} minutes", "1 minute")
        aggregates = [F.expr(sql).alias(name) for name, sql in self.kind.aggregates.items()]
        return (
            stream.withWatermark("ts", SLACK)
            .where(self.predicate)
            .groupBy(window.alias("window"), *self.kind.columns)
            .agg(*aggregates)
            .select("window.start", "window.end", *self.kind.columns, *self.kind.aggregates)
        )


def asked(count: int, kinds: int = len(KINDS)) -> list[Asked]:
    """So many queries, one of each kind after the other, no two of the first thousands alike."""
    found = []
    for number in range(count):
        kind, turn = KINDS[number % kinds], number // kinds
        found.append(Asked(kind, turn * 89 % (WEIGHTS - kind.width), 1 + turn % 5))
    return found


def in_order(kind: Kind, tables: Sequence[pa.Table]) -> pa.Table:
    """All rows that a query got, in an order of their own, times as numbers."""
    if not tables:
        return pa.table({name: [] for name in kind.names})
    table = pa.concat_tables(tables).rename_columns(kind.names)
    for place, name in enumerate(kind.names):
        if pa.types.is_timestamp(table.column(name).type):
            micros = table.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
            table = table.set_column(place, name, micros)
    exact = [name for name in kind.names if name not in kind.aggregates]
    return table.sort_by([(name, "ascending") for name in exact]).combine_chunks()


def same_rows(ours: pa.Table, theirs: pa.Table) -> bool:
    """Equal, sums of doubles up to the order in which they were added; none at all is no proof."""
    if ours.num_rows != theirs.num_rows or ours.num_rows == 0:
        return False
    return all(
        np.allclose(a.to_numpy(), b.to_numpy(), rtol=1e-9, atol=0)
        if pa.types.is_floating(a.type)
        else np.array_equal(a.to_numpy(), b.to_numpy())
        for a, b in zip(ours.columns, theirs.columns, strict=True)
    )
