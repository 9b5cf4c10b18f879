"""Every case in tests/cases/plan/bind.sql: what a query means, or why it is refused and where.

-- ok: why this is interesting
-- is: the query with every name resolved
-- fail 2:14: part of what the user is told: message. hint
"""

from __future__ import annotations

import re

import pytest
from tests.plan.streams import bound, cases, told

from penstock.errors import QueryError
from penstock.language.render import render
from penstock.plan.bound import BoundQuery, BoundStream


def show(query: BoundQuery) -> str:
    text = ", ".join(f"{render(i.expr)} AS {i.name}" for i in query.items)
    text += f" FROM {', '.join(_source(s, query.aggregated) for s in query.inputs)}"
    text += f" WHERE {render(query.where)}" if query.where is not None else ""
    text += f" GROUP BY {', '.join(map(render, query.keys))}" if query.keys else ""
    text += f" HAVING {render(query.having)}" if query.having is not None else ""
    return text.replace("`", "")


def _source(source: BoundStream, aggregated: bool) -> str:
    if source.window is None or not aggregated:
        return source.stream.name
    window = f"{source.window.range_us} / {source.window.slide_us} on {source.event_time}"
    window += "" if source.drop_ratio_per is None else f" per {source.drop_ratio_per}"
    return f"{source.stream.name} [{window}]"


@pytest.mark.parametrize(("header", "text"), cases("bind.sql", "ok"))
def test_is_understood(header: re.Match[str], text: str) -> None:
    [query] = bound(text)
    assert show(query) == header[5]


@pytest.mark.parametrize(("header", "text"), cases("bind.sql", "fail"))
def test_is_refused_with_a_place_and_a_remedy(header: re.Match[str], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        bound(text)
    assert header[4] in told(caught.value)
    if header[2]:
        assert (caught.value.line, caught.value.column) == (int(header[2]), int(header[3]))


def test_a_selection_says_that_its_window_has_no_effect() -> None:
    for text in (
        "SELECT id FROM Doors [RANGE 1 MINUTE]",
        "SELECT id FROM Doors [DRATIO 1% PER id]",
    ):
        [query] = bound(text)
        assert query.notes == ("a selection keeps no window: its window clause has no effect",)


def test_a_join_says_which_stream_has_no_range() -> None:
    text = "SELECT D.id FROM Sensors S [RANGE 1 MINUTE], Doors D WHERE S.id = D.id"
    [query] = bound(text)
    assert query.notes == ("Doors has no RANGE: its join state grows without bound",)


def test_slide_means_nothing_to_a_join_without_aggregates() -> None:
    text = "SELECT A.id FROM Doors A [RANGE 2 SECONDS SLIDE 1 SECOND], Doors B [NOW]"
    [query] = bound(f"{text} WHERE A.id = B.id")
    assert query.notes == ("a join without aggregates reports at once: SLIDE of Doors is unused",)


def test_a_join_has_up_to_sixteen_streams() -> None:
    def joined(streams: int) -> str:
        return f"SELECT S0.id FROM {', '.join(f'Doors S{n} [NOW]' for n in range(streams))}"

    [query] = bound(joined(16))
    assert len(query.inputs) == 16
    with pytest.raises(QueryError, match="a join of 17 streams") as caught:
        bound(joined(17))
    assert caught.value.hint == "join up to 16 streams"
