"""What is offered at the cursor."""

from __future__ import annotations

import pytest

from penstock.console.completion import Names, suggestions

NAMES = Names(
    {"Sensors": ("id", "room", "temp"), "Doors": ("door", "open")},
    ["hottest", "doors_open"],
    {"Zones": ("name", "geom")},
)


@pytest.mark.parametrize(
    ("before", "first"),
    [
        ("", "CREATE STREAM"),
        ("sel", "SELECT"),
        ("SHOW STREAMS; dr", "DROP QUERY"),
        ("SELECT id FROM ", "Sensors"),
        ("SELECT id FROM sensors.", "Sensors.late"),
        ("DESCRIBE Do", "Doors"),
        ("DROP QUERY ", "hottest"),
        ("EXPLAIN ho", "hottest"),
        ("SHOW Q", "QUERIES"),
        ("SHOW RE", "REGIONS"),
        ("DROP REGIONS ", "Zones"),
        ("SELECT id FROM Zo", "Zones"),
        ("SELECT id FROM Sensors, Zones z WHERE ST_Wi", "st_within"),
        ("SELECT id FROM Sensors, Zones z WHERE z.ge", "z.geom"),
        ("SELECT id FROM Sensors WHERE te", "temp"),
        ("SELECT op", "open"),
        ("SELECT S.r FROM Sensors S WHERE S.te", "S.temp"),
        ("SELECT room FROM Sensors [RA", "RANGE"),
        ("SELECT room FROM Sensors [DRATIO 1% P", "PER"),
        ("SELECT room FROM Sensors [RANGE 5 MINUTES] GR", "GROUP BY"),
        ("SELECT approx_co", "approx_count_distinct"),
        ("CREATE STREAM S (id INT) WITH (sou", "source"),
        ("CREATE STREAM S (id INT) WITH (id", "idle"),
        (".qu", ".queries"),
    ],
)
def test_the_best_completion_comes_first(before: str, first: str) -> None:
    assert suggestions(before, NAMES)[0] == first


@pytest.mark.parametrize("before", ["SELECT 'te", ".results ho", "SELECT temp", "SELECT Nope.x"])
def test_nothing_is_offered_where_nothing_fits(before: str) -> None:
    assert suggestions(before, NAMES) == []


def test_columns_of_other_streams_are_left_out_once_a_stream_is_named() -> None:
    assert "open" not in suggestions("SELECT id FROM Sensors WHERE ", NAMES)
    assert "open" in suggestions("SELECT ", NAMES)
