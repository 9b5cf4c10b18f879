"""Selection against its twin, and the paper's worked example."""

from __future__ import annotations

import decimal
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import reference
from tests.kernels.batches import TYPES, batches, to_arrow, values_of

from penstock.errors import PenstockError
from penstock.kernels import domains
from penstock.kernels import selection as selection_module
from penstock.kernels.selection import Matches, build_selection, rows_by_slot, select
from penstock.plan.specs import Interval, SlotSpec, Term, ValueSet


def per_row(matches: Matches) -> list[list[int]]:
    ends = matches.offsets
    return [sorted(matches.slots[ends[i] : ends[i + 1]].tolist()) for i in range(len(ends) - 1)]


def only(*intervals: Interval, null: bool = False) -> ValueSet:
    return ValueSet(intervals, null)


def equal(value: Any) -> ValueSet:
    return only(Interval(value, True, value, True))


@st.composite
def value_sets(draw: st.DrawFn, type_: str) -> ValueSet:
    """Cut the domain at some constants and take some of the pieces."""
    constants = draw(st.lists(values_of(type_), max_size=4))
    if type_ in ("bigint", "decimal(5,2)", "decimal(38,10)"):
        constants += draw(st.lists(st.sampled_from([2**63, -(2**63) - 1, 2**130]), max_size=1))
    distinct = {reference.order(c): c for c in constants}
    cuts = [distinct[key] for key in sorted(distinct)]
    pieces = [Interval(None, False, cuts[0] if cuts else None, False)]
    for i, cut in enumerate(cuts):
        pieces.append(Interval(cut, True, cut, True))
        pieces.append(Interval(cut, False, cuts[i + 1] if i + 1 < len(cuts) else None, False))
    taken = []
    for piece in pieces:
        if draw(st.booleans()):
            joins = taken and taken[-1].high == piece.low and draw(st.booleans())
            if joins and (taken[-1].high_closed or piece.low_closed):
                last = taken.pop()
                piece = Interval(last.low, last.low_closed, piece.high, piece.high_closed)
            taken.append(piece)
    return ValueSet(tuple(taken), draw(st.booleans()))


@st.composite
def slot_specs(draw: st.DrawFn, types: dict[str, str]) -> tuple[SlotSpec, ...]:
    def term() -> Term:
        names = draw(st.lists(st.sampled_from(sorted(types)), unique=True, max_size=len(types)))
        return Term(tuple((n, draw(value_sets(types[n]))) for n in names))

    count = draw(st.integers(0, 6))
    return tuple(
        SlotSpec(7 * i + 3, tuple(term() for _ in range(draw(st.integers(0, 3)))))
        for i in range(count)
    )


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_selection_agrees_with_its_twin_on_every_type(data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    types = {f"a{i}": type_ for i, type_ in enumerate(drawn)}
    slots = data.draw(slot_specs(types))
    batch, rows = data.draw(batches(types))
    matches = select(build_selection(slots, types), batch)
    assert per_row(matches) == reference.select(slots, rows)
    assert matches.offsets.dtype == np.int64
    assert matches.slots.dtype == np.int32


@pytest.mark.parametrize("seed", range(3))
def test_hundreds_of_slots_over_many_blocks_of_rows_agree_with_the_twin(seed: int) -> None:
    random_ = random.Random(seed)
    types = {"i": "int", "d": "double", "s": "string"}
    values = {
        "i": lambda: random_.randrange(60),
        "d": lambda: random_.choice([float("nan"), round(random_.gauss(0, 3), 1)]),
        "s": lambda: random_.choice("abcdefgh") * random_.randrange(3),
    }

    def term() -> Term:
        sets = []
        for name in random_.sample(sorted(types), random_.randrange(1, 4)):
            low, high = sorted((values[name](), values[name]()), key=reference.order)
            interval = Interval(low, random_.random() < 0.5, high, random_.random() < 0.5)
            if reference.order(low) == reference.order(high):
                interval = Interval(low, True, low, True)
            sets.append((name, only(interval, null=random_.random() < 0.1)))
        return Term(tuple(sets))

    slots = [
        SlotSpec(i, tuple(term() for _ in range(random_.choice([1, 1, 2])))) for i in range(150)
    ]
    rows = [
        {n: None if random_.random() < 0.1 else make() for n, make in values.items()}
        for _ in range(1500)
    ]
    columns = [to_arrow([row[n] for row in rows], types[n]) for n in types]
    batch = pa.RecordBatch.from_arrays(columns, list(types))
    assert per_row(select(build_selection(slots, types), batch)) == reference.select(slots, rows)


@pytest.fixture(params=["forgetful", "as it is"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgetful: what is of no use goes at the first occasion."""
    if request.param == "forgetful":
        monkeypatch.setattr(domains, "_SPARE", 0)
        monkeypatch.setattr(selection_module, "_SPARE", 0)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_changes_step_by_step_agree_with_the_twin(memory: None, data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    types = {f"a{i}": type_ for i, type_ in enumerate(drawn)}
    batch, rows = data.draw(batches(types))
    selection, live = build_selection((), types), dict[int, SlotSpec]()
    for step in range(data.draw(st.integers(1, 5))):
        new = [replace(s, slot=s.slot + 100 * step) for s in data.draw(slot_specs(types))]
        dropped = data.draw(st.lists(st.sampled_from(sorted(live)), unique=True)) if live else []
        selection.change(new, dropped)
        live = {k: v for k, v in live.items() if k not in dropped} | {s.slot: s for s in new}
        selection.reorder(data.draw(st.permutations(sorted(types))))
        slots = [live[k] for k in sorted(live)]
        assert selection.slot_numbers.tolist() == sorted(live)
        for together in (1, 5):
            found = per_row(select(selection, batch, together))
            assert found == reference.select(slots, rows)


def thousands(random_: random.Random, count: int, first: int = 0) -> list[SlotSpec]:
    """Ranges and points with far more constants than there are buckets."""

    def term() -> Term:
        sets = []
        for name in random_.sample(["i", "d", "s"], random_.randrange(1, 4)):
            low: Any
            high: Any
            low = random_.randrange(50_000)
            high = low if random_.random() < 0.3 else low + random_.randrange(10_000)
            if name == "d":
                low, high = low / 7, high / 7
            if name == "s":
                low, high = sorted((f"{low:05d}", f"{high:05d}"))
            closed = low == high or random_.random() < 0.5
            sets.append((name, only(Interval(low, closed, high, closed))))
        return Term(tuple(sets))

    return [
        SlotSpec(first + i, tuple(term() for _ in range(1 + (i % 20 == 0)))) for i in range(count)
    ]


def test_thousands_of_terms_in_several_tiles_agree_with_the_twin_while_they_come_and_go() -> None:
    random_ = random.Random(7)
    types = {"i": "int", "d": "double", "s": "string"}
    rows = []
    for _ in range(40):
        value = random_.randrange(50_000)
        row = {"i": value, "d": random_.randrange(50_000) / 7, "s": f"{value:05d}"}
        rows.append({n: None if random_.random() < 0.05 else v for n, v in row.items()})
    columns = [to_arrow([row[n] for row in rows], types[n]) for n in types]
    batch = pa.RecordBatch.from_arrays(columns, list(types))
    live = {s.slot: s for s in thousands(random_, 3000)}
    selection = build_selection(list(live.values()), types)
    for step in range(6):
        slots = [live[k] for k in sorted(live)]
        assert per_row(select(selection, batch)) == reference.select(slots, rows)
        dropped = random_.sample(sorted(live), 300)
        new = thousands(random_, 200 * (step % 3) + 1, 10_000 * (step + 1))
        selection.change(new, dropped)
        live = {k: v for k, v in live.items() if k not in dropped} | {s.slot: s for s in new}


def test_a_slot_whose_terms_lie_in_several_tiles_matches_a_row_once() -> None:
    def below(name: str, bound: int) -> Term:
        return Term(((name, only(Interval(None, False, bound, False))),))

    slots = [SlotSpec(n, (below("a", n), below("b", n), below("a", n + 1))) for n in range(2200)]
    values = list(range(0, 2200, 100))
    rows = [{"a": value, "b": 2000 - value} for value in values]
    batch = pa.RecordBatch.from_pylist(rows)
    selection = build_selection(slots, {"a": "bigint", "b": "bigint"})
    assert per_row(select(selection, batch)) == reference.select(slots, rows)


def test_strings_that_come_one_by_one_into_the_same_gap_get_new_labels_when_room_ends() -> None:
    selection = build_selection((), {"s": "string"})
    texts = ["a", "b", *("a" + "a" * i for i in range(1, 60)), *("b" + "z" * i for i in range(60))]
    for number, text in enumerate(texts):
        above = only(Interval(text, number % 2 == 0, None, False))
        selection.change([SlotSpec(number, (Term((("s", above),)),))])
    slots = [
        SlotSpec(n, (Term((("s", only(Interval(t, n % 2 == 0, None, False))),)),))
        for n, t in enumerate(texts)
    ]
    rows = [{"s": text} for text in (*texts, "", "ab", "zz")]
    batch = pa.RecordBatch.from_pydict({"s": [row["s"] for row in rows]})
    assert per_row(select(selection, batch)) == reference.select(slots, rows)


def test_buckets_follow_queries_that_are_replaced_by_others_elsewhere() -> None:
    def ranges(first: int, low: int) -> list[SlotSpec]:
        sets = [only(Interval(low + 7 * i, True, low + 7 * i + 5, True)) for i in range(500)]
        return [SlotSpec(first + i, (Term((("a", s),)),)) for i, s in enumerate(sets)]

    selection = build_selection(ranges(0, 0), {"a": "bigint"})
    for step in range(0, 500, 50):
        new = ranges(1000, 1_000_000)[step : step + 50]
        selection.change(new, range(step, step + 50))
    fresh = build_selection(ranges(1000, 1_000_000), {"a": "bigint"})
    sample = pa.RecordBatch.from_pydict({"a": range(1_000_000, 1_003_500, 10)})
    left, at_best = (s.survivors(sample, 0).after[0] for s in (selection, fresh))
    assert left < 10 * at_best  # what buckets alone can tell; with those of before 95 times


def test_a_drop_leaves_no_trace_and_its_room_is_used_again() -> None:
    selection = build_selection(
        thousands(random.Random(1), 2200),
        dict.fromkeys("ids", "int") | {"d": "double", "s": "string"},
    )
    size = selection.nbytes
    for step in range(20):
        selection.change(thousands(random.Random(step), 50, 9000 + 50 * step))
        selection.change([], range(9000 + 50 * step, 9050 + 50 * step))
    assert selection.nbytes <= 2 * size
    selection.change([], selection.slot_numbers.tolist())
    assert selection.term_count == 0
    assert not selection.order
    assert not selection.usage


def test_constants_and_attributes_of_dropped_queries_are_forgotten() -> None:
    names = [f"a{i}" for i in range(1000)]
    types = {"s": "string", "d": "decimal(38,2)"} | dict.fromkeys(names, "boolean")
    stays = [SlotSpec(0, (Term((("s", equal("mm")), ("d", equal(5)))),))]
    selection = build_selection(stays, types)
    for number in range(1, 1000):
        sets = ("s", equal(f"text {number}")), ("d", equal(number)), (names[number], equal(1))
        selection.change([SlotSpec(number, (Term(sets),))], [number - 1] if number > 1 else [])
        assert len(selection._attributes) < 40
        for name in "sd":
            assert len(selection._attributes[name].domain.constants) <= 2 * 2 + 257
    price = pa.array([decimal.Decimal("0.05")], pa.decimal128(38, 2))
    batch = pa.RecordBatch.from_pydict({"s": ["mm"], "d": price, names[999]: [True]})
    assert per_row(select(selection, batch)) == [[0]]


def test_the_worked_example_of_the_paper() -> None:
    q1 = Term((("A1", equal(20)), ("A2", equal("C02")), ("A3", equal(50))))
    q2 = Term((("A1", only(Interval(10, False, None, False))), ("A2", equal("C04"))))
    q3 = Term((("A1", equal(30)), ("A3", only(Interval(30, True, 50, True)))))
    slots = [SlotSpec(i + 1, (term,)) for i, term in enumerate((q1, q2, q3))]
    selection = build_selection(
        slots, {"A1": "int", "A2": "string", "A3": "int"}, order=("A1", "A2", "A3")
    )
    tuples = pa.table({"A1": [40, 20, 10], "A2": ["C04", "C02", "C04"], "A3": [50, 50, 20]})
    batch = tuples.to_batches()[0]
    assert [[slots[p].slot for p in row] for row in per_row(select(selection, batch))] == [
        [2],
        [1],
        [],
    ]
    assert select(selection, batch.slice(0, 1), together=1).visits == 3
    assert select(selection, batch.slice(2, 1), together=1).visits == 1  # t3 is dropped after A1
    left = selection.survivors(batch, prefix=1)
    assert left.order == ("A1", "A2", "A3")
    assert left.after == (3, 2, 2)
    assert left.candidates == {"A2": 2, "A3": 3}  # s(A1 → A2) = 2/9, s(A1 → A3) = 1/3


def test_attributes_of_most_terms_come_first_unless_an_order_is_given() -> None:
    slots = [SlotSpec(0, (Term((("a", equal(1)),)), Term((("a", equal(2)), ("b", equal(1))))))]
    types = {"a": "int", "b": "int"}
    assert build_selection(slots, types).order == ("a", "b")
    assert build_selection(slots, types, ["b", "c"]).order == ("b", "a")


def test_a_slot_without_terms_never_matches_and_an_empty_term_always_does() -> None:
    slots = [SlotSpec(0, ()), SlotSpec(1, (Term(()),)), SlotSpec(2, (Term(()), Term(())))]
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    assert per_row(select(build_selection(slots, {"a": "bigint"}), batch)) == [[1, 2], [1, 2]]


def test_null_is_in_no_interval() -> None:
    everything = only(Interval(None, False, None, False))
    slots = [
        SlotSpec(0, (Term((("a", everything),)),)),
        SlotSpec(1, (Term((("a", only(null=True)),)),)),
    ]
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, None])})
    assert per_row(select(build_selection(slots, {"a": "bigint"}), batch)) == [[0], [1]]


def test_dictionaries_with_duplicates_and_nulls_are_read_by_value() -> None:
    dictionary = pa.array(["x", None, "x", "y"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, None], pa.int8()), dictionary)
    slots = [
        SlotSpec(0, (Term((("s", equal("x")),)),)),
        SlotSpec(1, (Term((("s", only(null=True)),)),)),
    ]
    batch = pa.RecordBatch.from_arrays([column], ["s"])
    found = per_row(select(build_selection(slots, {"s": "string"}), batch))
    assert found == [[0], [1], [0], [], [1]]


@given(st.lists(st.sets(st.integers(0, 4)), max_size=20))
@settings(deadline=None)
def test_rows_by_slot_is_the_transpose(rows: list[set[int]]) -> None:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    slots = np.array([s for row in rows for s in sorted(row)], np.int32)
    ends, found = rows_by_slot(Matches(5, offsets, slots, 0))
    assert [found[ends[s] : ends[s + 1]].tolist() for s in range(5)] == [
        [i for i, row in enumerate(rows) if s in row] for s in range(5)
    ]


def test_constants_of_another_type_are_refused() -> None:
    slots = [SlotSpec(0, (Term((("a", equal(1.5)),)),))]
    with pytest.raises(PenstockError, match=r"1\.5 is not a constant of type int"):
        build_selection(slots, {"a": "int"})


def test_overlapping_intervals_are_refused() -> None:
    overlapping = only(Interval(1, True, 5, True), Interval(5, True, 9, True))
    with pytest.raises(PenstockError, match="overlap"):
        build_selection([SlotSpec(0, (Term((("a", overlapping),)),))], {"a": "int"})


def test_columns_of_another_arrow_type_are_refused() -> None:
    selection = build_selection([SlotSpec(0, (Term((("a", equal(1)),)),))], {"a": "int"})
    with pytest.raises(PenstockError, match="Arrow type double was given as int"):
        select(selection, pa.RecordBatch.from_pydict({"a": [1.0]}))
