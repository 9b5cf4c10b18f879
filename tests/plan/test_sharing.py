"""Queries that say the same in other words share a ring, and each keeps its own columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan.streams import bound

from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.input_order import with_ordered_inputs
from penstock.schema import Schema


def type_of(sql: str, _: Schema) -> str:
    if "upper(" in sql:
        return "string"
    if any(sign in sql for sign in "<>="):
        return "boolean"
    return "int"


def composed(text: str) -> Composed:
    [query] = bound(text)
    return compose(with_ordered_inputs(query), type_of, lambda _: None)


def shown(query: Composed) -> dict[str, str]:
    """The query's columns in its order, and what the ring computes for them."""
    windows = 2 if query.composition.kind == "window" else 0
    ring = ["window_start", "window_end"][:windows] + [o.sql for o in query.composition.outputs]
    return {c.name: ring[c.place] for c in query.columns}


JOIN = "FROM Sensors S [NOW], Doors D [NOW] WHERE S.id = D.id"
# what differs: two texts of one meaning
SAME = {
    "aliases of streams": (
        "SELECT s.id FROM Sensors s WHERE s.temp > 1",
        "SELECT t.id FROM Sensors AS t WHERE t.temp > 1",
    ),
    "reordered conjuncts": (
        "SELECT id FROM Sensors WHERE temp > 1 AND ok",
        "SELECT id FROM Sensors WHERE ok AND temp > 1",
    ),
    "commuted comparisons": (
        "SELECT id FROM Sensors WHERE 5 < temp",
        "SELECT id FROM Sensors WHERE temp > 5",
    ),
    "commuted columns": (
        "SELECT id FROM Sensors WHERE id < temp",
        "SELECT id FROM Sensors WHERE temp > id",
    ),
    "BETWEEN": (
        "SELECT id FROM Sensors WHERE temp BETWEEN 1 AND 5",
        "SELECT id FROM Sensors WHERE temp <= 5 AND temp >= 1",
    ),
    "IN": (
        "SELECT id FROM Sensors WHERE id IN (1, 2)",
        "SELECT id FROM Sensors WHERE id = 2 OR id = 1",
    ),
    "parentheses in conditions": (
        "SELECT id FROM Sensors WHERE (((temp) > (5)))",
        "SELECT id FROM Sensors WHERE temp > 5",
    ),
    "parentheses in results": (
        "SELECT ((id) + 1) AS x, (temp) AS t FROM Sensors",
        "SELECT id + 1 AS x, temp AS t FROM Sensors",
    ),
    "letter case of names": (
        "SELECT Id, UPPER(ROOM) AS r FROM SENSORS WHERE TEMP > 3",
        "SELECT Id, upper(room) AS r FROM Sensors WHERE temp > 3",
    ),
    "qualified names": (
        "SELECT Sensors.id FROM Sensors WHERE Sensors.temp > 3",
        "SELECT id FROM Sensors WHERE temp > 3",
    ),
    "reordered GROUP BY": (
        "SELECT id, room, count(*) AS n FROM Sensors [NOW] GROUP BY id, room",
        "SELECT id, room, count(*) AS n FROM Sensors [NOW] GROUP BY room, id",
    ),
    "reordered GROUP BY that Spark aggregates": (
        "SELECT id, room, count(DISTINCT temp) AS n FROM Sensors [NOW] GROUP BY id, room",
        "SELECT id, room, count(DISTINCT temp) AS n FROM Sensors [NOW] GROUP BY room, id",
    ),
    "a group named twice": (
        "SELECT id, count(*) AS n FROM Sensors [NOW] GROUP BY id, 1",
        "SELECT id, count(*) AS n FROM Sensors [NOW] GROUP BY id",
    ),
    "commuted HAVING": (
        "SELECT max(temp) AS m FROM Sensors [NOW] HAVING 3 < count(*)",
        "SELECT max(temp) AS m FROM Sensors [NOW] HAVING count(*) > 3",
    ),
    "reordered HAVING": (
        "SELECT max(temp) AS m FROM Sensors [NOW] HAVING count(*) > 3 AND avg(temp) < 5",
        "SELECT max(temp) AS m FROM Sensors [NOW] HAVING avg(temp) < 5 AND count(*) > 3",
    ),
    "reordered FROM": (
        f"SELECT room, open {JOIN}",
        "SELECT room, open FROM Doors D [NOW], Sensors S [NOW] WHERE S.id = D.id",
    ),
    "commuted join condition": (
        f"SELECT room, open {JOIN}",
        "SELECT room, open FROM Sensors S [NOW], Doors D [NOW] WHERE D.id = S.id",
    ),
    "JOIN and FROM": (
        "SELECT room, open FROM Doors D [NOW] JOIN Sensors S [NOW] ON S.id = D.id",
        f"SELECT room, open {JOIN}",
    ),
    "conditions on combinations": (
        f"SELECT room {JOIN} AND ts < at AND ok = open",
        "SELECT room FROM Doors A [NOW], Sensors B [NOW]"
        " WHERE open = ok AND A.id = B.id AND at > ts",
    ),
    "joins by Spark itself": (
        "SELECT room FROM Sensors S [NOW], Doors D [NOW] WHERE S.id < D.id AND ok = open",
        "SELECT room FROM Doors D [NOW], Sensors S [NOW] WHERE open = ok AND D.id > S.id",
    ),
    "a stream joined with itself": (
        "SELECT A.open AS a, B.at FROM Doors A [NOW], Doors B [NOW] WHERE A.id = B.id",
        "SELECT X.open AS a, W.at FROM Doors W [NOW], Doors X [NOW] WHERE W.id = X.id",
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_the_same_in_other_words_is_the_same_slot_of_one_ring(one: str, other: str) -> None:
    assert composed(one) == composed(other)


# what differs: texts that are not the same query
OWN = {
    "constants": (
        "SELECT id FROM Sensors WHERE temp > 1",
        "SELECT id FROM Sensors WHERE temp BETWEEN 2 AND 3",
    ),
    "more predicates": (
        "SELECT id FROM Sensors",
        "SELECT id FROM Sensors WHERE room = 'hall' AND (ok OR hum IS NULL)",
    ),
    "windows": (
        "SELECT count(*) AS n FROM Sensors [RANGE 1 MINUTE]",
        "SELECT count(*) AS n FROM Sensors [RANGE 1 HOUR SLIDE 5 MINUTES]",
        "SELECT count(*) AS n FROM Sensors [NOW]",
    ),
    "the order of results": (
        "SELECT id, temp FROM Sensors",
        "SELECT temp, id FROM Sensors",
    ),
    "names of results": (
        "SELECT id FROM Sensors",
        "SELECT ID FROM Sensors",
        "SELECT id AS i FROM Sensors",
    ),
    "a result shown twice": (
        "SELECT id, temp FROM Sensors",
        "SELECT id, temp, id AS again FROM Sensors",
    ),
    "the order of aggregates": (
        "SELECT max(temp) AS a, min(temp) AS b FROM Sensors [NOW]",
        "SELECT min(temp) AS b, max(temp) AS a FROM Sensors [NOW]",
    ),
    "the order of groups and aggregates": (
        "SELECT room, id, count(*) AS n, max(temp) AS m FROM Sensors [NOW] GROUP BY room, id",
        "SELECT max(temp) AS m, count(*) AS n, id, room FROM Sensors [NOW] GROUP BY 3, 4",
    ),
    "the order of results that Spark aggregates": (
        "SELECT room, count(DISTINCT id) AS n FROM Sensors [NOW] GROUP BY room",
        "SELECT count(DISTINCT id) AS n, room FROM Sensors [NOW] GROUP BY room",
    ),
    "which of the usual aggregates": (
        "SELECT room, max(temp) AS m FROM Sensors [NOW] GROUP BY room",
        "SELECT room, avg(temp) AS a, count(*) AS n FROM Sensors [NOW] GROUP BY room",
        "SELECT sum(temp) AS s, count(temp) AS n FROM Sensors [NOW] GROUP BY room",
        "SELECT mean(temp) AS a, min(temp) AS low, room FROM Sensors [NOW] GROUP BY room",
    ),
    "which columns are grouped and aggregated": (
        "SELECT room, max(temp) AS m FROM Sensors [NOW] GROUP BY room",
        "SELECT id, max(temp) AS m FROM Sensors [NOW] GROUP BY id",
        "SELECT id, max(id) AS m FROM Sensors [NOW] GROUP BY id",
        "SELECT max(temp) AS m FROM Sensors [NOW]",
        "SELECT room, max(ts) AS m FROM Sensors [NOW] GROUP BY ok, room",
    ),
    "which columns HAVING is about": (
        "SELECT room, max(temp) AS m FROM Sensors [NOW] GROUP BY room HAVING count(*) > 3",
        "SELECT id, max(id) AS m FROM Sensors [NOW] GROUP BY id HAVING count(*) > 4",
        "SELECT max(ts) AS m FROM Sensors [NOW] HAVING count(*) > 5",
    ),
    "which columns of several are aggregated": (
        "SELECT max(id) AS a, min(ts) AS b FROM Sensors [NOW] GROUP BY room",
        "SELECT max(ts) AS a, min(id) AS b FROM Sensors [NOW]",
        "SELECT max(ts) AS a, avg(id) AS c, min(temp) AS b FROM Sensors [NOW]",
    ),
    "groups alone, or counted": (
        "SELECT room FROM Sensors [NOW] GROUP BY room",
        "SELECT room, count(1) AS n FROM Sensors [NOW] GROUP BY room",
    ),
    "constants of HAVING": (
        "SELECT room, max(temp) AS m FROM Sensors [NOW] GROUP BY room HAVING avg(temp) > 3",
        "SELECT room, sum(temp) AS s FROM Sensors [NOW] GROUP BY room HAVING avg(temp) > 4.5",
        "SELECT room, max(temp) AS m FROM Sensors [NOW] GROUP BY room HAVING 1e3 < avg(temp)",
    ),
    "bounds of HAVING": (
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING count(*) BETWEEN 3 AND 5",
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING count(*) BETWEEN 4 AND 9000000000",
    ),
    "constants of HAVING with other aggregates": (
        "SELECT max(temp) - min(temp) AS d FROM Sensors [NOW] HAVING count(*) > 3",
        "SELECT max(temp) - min(temp) AS d FROM Sensors [NOW] HAVING count(*) > 4",
    ),
    "the order of a join's results": (
        f"SELECT room, open {JOIN}",
        "SELECT open, room FROM Doors D [RANGE 1 MINUTE], Sensors S WHERE S.id = D.id AND temp > 3",
    ),
    "all columns of a join": (
        "SELECT S.*, open, at FROM Sensors S [NOW], Doors D [NOW] WHERE S.id = D.id",
        "SELECT open, at, S.* FROM Doors D [NOW], Sensors S [NOW] WHERE S.id = D.id",
    ),
}


@pytest.mark.parametrize("texts", OWN.values(), ids=OWN)
def test_what_is_a_querys_own_is_data_of_its_slot(texts: tuple[str, ...]) -> None:
    queries = [composed(text) for text in texts]
    assert len({query.composition for query in queries}) == 1
    assert len(set(queries)) == len(queries)


APART = {
    "what Spark may find an error in, and what keeps it from doing so": (
        "SELECT id FROM Sensors WHERE id + 1 > 3 AND ok",
        "SELECT id FROM Sensors WHERE ok AND id + 1 > 3",
    ),
    "conditions on combinations that may fail": (
        f"SELECT room {JOIN} AND 1 / temp > at AND ts < at",
        f"SELECT room {JOIN} AND ts < at AND 1 / temp > at",
    ),
    "HAVING of other columns": (
        "SELECT max(temp) AS m FROM Sensors [NOW] HAVING min(temp) > 3",
        "SELECT max(temp) AS m FROM Sensors [NOW] HAVING min(id) > 3",
    ),
    "computed with aggregates of other columns": (
        "SELECT max(temp) + 1 AS m FROM Sensors [NOW]",
        "SELECT max(hum) + 1 AS m FROM Sensors [NOW]",
    ),
    "constants of HAVING that are of other types": (
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING count(*) > 3",
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING count(*) > 3.5",
    ),
    "constants of HAVING that no aggregate can be": (
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING count(*) > 9223372036854775807",
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING count(*) > 9223372036854775808",
    ),
    "constants of HAVING beside keys": (
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING room > 'a'",
        "SELECT room FROM Sensors [NOW] GROUP BY room HAVING room > 'b'",
    ),
    "conditions of HAVING that may fail": (
        "SELECT count(*) AS n FROM Sensors [NOW] HAVING count(*) > 3 AND max(room) > 5",
        "SELECT count(*) AS n FROM Sensors [NOW] HAVING max(room) > 5 AND count(*) > 3",
    ),
    "draws": (
        "SELECT rand() AS a FROM Sensors",
        "SELECT rand() AS a, rand() AS b FROM Sensors",
    ),
    "inputs of one stream with other parts": (
        "SELECT A.open FROM Doors A [NOW], Doors B [NOW] WHERE A.id = B.id AND A.at < B.at",
        "SELECT B.open FROM Doors A [NOW], Doors B [NOW] WHERE A.id = B.id AND A.at < B.at",
    ),
}


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART)
def test_what_may_mean_something_else_stays_apart(one: str, other: str) -> None:
    assert composed(one).composition != composed(other).composition


@pytest.mark.parametrize(
    ("item", "sql"),
    [
        ("(id) * -((id))", "(`id` * - `id`)"),
        ("greatest((id), 2)", "greatest(`id`, 2)"),
        ("upper(id)", "upper(`id`)"),
        ("(tags)[0]", "((`tags`)[0])"),
        ("(id)::string", "((`id`) :: STRING)"),
        ("CASE WHEN (id) THEN 1 END", "(CASE WHEN (`id`) THEN 1 END)"),
        ("transform(tags, (x) -> (x) - (id))", "transform(`tags`, (x) -> (x) - `id`)"),
    ],
)
def test_parentheses_go_only_where_an_operand_stands_alone(item: str, sql: str) -> None:
    assert shown(composed(f"SELECT {item} AS x FROM Tagged")) == {"x": sql}


def test_columns_are_shown_in_the_order_and_by_the_names_of_the_query() -> None:
    text = "SELECT temp AS t, id, upper(room) AS r, Id AS again FROM Sensors"
    assert list(shown(composed(text)).items()) == [
        ("t", "`temp`"),
        ("id", "`id`"),
        ("r", "upper(`room`)"),
        ("again", "`id`"),
    ]


def test_results_of_windows_begin_with_the_window() -> None:
    query = composed("SELECT count(*) AS n, room FROM Sensors [NOW] GROUP BY room")
    assert list(shown(query).items()) == [
        ("window_start", "window_start"),
        ("window_end", "window_end"),
        ("n", "`__a0`"),
        ("room", "`__k1`"),  # the first of the texts, behind that of the numbers
    ]


ITEMS = ["id", "room", "temp", "hum", "ok", "upper(room) AS u", "id AS i", "Temp AS t"]


@given(st.permutations(ITEMS), st.integers(1, len(ITEMS)), st.randoms(use_true_random=False))
def test_any_order_of_a_select_list_shows_the_same_of_one_ring(items, count, random) -> None:
    one = items[:count]
    other = random.sample(one, count)
    first, second = (composed(f"SELECT {', '.join(each)} FROM Sensors") for each in (one, other))
    assert first.composition == second.composition
    assert shown(first) == shown(second)
    assert list(shown(second)) == [item.split()[-1] for item in other]


STREAMS = ["Sensors A", "Doors B", "Tagged C", "Words E"]


@given(st.permutations(STREAMS))
def test_any_order_of_streams_is_the_same_join(streams: list[str]) -> None:
    where = "A.id = B.id AND B.id = C.id AND C.id = n AND B.at < E.at"
    first, second = (
        composed(f"SELECT A.id, tags, word, open FROM {', '.join(order)} WHERE {where}")
        for order in (STREAMS, streams)
    )
    assert first == second
