"""Rows of queries on stdout, as they come or gathered to the end of a bounded run.

jsonl: one object per row, `query` first. csv: a `query` column first; where the columns change, an
empty line and a new header. table: for people. Several rings deliver at once: writing is guarded.
"""

from __future__ import annotations

import csv
import json
import sys
import threading
from collections import defaultdict
from typing import Any, TextIO

import pyarrow as pa

from penstock.console.failures import forget_stdout
from penstock.console.formats import Format
from penstock.console.tables import plain_lines, print_table
from penstock.runtime.sinks.rows import json_lines, plain, python_rows

_HEADER_EVERY = 40  # rows of a growing table before its header is repeated


class ResultPrinter:
    """The terminal of an engine. `closed` is set when nobody reads stdout any more.

    gather: keep rows until `print_gathered`, so that each query's rows stand together; jsonl rows
    name their query anyway and are written at once.
    """

    def __init__(self, format_: Format, gather: bool = False, out: TextIO | None = None) -> None:
        self._format = format_
        self._gathers = gather and format_ is not Format.JSONL
        self._out = out
        self._guard = threading.Lock()
        self._gathered: dict[str, list[pa.Table]] = defaultdict(list)
        self._header: tuple[str, ...] = ()
        self._since_header = 0
        self._widths: dict[tuple[str, ...], list[int]] = {}
        self.rows = 0
        self.closed = threading.Event()

    @property
    def out(self) -> TextIO:
        return sys.stdout if self._out is None else self._out  # a prompt may wrap stdout meanwhile

    def write(self, query: str, rows: pa.Table) -> None:
        """Take a query's new rows; called by the engine from any thread."""
        with self._guard:
            self.rows += rows.num_rows
            if self._gathers:
                self._gathered[query].append(rows)
            elif not self.closed.is_set():
                self._write_now(query, rows)

    def gathered(self, query: str) -> pa.Table | None:
        """Rows of a query that are not printed yet."""
        with self._guard:
            tables = self._gathered.pop(query, None)
        return None if tables is None else pa.concat_tables(tables)

    def print_whole(self, query: str, rows: pa.Table) -> None:
        """All rows of one query at once."""
        with self._guard:
            rows = by_window(rows)
            if self._format is Format.TABLE:
                title = f"{query}: {rows.num_rows} row{'' if rows.num_rows == 1 else 's'}"
                print_table(rows.schema.names, python_rows(rows), self.out, title)
                self.out.write("\n")
                self.out.flush()
            else:
                self._write_now(query, rows)

    def _write_now(self, query: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        write = {Format.JSONL: self._jsonl, Format.CSV: self._csv, Format.TABLE: self._table}
        try:
            write[self._format](query, rows)
            self.out.flush()
        except BrokenPipeError:
            self.closed.set()
            forget_stdout()

    def _jsonl(self, query: str, rows: pa.Table) -> None:
        for line in json_lines(rows, {"query": query}):
            self.out.write(line + "\n")

    def _csv(self, query: str, rows: pa.Table) -> None:
        header = ("query", *rows.schema.names)
        writer = csv.writer(self.out, lineterminator="\n")
        if header != self._header:
            if self._header:
                self.out.write("\n")
            writer.writerow(header)
            self._header = header
        for row in python_rows(rows):
            writer.writerow((query, *(_csv_value(v) for v in row)))

    def _table(self, query: str, rows: pa.Table) -> None:
        columns = ("query", *rows.schema.names)
        changed = columns != self._header
        header = changed or self._since_header >= _HEADER_EVERY
        known = [(query, *row) for row in python_rows(rows)]
        lines, self._widths[columns] = plain_lines(
            columns, known, self._widths.get(columns), header
        )
        if changed and self._header:
            self.out.write("\n")
        self._header = columns
        self._since_header = len(known) + (0 if header else self._since_header)
        self.out.write("".join(line + "\n" for line in lines))


def by_window(rows: pa.Table) -> pa.Table:
    """Window results in the order of time, as people read them; other rows as they came."""
    if "window_end" not in rows.schema.names or not rows.num_rows:
        return rows
    keys = [("window_end", "ascending"), ("window_start", "ascending")]
    for name, type_ in zip(rows.schema.names[2:], rows.schema.types[2:], strict=True):
        if pa.types.is_string(type_) or pa.types.is_integer(type_):
            keys.append((name, "ascending"))
    return rows.sort_by(keys)


def _csv_value(value: Any) -> Any:
    match plain(value):
        case bool() as flag:
            return "true" if flag else "false"
        case list() | dict() as nested:
            return json.dumps(nested, ensure_ascii=False)
        case simple:
            return simple
