"""Tables on a screen: rich ones on a terminal, plain aligned text anywhere else.

Values come from users' data, so they are shown, never obeyed: control characters are escaped and
nothing is read as markup.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_RICH_ROWS = 500  # rich takes about a millisecond per row; longer tables are written plainly
_WIDEST = 60


def cell(value: Any) -> str:
    r"""A value as a table shows it.

    >>> cell(None), cell(0.1 + 0.2), cell(True), cell("a\x1b[1m\n"), cell(dt.datetime(2024, 1, 1))
    ('NULL', '0.3', 'true', 'a\\x1b[1m\\n', '2024-01-01 00:00:00')
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return format(value, ".10g")
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(sep=" ")
            return text.rstrip("0") if value.microsecond else text
        case list() | tuple():
            return "[" + ", ".join(cell(v) for v in value) + "]"
        case _:
            return "".join(_visible(c) for c in str(value))


def _visible(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | decimal.Decimal) and not isinstance(value, bool)


def right_aligned(rows: Sequence[Sequence[Any]], columns: int) -> list[bool]:
    """Columns whose every value is a number, NULLs aside."""
    return [
        any(row[i] is not None for row in rows)
        and all(row[i] is None or is_number(row[i]) for row in rows)
        for i in range(columns)
    ]


def plain_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    least: Sequence[int] | None = None,
    header: bool = True,
) -> tuple[list[str], list[int]]:
    """Aligned lines and the widths used; `least` keeps later pieces aligned with earlier ones."""
    texts = [[cell(v) for v in row] for row in rows]
    widths = list(least) if least is not None else [0] * len(columns)
    for row in [list(columns), *texts]:
        widths = [max(w, min(cell_len(t), _WIDEST)) for w, t in zip(widths, row, strict=True)]
    right = right_aligned(rows, len(columns))
    lines = []
    if header:
        lines.append(_line(columns, widths, right))
        lines.append("  ".join("-" * w for w in widths))
    return lines + [_line(row, widths, right) for row in texts], widths


def _line(texts: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for text, width, to_right in zip(texts, widths, right, strict=True):
        space = " " * (width - cell_len(text))
        padded.append(space + text if to_right else text + space)
    return "  ".join(padded).rstrip()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], out: TextIO, title: str | None = None
) -> None:
    """A whole table, in the way that suits where it goes."""
    known = [tuple(row) for row in rows]
    if out.isatty() and len(known) <= _RICH_ROWS:
        console = Console(file=out, highlight=False)
        console.print(rich_table(*fitting(columns, known, console.width), title))
        return
    if title is not None:
        out.write(f"{title}\n")
    for line in plain_lines(columns, known)[0]:
        out.write(line + "\n")
    if not known:
        out.write("(no rows)\n")
    out.flush()


def fitting(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], width: int
) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """The table, or, if only that fits into the width, the table turned: a line per column."""
    if not rows or _width(columns, rows) <= width:
        return columns, rows
    head, *rest = zip(columns, *([cell(v) for v in row] for row in rows), strict=True)
    return (head, rest) if _width(head, rest) <= width else (columns, rows)


def _width(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    """Of a rich table: three between columns, one at each edge."""
    widths = [max(cell_len(cell(v)) for v in column) for column in zip(columns, *rows, strict=True)]
    return sum(widths) + 3 * (len(widths) - 1) + 2


def rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name, to_right in zip(columns, right_aligned(rows, len(columns)), strict=True):
        table.add_column(Text(cell(name)), justify="right" if to_right else "left")
    for row in rows:
        table.add_row(*(Text(cell(v), style="dim" if v is None else "") for v in row))
    if not rows:
        table.caption = "no rows"
    return table
