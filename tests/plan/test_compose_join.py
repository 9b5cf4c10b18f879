"""Joins: what their inputs ship, what becomes of combinations, what is data of the slot."""

from __future__ import annotations

import pytest
from tests.plan.streams import bound

from penstock.errors import QueryError
from penstock.plan.codec import composition_from, dumps
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.specs import Join, JoinStep, Term, WindowSpec
from penstock.plan.valuesets import compare
from penstock.schema import Schema

TYPES = {
    "upper(`room`)": "string",
    "(`id` + 1)": "int",
    "(1 / `id`)": "double",
    "if((`id` <> 0 AND `ok`), (1 / `id`), NULL)": "double",
}


def type_of(sql: str, schema: Schema) -> str:
    if sql not in TYPES:
        raise QueryError(f"Spark does not know {sql}")
    return TYPES[sql]


def composed(text: str) -> Composed:
    [query] = bound(text)
    found = compose(query, type_of, lambda _: None)
    assert composition_from(dumps(found.composition)) == found.composition
    return found


def join_of(query: Composed) -> Join:
    assert query.composition.join is not None
    return query.composition.join


def shipped(query: Composed) -> list[tuple[str, ...]]:
    return [i.shipped for i in join_of(query).inputs]


def outputs(query: Composed) -> dict[str, str]:
    """What each of the query's own columns is, without those of the window."""
    results = [c for c in query.columns if not c.name.startswith("window_")]
    first = len(query.columns) - len(results)
    return {c.name: query.composition.outputs[c.place - first].sql for c in results}


THREE = "FROM Sensors A [RANGE 10 MINUTES], Doors B [RANGE 5 MINUTES], Tagged C"
SAME_ID = "WHERE A.id = B.id AND B.id = C.id"


def test_inputs_ship_what_results_and_residual_need() -> None:
    query = composed(
        f"SELECT upper(A.room) AS r, C.tags, temp {THREE} {SAME_ID} AND A.temp > 3 AND B.at < A.ts"
    )
    composition = query.composition
    assert (composition.kind, composition.stream) == ("select", "Sensors, Doors, Tagged")
    assert composition.streams == ("Sensors", "Doors", "Tagged")
    assert shipped(query) == [("room", "temp", "ts"), ("at",), ("tags",)]
    assert composition.shipped == ("0.room", "0.temp", "0.ts", "1.at", "2.tags")
    assert outputs(query) == {"r": "upper(`0.room`)", "tags": "`2.tags`", "temp": "`0.temp`"}
    assert join_of(query).residual == "`0.ts` > `1.at`"
    for source, event_time in zip(join_of(query).inputs, ("ts", "at", "ts"), strict=True):
        assert (source.kind, source.event_time, source.outputs) == ("input", event_time, ())
        assert (source.keys, source.key_types) == (("id",), ("int",))


def test_conditions_on_one_input_and_ranges_are_data_of_the_slot() -> None:
    query = composed(f"SELECT A.room {THREE} {SAME_ID} AND A.temp > 3 AND upper(room) = 'HALL'")
    first, second, third = query.inputs
    [upper] = first.composition.derived
    assert first.terms == (Term(((upper.name, compare("=", "HALL")), ("temp", compare(">", 3.0)))),)
    assert second.terms == third.terms == query.terms == (Term(()),)
    assert [i.window and i.window.range_us for i in query.inputs] == [
        600_000_000,
        300_000_000,
        None,
    ]
    assert (query.window, query.derived) == (None, ())
    assert [i.composition.computed for i in query.inputs] == [False, False, False]
    assert [i.composition for i in query.inputs] == list(join_of(query).inputs)


def test_a_condition_on_the_key_holds_for_all_inputs() -> None:
    query = composed(f"SELECT A.room {THREE} {SAME_ID} AND B.id < 5")
    assert {i.terms for i in query.inputs} == {(Term((("id", compare("<", 5)),)),)}


@pytest.mark.parametrize("item", ["A.id", "B.id AS id", "C.id", "B.id + A.id AS id"])
def test_keys_are_shipped_by_one_input(item: str) -> None:
    assert shipped(composed(f"SELECT {item} {THREE} {SAME_ID}")) == [("id",), (), ()]


def test_nothing_is_shipped_where_nothing_is_needed() -> None:
    query = composed(f"SELECT count(*) AS n {THREE} {SAME_ID}")
    assert (shipped(query), query.composition.shipped) == ([(), (), ()], ())


def test_an_expression_of_the_key_is_had_from_a_column() -> None:
    text = "SELECT upper(room) AS r, word FROM Sensors, Words WHERE upper(room) = word"
    query = composed(text)
    assert outputs(query) == {"r": "`1.word`", "word": "`1.word`"}
    assert shipped(query) == [(), ("word",)]
    first, second = join_of(query).inputs
    [upper] = first.derived
    assert (upper.sql, first.keys, second.keys) == ("upper(`room`)", (upper.name,), ("word",))
    assert second.derived == ()


@pytest.mark.parametrize(
    ("where", "item", "type_", "sql"),
    [("id = n", "n", "bigint", "`1.n`"), ("temp = weight", "weight", "double", "`1.weight`")],
)
def test_equal_keys_of_other_types_or_signs_are_not_the_same(
    where: str, item: str, type_: str, sql: str
) -> None:
    query = composed(f"SELECT {item} FROM Sensors, Words WHERE {where}")
    assert [i.key_types for i in join_of(query).inputs] == [(type_,)] * 2
    assert (outputs(query)[item], shipped(query)) == (sql, [(), (item,)])


def test_a_key_that_may_fail_is_computed_for_selected_tuples_only() -> None:
    safe, guarded = (
        composed(f"SELECT open FROM Sensors S, Words, Doors D WHERE {where}")
        for where in (
            "1 / S.id = 1 / D.id AND 1 / D.id = weight",
            "S.id <> 0 AND 1 / S.id = 1 / D.id AND S.ok AND 1 / D.id = weight",
        )
    )
    assert [[a.sql for a in i.derived] for i in join_of(safe).inputs] == [
        ["(1 / `id`)"],
        [],
        ["(1 / `id`)"],
    ]
    assert [[a.sql for a in i.derived] for i in join_of(guarded).inputs] == [
        ["if((`id` <> 0 AND `ok`), (1 / `id`), NULL)"],
        [],
        ["(1 / `id`)"],
    ]


def test_without_a_common_key_steps_and_ranges_are_plan() -> None:
    query = composed(f"SELECT A.room, B.id {THREE} WHERE A.id = B.id AND A.ok = C.ts AND temp > 1")
    join = join_of(query)
    assert (join.residual, join.ranges_us) == (None, (600_000_000, 300_000_000, None))
    assert join.steps == (
        JoinStep(0),
        JoinStep(1, ("`0.id` = `1.id`",)),
        JoinStep(2, ("`0.ok` = `2.ts`",)),
    )
    assert join.conditions == ("`0.id` = `1.id`", "`0.ok` = `2.ts`")
    assert shipped(query) == [("id", "room", "ok"), ("id",), ("ts",)]
    assert {i.keys for i in join.inputs} == {()}
    assert query.inputs[0].terms == (Term((("temp", compare(">", 1.0)),)),)


def test_a_join_without_a_condition_has_steps_without_conditions() -> None:
    join = join_of(composed("SELECT room, open FROM Sensors [NOW], Doors [NOW]"))
    assert (join.conditions, join.ranges_us) == ((), (1000, 1000))
    assert join.steps == (JoinStep(0), JoinStep(1))


def test_aggregates_are_left_to_spark_in_windows_of_the_longest_range() -> None:
    query = composed(
        f"SELECT B.open, count(DISTINCT A.room) AS n {THREE} {SAME_ID}"
        " GROUP BY B.open, A.id, B.id HAVING max(temp) > 3 AND window_end > window_start"
    )
    composition = query.composition
    assert (composition.kind, composition.preaggregated) == ("window", False)
    assert composition.event_time is None
    assert query.window == WindowSpec(600_000_000, 300_000_000)
    assert composition.keys == ("`0.id`", "`1.open`")
    assert outputs(query)["n"] == (
        "CAST(size(collect_set(`0.room`) FILTER (WHERE `0.room` IS NOT NULL)) AS BIGINT)"
    )
    assert composition.having == "max(`0.temp`) > 3 AND `__window_end` > `__window_start`"
    assert shipped(query) == [("id", "room", "temp"), ("open",), ()]


def test_each_input_has_its_own_drop_ratio() -> None:
    query = composed(
        "SELECT room FROM Sensors [NOW DRATIO 1%], Doors [NOW] WHERE Sensors.id = Doors.id"
    )
    assert [i.drop_ratio for i in join_of(query).inputs] == [0.01, None]
    assert query.composition.drop_ratio is None


def test_a_stream_joins_itself() -> None:
    query = composed(
        "SELECT A.open, B.open AS o FROM Doors A, Doors B WHERE A.id = B.id AND A.open"
    )
    assert query.composition.streams == ("Doors", "Doors")
    assert outputs(query) == {"open": "`0.open`", "o": "`1.open`"}
    assert [len(i.terms[0].sets) for i in query.inputs] == [1, 0]


def test_what_spark_refuses_is_refused_at_its_place() -> None:
    text = "SELECT room FROM Sensors, Words WHERE foo(room) = word"
    with pytest.raises(QueryError) as caught:
        composed(text)
    assert caught.value.span is not None
    assert text[caught.value.span.start : caught.value.span.end] == "foo(room)"


def test_a_column_that_a_join_cannot_keep_is_refused_by_name() -> None:
    streams = "FROM Tagged T [NOW], Doors D [NOW]"
    with pytest.raises(QueryError, match=r"cannot keep T.more, which is of type map<string,int>"):
        composed(f"SELECT T.more, D.open {streams} WHERE T.id = D.id")
    assert shipped(composed(f"SELECT D.open {streams} WHERE T.id = D.id")) == [(), ("open",)]
    assert composed(f"SELECT T.more {streams} WHERE T.id < D.id").inputs  # Spark's own join
