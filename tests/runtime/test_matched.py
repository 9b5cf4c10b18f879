"""Who wants which row: turned round, narrowed down and named as a naive look at each row would."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.sinks.matched import (
    counts_by_slot,
    matched_rows,
    only,
    rows_by_slot,
    with_queries,
)

# numbers of slots are never used again, so they are far apart in an old workspace
SLOTS = st.sampled_from([1, 2, 3, 70, 4_000, 2**31 - 1])
ROWS = st.lists(st.lists(SLOTS, min_size=1, unique=True).map(sorted), min_size=1)


def _results(slots: list[list[int]]) -> pa.Table:
    lists = pa.array(slots, pa.list_(pa.int32()))
    return pa.table({"__o0": range(len(slots)), "__slots": lists})


@given(ROWS)
def test_rows_by_slot_are_those_whose_list_has_the_slot(slots: list[list[int]]) -> None:
    matched = matched_rows(_results(slots), ["n"]).slots
    found = rows_by_slot(matched)
    present = sorted({slot for of in slots for slot in of})
    expected = {s: [i for i, of in enumerate(slots) if s in of] for s in present}
    assert {slot: rows.tolist() for slot, rows in found.items()} == expected
    assert list(found) == present
    assert counts_by_slot(matched) == {slot: len(rows) for slot, rows in expected.items()}


@given(ROWS, st.sets(SLOTS, min_size=1))
def test_only_some_slots_are_kept_with_their_rows(slots: list[list[int]], some: set[int]) -> None:
    kept = only(matched_rows(_results(slots), ["n"]), some)
    expected = [(i, [s for s in of if s in some]) for i, of in enumerate(slots)]
    assert list(zip(kept.rows.column("n").to_pylist(), kept.slots.to_pylist(), strict=True)) == [
        (i, of) for i, of in expected if of
    ]
    names = {slot: f"query {slot}" for slot in some}
    assert with_queries(kept, names).to_pylist() == [
        {"_queries": [names[s] for s in of], "n": i} for i, of in expected if of
    ]


def test_all_slots_are_kept_without_a_copy() -> None:
    matched = matched_rows(_results([[1], [1, 2]]), ["n"])
    assert only(matched, {1, 2, 3}) is matched
    assert only(matched, {1}).rows is matched.rows


def test_window_rows_and_pieces_of_larger_tables_are_matched_too() -> None:
    windows = matched_rows(pa.table({"__slot": pa.array([7, 5], pa.int64()), "__o0": [1, 2]}), "n")
    assert windows.slots.to_pylist() == [[7], [5]]
    piece = matched_rows(_results([[1], [2, 3], [4]]).slice(1), ["n"])
    assert piece.slots.to_pylist() == [[2, 3], [4]]
    assert rows_by_slot(piece.slots)[4].tolist() == [1]
