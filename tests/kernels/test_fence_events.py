"""ENTER, LEAVE and DWELL against their twin, however the stream is cut and mixed."""

from __future__ import annotations

import random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests import reference

from penstock.kernels.fence_events import (
    FenceState,
    follow_objects,
    forget_fences,
    no_stays,
    tuples_schema,
)

Tuple = tuple[str, int, frozenset[int]]
Event = tuple[str, int, str, int, int]

tuples = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 12),
        st.frozensets(st.integers(1, 4), max_size=3),
    ),
    max_size=25,
)
dwells = st.none() | st.integers(1, 6)
END = 100


def table(rows: list[Tuple]) -> pa.Table:
    values = [{"object": o, "time_us": t, "fences": sorted(fences)} for o, t, fences in rows]
    return pa.Table.from_pylist(values, tuples_schema(pa.string()))


def events_of(found: pa.Table) -> list[Event]:
    rows = found.to_pylist()
    return [(r["object"], r["fence"], r["kind"], r["time_us"], r["duration_us"]) for r in rows]


def through_ipc(state: FenceState) -> FenceState:
    """The state as it is after it has been stored."""
    stored = []
    for part in (state.stays, state.waiting):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
        stored.append(pa.ipc.open_stream(sink.getvalue()).read_all())
    return FenceState(*stored, state.closed_us)


@given(tuples, dwells, st.lists(st.integers(0, 13), max_size=5), st.randoms())
def test_events_do_not_depend_on_batches_nor_on_order_and_repetition_in_them(
    rows: list[Tuple], dwell_us: int | None, cuts: list[int], mixer: random.Random
) -> None:
    expected = reference.fence_events(rows, dwell_us)
    # a tuple arrives in any batch up to that which completes its time
    closings = [*sorted(cuts), END]
    arrivals: list[list[Tuple]] = [[] for _ in closings]
    for row in [*rows, *(r for r in rows if mixer.random() < 0.3)]:
        last = next(i for i, closed in enumerate(closings) if row[1] < closed)
        arrivals[mixer.randint(0, last)].append(row)
    state = no_stays(pa.string())
    events: list[Event] = []
    for batch, closed_us in zip(arrivals, closings, strict=True):
        mixer.shuffle(batch)
        found = follow_objects(through_ipc(state), table(batch), closed_us, dwell_us)
        assert found.late == 0
        state = found.state
        some = events_of(found.events)
        assert [e[3] for e in some] == sorted(e[3] for e in some)
        events += some
    assert sorted(events) == sorted(expected)
    assert [e[3] for e in events] == sorted(e[3] for e in events)
    assert state.waiting.num_rows == 0


def test_a_stay_is_entered_dwelt_in_once_and_left_with_its_length() -> None:
    rows: list[Tuple] = [("a", t, frozenset({7})) for t in (10, 20, 40, 70)]
    rows += [("a", 90, frozenset())]
    found = follow_objects(no_stays(pa.string()), table(rows), END, dwell_us=25)
    assert events_of(found.events) == [
        ("a", 7, "ENTER", 10, 0),
        ("a", 7, "DWELL", 40, 30),
        ("a", 7, "LEAVE", 90, 80),
    ]
    assert found.state.stays.num_rows == 0


def test_a_tuple_below_an_earlier_punctuation_is_late_and_changes_nothing() -> None:
    first = follow_objects(no_stays(pa.string()), table([("a", 5, frozenset({1}))]), 10)
    second = follow_objects(first.state, table([("a", 9, frozenset()), ("a", 10, frozenset())]), 20)
    assert second.late == 1
    assert events_of(second.events) == [("a", 1, "LEAVE", 10, 5)]


def test_nobody_leaves_a_fence_that_is_no_more() -> None:
    rows: list[Tuple] = [("a", 1, frozenset({1, 2})), ("b", 1, frozenset({2}))]
    state = follow_objects(no_stays(pa.string()), table(rows), 10).state
    found = follow_objects(forget_fences(state, [2]), table([("a", 11, frozenset())]), END)
    assert events_of(found.events) == [("a", 1, "LEAVE", 11, 10)]
