"""The same selections as a user of Structured Streaming would write them.

Each form makes of a stream DataFrames of its matches: (id, `__slots`), or (id, `__slot`) where a
row comes once for each query that it matches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.bench.select.speed import match_in_turn
from penstock.bench.select.workload import Workload, bounds, texts


def apart(workload: Workload, stream: DataFrame) -> list[DataFrame]:
    """A filter, and a StreamingQuery, for each query."""
    return [
        stream.where(text).selectExpr("id", f"{number} AS __slot")
        for number, text in enumerate(texts(workload))
    ]


def in_array(workload: Workload, stream: DataFrame) -> list[DataFrame]:
    """All predicates in one query: rows that any holds for, with the numbers of those that do.

    Without the `where`, with `size(__slots) > 0` instead, it takes up to twice the time.
    """
    asked = texts(workload)
    numbers = [f"if({text}, {number}, NULL)" for number, text in enumerate(asked)]
    matches = f"filter(array({', '.join(numbers)}), n -> n IS NOT NULL) AS __slots"
    some = " OR ".join(f"({text})" for text in asked)
    return [stream.where(some).selectExpr("id", matches)]


def joined(workload: Workload, stream: DataFrame) -> list[DataFrame]:
    """A broadcast join with a table of the queries: lowest and highest value of each column."""
    low, high = bounds(workload)
    ends = {f"low_{n}": low[:, i] for i, n in enumerate(workload.names)}
    ends |= {f"high_{n}": high[:, i] for i, n in enumerate(workload.names)}
    table = pa.table({"__slot": np.arange(workload.k), **ends})
    asked = F.broadcast(stream.sparkSession.createDataFrame(table))
    holds = " AND ".join(f"{n} BETWEEN low_{n} AND high_{n}" for n in workload.names)
    return [stream.join(asked, F.expr(holds)).select("id", "__slot")]


def in_numpy(workload: Workload, stream: DataFrame, narrowing: bool) -> list[DataFrame]:
    """One predicate after the other in mapInArrow, on whole columns or on the rows left."""

    names = list(workload.names)

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            row, number = match_in_turn(workload, batch.select(names), narrowing)
            starts = np.flatnonzero(np.diff(row, prepend=-1))
            offsets = pa.array(np.append(starts, row.size).astype(np.int32))
            lists = pa.ListArray.from_arrays(offsets, pa.array(number.astype(np.int32)))
            ids = batch.column("id").take(pa.array(row[starts]))
            yield pa.RecordBatch.from_arrays([ids, lists], names=["id", "__slots"])

    return [stream.mapInArrow(match, "id BIGINT, __slots ARRAY<INT>")]
