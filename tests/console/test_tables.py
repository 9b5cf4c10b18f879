"""Tables as text: aligned, and safe to print whatever the data hold."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from penstock.console.tables import cell, fitting, plain_lines, print_table


def test_numbers_are_aligned_right_and_text_left() -> None:
    lines, _ = plain_lines(("name", "n"), [("a", 5), ("long", 100), ("b", None)])
    assert lines == ["name     n", "----  ----", "a        5", "long   100", "b     NULL"]


def test_widths_of_earlier_pieces_keep_later_pieces_aligned() -> None:
    _, widths = plain_lines(("name", "n"), [("longer", 5)])
    lines, _ = plain_lines(("name", "n"), [("a", 7)], widths, header=False)
    assert lines == ["a       7"]


def test_wide_characters_count_as_two_columns() -> None:
    lines, _ = plain_lines(("a", "b"), [("温度", "x"), ("t", "y")])
    assert lines[2:] == ["温度  x", "t     y"]


@given(st.text())
def test_no_value_can_command_the_terminal(text: str) -> None:
    assert cell(text).isprintable()


def test_an_empty_table_says_that_it_has_no_rows() -> None:
    out = io.StringIO()
    print_table(("a",), [], out)
    assert out.getvalue() == "a\n-\n(no rows)\n"


def test_a_table_too_wide_for_the_terminal_is_turned_if_that_fits() -> None:
    columns, rows = ("stream", "delay_p99", "delay_max"), [("S", "1.2 s", 0), ("T", None, 3)]
    turned = (("stream", "S", "T"), [("delay_p99", "1.2 s", "NULL"), ("delay_max", "0", "3")])
    assert fitting(columns, rows, 32) == (columns, rows)
    assert fitting(columns, rows, 31) == fitting(columns, rows, 26) == turned
    assert fitting(columns, rows, 25) == (columns, rows)
    assert fitting(columns, [], 5) == (columns, [])
