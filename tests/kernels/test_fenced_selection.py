"""Selections with geofences against their twin, which asks shapely row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import reference
from tests.kernels.test_selection import per_row, slot_specs

from penstock.geometry import to_hex
from penstock.kernels import fenced_selection
from penstock.kernels.fence_book import coordinates
from penstock.kernels.fenced_selection import FencedSelection
from penstock.kernels.selection import select
from penstock.plan.specs import FenceTest, Interval, SlotSpec, Term, ValueSet
from penstock.schema import arrow_type

TYPES = {"x": "double", "y": "double", "u": "float", "v": "int", "a": "int", "s": "string"}
HOLE = shapely.box(0, 0, 6, 6).difference(shapely.box(2, 2, 4, 4))
AREAS = [
    shapely.box(0, 0, 4, 4),
    shapely.box(2, 2, 6, 6),
    HOLE,
    shapely.Polygon([(0, 0), (6, 1), (3, 6)]),
    shapely.MultiPolygon([shapely.box(-3, -3, -1, -1), shapely.box(1, 1, 2, 5)]),
]
INSIDE = ValueSet((Interval(1, True, None, False),), False)
OUTSIDE = ValueSet((Interval(None, False, 0, True),), False)
KNOWN = ValueSet((Interval(None, False, None, False),), False)
NO_PLACE = ValueSet((), True)
NOT_INSIDE = replace(OUTSIDE, null=True)
TRUTHS = [INSIDE, INSIDE, INSIDE, OUTSIDE, KNOWN, NO_PLACE, NOT_INSIDE]

tests_of_points = st.builds(
    lambda point, how, area: FenceTest(*point, *how, to_hex(area)),
    st.sampled_from([("x", "y"), ("x", "y"), ("y", "x"), ("u", "v")]),
    st.sampled_from([("within", 0.0), ("intersects", 0.0), ("near", 1.0), ("near", 0.0)]),
    st.sampled_from(AREAS),
)
places = st.sampled_from([*range(-4, 8), 0.5, 2.5, 3.9, float("nan"), float("inf"), 1e141, None])


@st.composite
def fenced_slots(draw: st.DrawFn) -> tuple[SlotSpec, ...]:
    """Predicates on attributes, some of their terms with geofences."""

    def fenced(term: Term) -> Term:
        drawn = draw(st.lists(tests_of_points, unique=True, max_size=3))
        return replace(term, fences=tuple((t, draw(st.sampled_from(TRUTHS))) for t in drawn))

    slots = draw(slot_specs({"a": "int", "s": "string"}))
    return tuple(replace(s, terms=tuple(fenced(term) for term in s.terms)) for s in slots)


@st.composite
def rows_of_points(draw: st.DrawFn) -> list[reference.Row]:
    def row() -> reference.Row:
        return {
            "x": draw(places),
            "y": draw(places),
            "u": draw(places),
            "v": draw(st.integers(-4, 8) | st.none()),
            "a": draw(st.integers(-2, 2) | st.none()),
            "s": draw(st.sampled_from(["", "a", "b", None])),
        }

    return [row() for _ in range(draw(st.integers(0, 12)))]


def batch_of(rows: list[reference.Row]) -> pa.RecordBatch:
    columns = [
        pa.array([row[name] for row in rows], arrow_type(type_)) for name, type_ in TYPES.items()
    ]
    return pa.RecordBatch.from_arrays(columns, list(TYPES))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_changes_step_by_step_agree_with_the_twin(data: st.DataObject) -> None:
    rows = data.draw(rows_of_points())
    batch = batch_of(rows)
    selection, live = FencedSelection(TYPES), dict[int, SlotSpec]()
    for step in range(data.draw(st.integers(1, 4))):
        new = [replace(s, slot=s.slot + 100 * step) for s in data.draw(fenced_slots())]
        dropped = data.draw(st.lists(st.sampled_from(sorted(live)), unique=True)) if live else []
        selection.change(new, dropped)
        live = {k: v for k, v in live.items() if k not in dropped} | {s.slot: s for s in new}
        selection.reorder(data.draw(st.permutations(["a", "s"])))
        slots = [live[k] for k in sorted(live)]
        assert selection.slot_numbers.tolist() == sorted(live)
        assert per_row(select(selection, batch)) == reference.select(slots, rows)
        read = batch.select(sorted(selection.columns)) if selection.columns else batch
        assert per_row(select(selection, read)) == reference.select(slots, rows)
        left = selection.survivors(batch, 0)
        assert left.order == selection.order


def test_columns_are_those_that_the_slots_of_now_read() -> None:
    door = FenceTest("x", "y", "within", 0.0, to_hex(AREAS[0]))
    other = FenceTest("u", "v", "near", 1.0, to_hex(AREAS[1]))
    both = Term((("a", INSIDE),), ((door, INSIDE), (other, OUTSIDE)))
    selection = FencedSelection(TYPES)
    selection.change([SlotSpec(1, (both,)), SlotSpec(2, (Term((), ((door, INSIDE),)),))])
    assert selection.columns == {"a", "x", "y", "u", "v"}
    selection.change([], [1])
    assert selection.columns == {"x", "y"}
    selection.change([], [2])
    assert selection.columns == set()


def test_slots_with_the_same_fence_share_it_until_the_last_has_gone() -> None:
    tests = [FenceTest("x", "y", "within", 0.0, to_hex(AREAS[0])) for _ in range(3)]
    selection = FencedSelection(TYPES)
    selection.change([SlotSpec(i, (Term((), ((t, INSIDE),)),)) for i, t in enumerate(tests)])
    assert len(selection._doors) == 1
    selection.change([], [0, 2])
    assert len(selection._doors) == 1
    selection.change([], [1])
    assert len(selection._doors) == 0


def test_doors_are_open_to_some_slots_and_guarded_for_others() -> None:
    doors = [FenceTest("x", "y", "within", 0.0, to_hex(area)) for area in AREAS]
    bare = [Term((), ((door, INSIDE),)) for door in doors]
    guarded = [replace(term, sets=(("a", INSIDE),)) for term in bare]
    slots = [
        SlotSpec(2, (guarded[4],)),
        SlotSpec(5, (bare[0], bare[1], guarded[0])),
        SlotSpec(7, (Term((("a", INSIDE),)), bare[2])),
        SlotSpec(9, (bare[0],)),
    ]
    points = [(x, y, a) for x in (-2, 1, 3, 5, 9) for y in (-2, 1, 3, 5) for a in (0, 1)]
    rows = [dict.fromkeys(TYPES) | {"x": x, "y": y, "a": a} for x, y, a in points]
    selection = FencedSelection(TYPES)
    selection.change(slots)
    assert per_row(select(selection, batch_of(rows))) == reference.select(slots, rows)
    selection.change([SlotSpec(11, (bare[4],))], [5])
    left = [slots[0], slots[2], slots[3], SlotSpec(11, (bare[4],))]
    assert per_row(select(selection, batch_of(rows))) == reference.select(left, rows)


def test_pairs_that_are_matched_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = np.random.default_rng(5)
    slots = []
    for number in range(200):  # more than a digit has values
        x, y = random_.uniform(0, 80, 2)
        test = FenceTest("x", "y", "within", 0.0, to_hex(shapely.box(x, y, x + 30, y + 30)))
        low = Interval(int(random_.integers(10)), True, None, False)
        slots.append(
            SlotSpec(number, (Term((("a", ValueSet((low,), False)),), ((test, INSIDE),)),))
        )
    points = random_.uniform(0, 110, (150, 2)).tolist()
    rows = [dict.fromkeys(TYPES) | {"x": x, "y": y, "a": i % 10} for i, (x, y) in enumerate(points)]
    expected = reference.select(slots, rows)
    assert max(map(len, expected)) > 3
    selection = FencedSelection(TYPES)
    selection.change(slots)
    for most in (1 << 20, 7, 1):
        monkeypatch.setattr(fenced_selection, "_MOST_PAIRS", most)
        assert per_row(select(selection, batch_of(rows))) == expected


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["0.1", "-73.985428", "2.675", None], pa.decimal128(12, 6)),
        (["0.30000000000000004", "1234567890.12345678901234567890"], pa.decimal128(38, 20)),
        ([2**53 + 1, -(2**63), None], pa.int64()),
        ([0.1, None], pa.float32()),
    ],
)
def test_coordinates_are_the_doubles_nearest_to_what_columns_hold(
    values: list[object], type_: pa.DataType
) -> None:
    column = pa.array(values).cast(type_)
    expected = [np.nan if v is None else float(v) for v in column.to_pylist()]
    for found in (column, column.dictionary_encode(), pa.concat_arrays([column[:1], column])[1:]):
        np.testing.assert_array_equal(coordinates(found), expected)
