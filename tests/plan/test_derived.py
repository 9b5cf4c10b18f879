"""Which column of a derived stream is its event time, and what its punctuation follows."""

from __future__ import annotations

import pytest
from tests.plan.streams import bound

from penstock.plan.derived import Times, derived_times

S = 1_000_000
JOIN = "FROM Sensors s [RANGE 10 SECONDS], Doors d [RANGE 5 SECONDS] WHERE s.id = d.id"


@pytest.mark.parametrize(
    ("text", "chosen", "expected"),
    [
        ("SELECT id, ts AS t, arrived FROM Sensors", None, Times("t", "arrived", 0)),
        ("SELECT id, temp FROM Sensors", None, Times(None)),
        ("SELECT id, arrived AS a, ts FROM Sensors", "A", Times("A", "a", None)),
        ("SELECT number FROM Log", None, Times(None)),
        ("SELECT max(temp) FROM Sensors [RANGE 60 SECONDS]", None, Times("window_end", None, 0)),
        (
            "SELECT max(temp) FROM Sensors [RANGE 60 SECONDS SLIDE 1 SECOND]",
            "Window_Start",
            Times("window_start", None, 60 * S),
        ),
        (f"SELECT d.at, s.ts {JOIN}", None, Times("at", None, 5 * S)),
        (f"SELECT d.at, s.ts {JOIN}", "ts", Times("ts", None, 10 * S)),
        (f"SELECT greatest(d.at, s.ts) AS t, d.at {JOIN}", "t", Times("t", None, None)),
        (
            "SELECT s.ts FROM Sensors s, Doors d [RANGE 5 SECONDS] WHERE s.id = d.id",
            None,
            Times("ts", None, None),
        ),
    ],
)
def test_times_of_a_derived_stream(text: str, chosen: str | None, expected: Times) -> None:
    [query] = bound(text)
    assert derived_times(query, chosen) == expected
