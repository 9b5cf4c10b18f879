"""EXPLAIN: what of a WHERE is shared; of disorder, what will run and why not what was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.plan.streams import bound

from penstock.plan.compose import compose
from penstock.plan.disorder import ESTIMATORS, chosen_estimator
from penstock.plan.explain import explain_query
from penstock.plan.explain_ring import Company, Sharing, ring_lines
from penstock.schema import Schema


def disorder(ratio: str, group_by: str = "room", **settings: Any) -> list[str]:
    """The lines on disorder of a query with this DRATIO on a stream with these settings."""
    [query] = bound(
        f"SELECT {group_by}, count(*) AS n FROM Sensors [NOW {ratio}] GROUP BY {group_by}"
    )
    source = replace(query.source, stream=replace(query.source.stream, **settings))
    query = replace(query, inputs=(source,))
    text = explain_query(
        query, compose(query, lambda sql, _: sql, lambda _: None), Schema.of("n BIGINT"), True, None
    )
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("disorder"))
    last = next(n for n, line in enumerate(lines) if line.startswith("outputs"))
    assert all(line.startswith(" " * 10) for line in lines[first + 1 : last])
    return [line[10:] for line in lines[first:last]]


def selection(where: str, *company: Company) -> list[str]:
    """The lines on derived values and selection; `company` of each attribute, as they appear."""
    [query] = bound(f"SELECT id FROM Sensors WHERE {where}")
    composed = compose(query, lambda sql, _: "string" if "upper" in sql else "int", lambda _: None)
    sets = [pair for term in composed.terms for pair in term.sets]
    sharing = Sharing("select-1", 9, dict(zip(sets, company, strict=False)))
    text = explain_query(query, composed, Schema.of("id INT"), False, sharing)
    return [
        line for line in text.splitlines() if line[:10] in ("derived   ", "selection ", " " * 10)
    ]


@pytest.mark.parametrize(
    ("where", "company", "lines"),
    [
        ("1 = 1", [], ["selection every tuple"]),
        ("id > 3 AND id < 2", [], ["selection never true"]),
        (
            "temp > 40 AND room = 'hall'",
            [Company(1, 0), Company(0, 1)],
            [
                "selection room in {'hall'}; shared with 1 query",
                "          and temp in (40.0, inf); compared by 1 query too",
            ],
        ),
        (
            "temp > 40 AND id = 1 OR room LIKE 'ha%'",
            [Company(12, 28), Company(0, 0), Company(0, 3)],
            [
                "selection id in {1}; shared with 12 queries, compared by 28 more",
                "          and temp in (40.0, inf)",
                "          or room in ['ha', 'hb'); compared by 3 queries too",
            ],
        ),
        (
            "upper(room) = 'HALL'",
            [],
            ["derived   upper(`room`): string", "selection upper(`room`) in {'HALL'}"],
        ),
        (
            "id + 1 > 5",
            [],
            [
                "derived   (`id` + 1): int; only queries with it share the ring",
                "selection (`id` + 1) in [6, inf)",
            ],
        ),
    ],
)
def test_explain_says_how_a_condition_was_taken_apart_and_who_shares_it(
    where: str, company: list[Company], lines: list[str]
) -> None:
    assert selection(where, *company) == lines


@pytest.mark.parametrize("ratio", [None, 0.01])
@pytest.mark.parametrize("estimator", [None, *ESTIMATORS])
def test_the_stream_goes_first_and_ratios_need_no_estimator(
    estimator: str | None, ratio: float | None
) -> None:
    expected = {
        (None, None): "max",
        ("normal", None): "max",
        ("quantile", None): "max",
        (None, 0.01): "quantile",
    }
    assert chosen_estimator(estimator, ratio) == expected.get((estimator, ratio), estimator)


MAX = "max: windows close behind the largest delay seen"


@pytest.mark.parametrize(
    ("ratio", "settings", "lines"),
    [
        ("", {}, [MAX]),
        ("", {"estimator": "max"}, [MAX]),
        (
            "",
            {"estimator": "fixed", "slack_us": 5_000_000},
            ["fixed: windows close 5 seconds behind the latest"],
        ),
        (
            "",
            {"estimator": "fixed", "slack_us": 0},
            ["fixed: windows close 0 seconds behind the latest"],
        ),
        (
            "",
            {"estimator": "fixed", "slack_tuples": 1000},
            ["fixed: windows close 1000 tuples behind the latest"],
        ),
        (
            "",
            {"estimator": "fixed", "slack_tuples": 1},
            ["fixed: windows close 1 tuple behind the latest"],
        ),
        (
            "",
            {"estimator": "quantile"},
            [MAX, "the stream's estimator quantile needs a DRATIO; without one max runs"],
        ),
        (
            "DRATIO 1%",
            {},
            ["quantile: at most 1% of the tuples may come too late; the delay adapts"],
        ),
        (
            "DRATIO 7%",
            {"estimator": "quantile"},
            ["quantile: at most 7% of the tuples may come too late; the delay adapts"],
        ),
        (
            "DRATIO .05%",
            {"estimator": "normal"},
            [
                "normal: at most 0.05% of the tuples may come too late; the delay adapts, as for"
                " delays of a normal distribution"
            ],
        ),
        (
            "DRATIO 1%",
            {"estimator": "max"},
            [MAX, "DRATIO 1% is only watched: the stream's estimator max decides"],
        ),
        (
            "DRATIO 1%",
            {"estimator": "fixed", "slack_tuples": 2},
            [
                "fixed: windows close 2 tuples behind the latest",
                "DRATIO 1% is only watched: the stream's estimator fixed decides",
            ],
        ),
    ],
)
def test_explain_says_which_estimator_runs(
    ratio: str, settings: dict[str, Any], lines: list[str]
) -> None:
    assert disorder(ratio, **settings) == lines


def test_explain_says_whether_sources_wait_for_each_other() -> None:
    assert disorder("DRATIO 1% PER room")[1:] == [
        "per room: each room's windows close on their own"
    ]
    mixed = "per room: windows mix sources and wait for the slowest"
    assert disorder("DRATIO 1% PER room", group_by="id")[1:] == [mixed]
    assert disorder("DRATIO 1% PER room", group_by="id", estimator="max")[2:] == [mixed]


ANY = "the usual aggregates of columns of Sensors, whichever, by whichever"


def test_explain_says_what_a_ring_computes_and_with_whom_it_is_shared() -> None:
    text = "SELECT room, max(temp), room AS r FROM Sensors [RANGE 1 MINUTE] GROUP BY room"
    [query] = bound(text)
    composition = compose(query, lambda sql, _: sql, lambda _: None).composition
    assert ring_lines(query, composition, None) == [
        f"computes  {ANY}; at most 1 by number or time and 1 by text, 1 of whole numbers or times "
        "and 1 of floats",
        "ring      a new one: no running query has this composition",
    ]
    six = Sharing("window-1", 6, {}, ("a", "b", "c", "d"), runs=True)
    assert ring_lines(query, composition, six)[1:] == [
        "ring      window-1; queries in it: 6",
        "shared    with a, b, c, d and 1 more",
    ]
    assert ring_lines(query, composition, replace(six, queries=1, others=()))[1:] == [
        "ring      window-1; queries in it: 1"
    ]
    assert ring_lines(query, composition, replace(six, queries=1, others=("a",), runs=False))[
        2:
    ] == ["shared    with a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "SELECT count(room), sum(id), max(temp) FROM Sensors [NOW] HAVING count(*) > 3",
            "any of count(*); count, sum, avg, min, max of id, temp; count of room from Sensors;"
            " HAVING with constants of its own",
        ),
        (
            "SELECT room FROM Sensors [NOW] GROUP BY room HAVING count(*) > 3",
            f"{ANY}; at most 1 by number or time and 1 by text, 1 of whole numbers or times and 1 "
            "of floats; HAVING with constants of its own",
        ),
        (
            "SELECT max(temp), min(id), max(ts) FROM Sensors [NOW] GROUP BY room",
            f"{ANY}; at most 1 by number or time and 1 by text, 2 of whole numbers or times and 1 "
            "of floats",
        ),
        (
            "SELECT max(temp) - 1 AS m FROM Sensors [NOW] HAVING max(temp) > max(id) + 1",
            "(max(temp) - 1) of Sensors; HAVING with the same constants",
        ),
    ],
)
def test_explain_says_which_aggregates_queries_may_select(text: str, said: str) -> None:
    [query] = bound(text)
    composition = compose(query, lambda sql, _: sql, lambda _: None).composition
    assert ring_lines(query, composition, None)[0] == f"computes  {said}"


def test_explain_says_that_columns_as_they_come_are_shared_whichever_they_are() -> None:
    [query] = bound("SELECT room, temp FROM Sensors WHERE id > 3")
    composition = compose(query, lambda sql, _: sql, lambda _: None).composition
    assert ring_lines(query, composition, None)[0] == (
        "computes  nothing: columns of Sensors as they come, whichever a query selects"
    )
