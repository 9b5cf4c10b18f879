"""Every case in tests/cases/plan/sharing.sql: which queries run in one ring, and how.

-- share: all queries below are of one composition
-- apart: no two of them are
-- partial: their windows are pre-aggregated; -- native: they are left to Spark
-- fail: part of what the user is told: message. hint
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.plan.streams import bound, cases, told

from penstock.errors import QueryError
from penstock.language.ast import Expr, Literal, Opaque
from penstock.plan.codec import composition_from, dumps
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.input_order import with_ordered_inputs

# What Spark says of the expressions in the cases, so that they need no Spark.
TYPES = {
    "(`id` + 1)": "int",
    "(1 / `id`)": "double",
    "if((`id` > 1), (`id` + 1), NULL)": "int",
    "if((`id` > 2), (`id` + 1), NULL)": "int",
    "upper(`room`)": "string",
    "lower(`room`)": "string",
    "`room` LIKE '%a_l'": "boolean",
    "1": "int",
    "0.5": "decimal(1,1)",
}


CONSTANTS: dict[str, Expr] = {
    "(2 * 100)": Literal(200),
    "(2 * 100) = 200": Literal(True),
    "double('NaN')": Literal(float("nan")),
    "(TIMESTAMP '2024-01-01' + INTERVAL 1 HOUR)": Opaque(("TIMESTAMP '2024-01-01 01:00:00'",)),
}


def composed(text: str) -> list[Composed]:
    return [
        compose(with_ordered_inputs(query), lambda sql, _: TYPES[sql], CONSTANTS.get)
        for query in bound(text)
    ]


@pytest.mark.parametrize(("header", "text"), cases("sharing.sql", "share"))
def test_queries_share_a_ring(header: re.Match[str], text: str) -> None:
    found = composed(text)
    assert len(found) > 1
    assert len({c.composition for c in found}) == 1


@pytest.mark.parametrize(("header", "text"), cases("sharing.sql", "apart"))
def test_queries_need_rings_of_their_own(header: re.Match[str], text: str) -> None:
    found = composed(text)
    assert len(found) > 1
    assert len({c.composition for c in found}) == len(found)


@pytest.mark.parametrize(("header", "text"), cases("sharing.sql", "partial"))
def test_windows_are_preaggregated(header: re.Match[str], text: str) -> None:
    for each in composed(text):
        assert each.composition.preaggregated
        assert not each.composition.shipped


@pytest.mark.parametrize(("header", "text"), cases("sharing.sql", "native"))
def test_windows_are_left_to_spark(header: re.Match[str], text: str) -> None:
    for each in composed(text):
        assert not each.composition.preaggregated
        assert each.composition.shipped


@pytest.mark.parametrize(("header", "text"), cases("sharing.sql", "fail"))
def test_is_refused(header: re.Match[str], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        composed(text)
    assert header[4] in told(caught.value)


def test_what_cannot_fail_is_data_of_the_slot() -> None:
    plain, safe, risky = composed(
        "SELECT id FROM Sensors WHERE temp > 1; SELECT id FROM Sensors WHERE upper(room) = 'A';"
        "SELECT id FROM Sensors WHERE id + 1 > 2 AND upper(room) = 'A'"
    )
    assert (plain.derived, plain.composition.computed) == ((), False)
    assert [a.sql for a in safe.derived] == ["upper(`room`)"]
    assert (safe.composition.derived, safe.composition.computed) == ((), True)
    assert [a.sql for a in risky.composition.derived] == ["(`id` + 1)"]
    assert (risky.derived, risky.composition.computed) == (safe.derived, False)
    assert composition_from(dumps(safe.composition)) == safe.composition


def test_outside_of_penstocks_own_sources_derived_values_keep_nobody_apart() -> None:
    plain, safe = bound(
        "SELECT id FROM Sensors WHERE temp > 1; SELECT id FROM Sensors WHERE upper(room) = 'A'"
    )
    frames = [
        replace(query, inputs=(replace(query.source, stream=stream),))
        for query in (plain, safe)
        for stream in [replace(query.source.stream, source="dataframe")]
    ]
    found = [compose(query, lambda sql, _: TYPES[sql], CONSTANTS.get) for query in frames]
    assert found[0].composition == found[1].composition
    assert found[1].derived


def test_equal_aggregates_are_kept_once() -> None:
    text = "SELECT avg(temp) AS a, sum(temp) AS s, sum(temp) / count(temp) AS b FROM Sensors [NOW]"
    [query] = composed(text)
    assert [(p.kind, p.argument) for p in query.composition.partials] == [
        ("sum", "temp"),
        ("count", "temp"),
    ]


def test_only_used_columns_are_shipped_in_the_order_of_the_stream() -> None:
    [query] = composed("SELECT upper(room) AS r, id FROM Sensors WHERE temp > 1")
    assert query.composition.shipped == ("id", "room")


def test_a_condition_that_is_never_true_has_no_terms() -> None:
    never, always = composed(
        "SELECT id FROM Sensors WHERE id > 3 AND id < 2; SELECT id FROM Sensors"
    )
    assert never.composition == always.composition
    assert never.terms == ()
    assert [t.sets for t in always.terms] == [()]


PER_ROOM = "FROM Sensors [RANGE 1 MINUTE DRATIO 1% PER room]"


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        (f"SELECT room, count(*) AS n {PER_ROOM} GROUP BY room", True),
        (f"SELECT Room AS source, count(*) AS n {PER_ROOM} GROUP BY id, source", True),
        (f"SELECT id, room, max(temp) AS m {PER_ROOM} GROUP BY 1, 2", True),
        (f"SELECT room, count(DISTINCT id) AS n {PER_ROOM} GROUP BY room", True),
        (f"SELECT count(DISTINCT id) AS n {PER_ROOM} GROUP BY room", True),
        (f"SELECT count(*) AS n {PER_ROOM}", False),
        (f"SELECT id, max(room) AS r {PER_ROOM} GROUP BY id", False),
        (f"SELECT upper(room) AS room_, count(*) AS n {PER_ROOM} GROUP BY upper(room)", False),
        (f"SELECT count(DISTINCT room) AS n {PER_ROOM}", False),
    ],
)
def test_sources_are_apart_where_they_are_groups_themselves(text: str, apart: bool) -> None:
    [query] = composed(text)
    composition = query.composition
    assert (composition.drop_ratio, composition.per, composition.apart) == (0.01, "room", apart)
    if apart:
        columns = composition.keys if composition.preaggregated else composition.shipped
        assert "room" in columns
    assert composition_from(dumps(composition)) == composition


def test_without_sources_nothing_is_apart() -> None:
    [query] = composed("SELECT room, count(*) AS n FROM Sensors [NOW DRATIO 1%] GROUP BY room")
    assert (query.composition.per, query.composition.apart) == (None, False)
