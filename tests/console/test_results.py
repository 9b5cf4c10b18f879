"""Rows of several queries on one output, in each format."""

from __future__ import annotations

import datetime as dt
import io
import json

import pyarrow as pa
import pytest

from penstock.console.formats import Format
from penstock.console.results import ResultPrinter

HOT = pa.table({"id": [1, 2], "at": pa.array([0, 1_500_000], pa.timestamp("us", tz="UTC"))})
ROOMS = pa.table({"room": ["hall", None], "flags": [[True], []]})


def printed(format_: Format) -> str:
    out = io.StringIO()
    printer = ResultPrinter(format_, out=out)
    printer.write("hot", HOT)
    printer.write("hot2", HOT.slice(0, 1))
    printer.write("rooms", ROOMS)
    return out.getvalue()


def test_jsonl_has_one_object_per_row_with_the_query_first() -> None:
    lines = [json.loads(line) for line in printed(Format.JSONL).splitlines()]
    assert lines[0] == {"query": "hot", "id": 1, "at": "1970-01-01T00:00:00Z"}
    assert list(lines[0]) == ["query", "id", "at"]
    assert lines[1]["at"] == "1970-01-01T00:00:01.500000Z"
    assert lines[4] == {"query": "rooms", "room": None, "flags": []}


def test_csv_has_a_new_header_where_the_columns_change() -> None:
    assert printed(Format.CSV).splitlines() == [
        "query,id,at",
        "hot,1,1970-01-01T00:00:00Z",
        "hot,2,1970-01-01T00:00:01.500000Z",
        "hot2,1,1970-01-01T00:00:00Z",
        "",
        "query,room,flags",
        "rooms,hall,[true]",
        "rooms,,[]",
    ]


def test_a_table_repeats_its_header_only_where_the_columns_change() -> None:
    text = printed(Format.TABLE)
    assert text.count("query") == 2
    assert "hot     2  1970-01-01 00:00:01.5" in text


@pytest.mark.parametrize("format_", [Format.TABLE, Format.CSV])
def test_gathered_rows_are_held_until_they_are_asked_for(format_: Format) -> None:
    out = io.StringIO()
    printer = ResultPrinter(format_, gather=True, out=out)
    printer.write("hot", HOT.slice(0, 1))
    printer.write("rooms", ROOMS)
    printer.write("hot", HOT.slice(1))
    assert out.getvalue() == ""
    rows = printer.gathered("hot")
    assert rows is not None
    assert rows.to_pydict() == HOT.to_pydict()
    assert printer.gathered("hot") is None


def test_whole_window_results_are_printed_in_the_order_of_time() -> None:
    ends = [dt.datetime(2024, 1, 1, 0, m, tzinfo=dt.UTC) for m in (3, 1, 2, 1)]
    rows = pa.table({"window_start": ends, "window_end": ends, "room": ["a", "b", "c", "a"]})
    out = io.StringIO()
    ResultPrinter(Format.JSONL, out=out).print_whole("w", rows)
    rooms = [json.loads(line)["room"] for line in out.getvalue().splitlines()]
    assert rooms == ["a", "b", "c", "a"]
