"""Result files, exactly once: one file per query and micro-batch, named by both.

A replayed micro-batch has the same rows, so it replaces its own file; a file appears whole or not
at all (written beside, flushed, renamed).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


class FileSink:
    def __init__(self, directory: str, format_: str, query: str) -> None:
        self._directory = Path(directory)
        self._format = format_
        self._query = "".join(c if c.isalnum() or c in "-_" else "_" for c in query)

    def deliver(self, rows: pa.Table, ring: str, batch: int) -> None:
        name = f"{self._query}-{ring}-{batch:08d}.{self._format}"
        write_whole(self._directory / name, lambda out: self._write(rows, out))

    def _write(self, rows: pa.Table, out: Any) -> None:
        if self._format == "parquet":
            pq.write_table(rows, out)
        elif self._format == "csv":
            pa_csv.write_csv(_flat(rows), out)
        else:
            for line in json_lines(rows):
                out.write(line.encode() + b"\n")


def _flat(rows: pa.Table) -> pa.Table:
    """Nested columns as JSON text: CSV has no other place for them."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            texts = list(json_lines(rows.select([i]), wrap=False))
            rows = rows.set_column(i, field.name, pa.array(texts, pa.string()))
    return rows
