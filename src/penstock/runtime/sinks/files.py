"""Result files, exactly once: one file per query and micro-batch, or one for all of a ring's.

They are named by query, ring and micro-batch. A replayed micro-batch has the same rows, so it
replaces its own file; a file appears whole or not at all (written beside, flushed, renamed).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from penstock.runtime.sinks.rows import json_lines


def write_whole(path: Path, write: Callable[[Any], None]) -> None:
    """Write a file so that it is seen complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    with open(beside, "wb") as out:
        write(out)
        out.flush()
        os.fsync(out.fileno())
    os.replace(beside, path)


@dataclass(frozen=True, slots=True)
class FileSink:
    """Files of one query; of all queries of a ring that share them if `query` is None."""

    directory: str
    format: str
    query: str | None = None
    pooled: ClassVar[bool] = True

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        name = f"{ring}-{batch:08d}.{self.format}"
        if self.query is not None:
            name = f"{_plain_name(self.query)}-{name}"
        write_whole(Path(self.directory, name), lambda out: self._write(rows, out))

    def _write(self, rows: pa.Table, out: Any) -> None:
        if self.format == "parquet":
            pq.write_table(rows, out)
        elif self.format == "csv":
            pa_csv.write_csv(_flat(rows), out)
        else:
            for line in json_lines(rows):
                out.write(line.encode() + b"\n")


def _plain_name(query: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in query)


def _flat(rows: pa.Table) -> pa.Table:
    """Nested columns as JSON text: CSV has no other place for them."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            texts = list(json_lines(rows.select([i]), wrap=False))
            rows = rows.set_column(i, field.name, pa.array(texts, pa.string()))
    return rows
