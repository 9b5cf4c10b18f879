"""The one report format: rows of measurements, a summary, what they were measured on.

    {"bench": …, "version": …, "machine": {…}, "quick": …, "rows": [{…}, …], "summary": {…}}

Every row is flat. `agrees` is the benchmark's own check of results: a fast wrong answer is no
figure. Rows of different shapes are shown as one table for each value of their column `split_by`.
What only plots need is in `series`: neither shown nor in the JSON.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import penstock
from penstock.bench.machine import machine

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Report:
    bench: str
    quick: bool
    rows: list[dict[str, Value]]
    summary: dict[str, Any]
    agrees: bool = True
    machine: dict[str, Any] = field(default_factory=machine)
    split_by: str | None = None
    series: dict[str, list[dict[str, Value]]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "version": penstock.__version__,
            "machine": self.machine,
            "quick": self.quick,
            "rows": self.rows,
            "summary": self.summary,
        }

    def write(self, path: Path) -> None:
        """Write the file whole or not at all."""
        half = path.with_name(f".{path.name}.tmp")
        half.write_text(json.dumps(self.as_json(), indent=2) + "\n")
        os.replace(half, path)

    def show(self, console: Console | None = None) -> None:
        console = console or Console()
        if not console.is_terminal:  # a file has room for all columns
            console.width = max(console.width, 140)
        title = f"{self.bench}{' (quick)' if self.quick else ''}"
        for part, rows in self._tables().items():
            console.print(_rows_table(f"{title}: {part}" if part else title, rows))
        facts = Table("summary", "", show_header=False, title="summary")
        for key, value in self.summary.items():
            if isinstance(value, list | tuple):
                facts.add_row(key, ", ".join(map(shown, value)))
            elif not isinstance(value, dict):  # those are in the rows
                facts.add_row(key, shown(value))
        console.print(facts)
        m = self.machine
        console.print(
            f"{m['processor']}, {m['cores']} cores, {m['memory_gb']} GB, load {m['load_1min']} "
            f"before the run; Python {m['python']}, pyspark {m['pyspark']}",
            highlight=False,
        )

    def _tables(self) -> dict[str, list[dict[str, Value]]]:
        if self.split_by is None:
            return {"": self.rows}
        tables: dict[str, list[dict[str, Value]]] = {}
        for row in self.rows:
            rest = {key: value for key, value in row.items() if key != self.split_by}
            tables.setdefault(str(row[self.split_by]), []).append(rest)
        return tables


def _rows_table(title: str, rows: list[dict[str, Value]]) -> Table:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(title=title)
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(shown(row.get(column)) for column in columns))
    return table


def shown(value: Value) -> str:
    """A figure as a reader wants it.

    >>> shown(1234567), shown(1234567.8), shown(0.12345), shown(None), shown(True)
    ('1,234,567', '1,234,568', '0.123', '', 'yes')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"
    return value
