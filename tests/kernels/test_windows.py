"""Windows as data against their twins."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import reference
from tests.kernels.batches import TYPES, batches, from_arrow

from penstock.errors import PenstockError
from penstock.kernels.partials import partial_type, supported
from penstock.kernels.selection import Matches
from penstock.kernels.windows import WindowRows, expand, preaggregate
from penstock.plan.specs import Partial, SlotSpec, Term, WindowSpec
from penstock.schema import decimal_parts

KINDS = ("count_star", "count", "sum", "min", "max", "moments")
EVER = (Term(()),)


def to_matches(matched: list[list[int]], slot_count: int) -> Matches:
    offsets = np.cumsum([0, *map(len, matched)], dtype=np.int64)
    slots = np.array([s for row in matched for s in row], np.int32)
    return Matches(slot_count, offsets, slots, 0)


@st.composite
def window_slots(draw: st.DrawFn) -> list[SlotSpec]:
    times = st.integers(1, 12)
    return [
        SlotSpec(
            100 + i,
            EVER,
            WindowSpec(draw(times), draw(times)),
            draw(st.none() | st.integers(-9, 9)),
        )
        for i in range(draw(st.integers(0, 4)))
    ]


@st.composite
def streams(draw: st.DrawFn, count: int, slot_count: int) -> tuple[list[Any], list[list[int]]]:
    """Event times, some missing, and the slots of each row."""
    times = st.none() | st.integers(-30, 30)
    members = st.sets(st.integers(0, slot_count - 1)) if slot_count else st.just(set())
    return (
        draw(st.lists(times, min_size=count, max_size=count)),
        [sorted(s) for s in draw(st.lists(members, min_size=count, max_size=count))],
    )


def as_arrays(times: list[int | None]) -> tuple[np.ndarray, np.ndarray]:
    mask = np.array([t is not None for t in times], np.bool_)
    return np.array([10**15 if t is None else t for t in times], np.int64), mask


closings = st.integers(-40, 40) | st.sampled_from([-(2**63), 2**63 - 1])


def assert_same_late(found: WindowRows, late_by_slot: list[int], late_rows: list[bool]) -> None:
    assert found.late_by_slot.tolist() == late_by_slot
    assert found.late_rows.tolist() == late_rows


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_expanded_rows_agree_with_their_twin(data: st.DataObject) -> None:
    slots = data.draw(window_slots())
    batch, rows = data.draw(batches({"a": "string"}))
    times, matched = data.draw(streams(len(rows), len(slots)))
    closed_us = data.draw(closings)
    ts_us, mask = as_arrays(times)
    found = expand(batch, to_matches(matched, len(slots)), slots, ts_us, closed_us, ["a"], mask)
    expected, late_by_slot, late_rows = reference.expand(slots, matched, times, closed_us)
    assert found.batch.schema.names == ["slot", "window_end_us", "a"]
    assert list(zip(*(c.to_pylist() for c in found.batch.columns), strict=True)) == [
        (slots[position].slot, end, rows[row]["a"]) for row, position, end in expected
    ]
    assert_same_late(found, late_by_slot, late_rows)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_partials_agree_with_their_twin_on_every_type(data: st.DataObject) -> None:
    drawn = data.draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    types = {f"a{i}": type_ for i, type_ in enumerate(drawn)}
    possible = [Partial("count_star", None, "all")] + [
        Partial(kind, name, f"{kind} {name}")
        for kind in KINDS[1:]
        for name, type_ in types.items()
        if supported(kind, type_)
    ]
    partials = data.draw(st.lists(st.sampled_from(possible), unique=True, max_size=5))
    keys = data.draw(st.lists(st.sampled_from(sorted(types)), unique=True, max_size=2))
    slots = data.draw(window_slots())
    batch, rows = data.draw(batches(types))
    times, matched = data.draw(streams(len(rows), len(slots)))
    closed_us = data.draw(closings)
    ts_us, mask = as_arrays(times)
    found = preaggregate(
        batch, to_matches(matched, len(slots)), slots, ts_us, keys, partials, types, closed_us, mask
    )
    cells = read_cells(found.batch, keys, partials, types)
    expected = reference.preaggregate(slots, matched, rows, times, keys, partials, closed_us)
    assert cells.keys() == expected.keys()
    for cell, its_rows in cells.items():
        assert len(its_rows) == 1 or any(p.kind == "sum" for p in partials)
        for i, partial in enumerate(partials):
            check_partial(partial, [row[i] for row in its_rows], expected[cell][i], rows, types)
    assert_same_late(found, *reference.expand(slots, matched, times, closed_us)[1:])


def read_cells(
    batch: pa.RecordBatch, keys: list[str], partials: list[Partial], types: dict[str, str]
) -> dict[Any, list[list[Any]]]:
    """The output's partial values by (slot, window end, group)."""
    assert batch.schema.names == ["slot", "window_end_us", *keys, *(p.name for p in partials)]
    groups = [from_arrow(batch.column(k), types[k]) for k in keys]
    columns = []
    for partial in partials:
        column, type_ = batch.column(partial.name), types.get(partial.argument or "", "int")
        if partial.kind not in ("min", "max"):
            assert column.type == partial_type(partial.kind, type_)
        is_value = partial.kind in ("sum", "min", "max")
        columns.append(from_arrow(column, type_ if is_value else "struct"))
    cells: dict[Any, list[list[Any]]] = {}
    for i in range(batch.num_rows):
        group = reference.group_key([g[i] for g in groups])
        cell = (batch.column("slot")[i].as_py(), batch.column("window_end_us")[i].as_py(), group)
        cells.setdefault(cell, []).append([c[i] for c in columns])
    return cells


def check_partial(
    partial: Partial, parts: list[Any], expected: Any, rows: list[Any], types: dict[str, str]
) -> None:
    if partial.kind == "moments":
        decimal = decimal_parts(types[partial.argument or ""])
        scale = Fraction(1, 10 ** decimal[1]) if decimal else Fraction(1)
        check_moments(parts, expected, rows, partial.argument, scale)
        return
    if partial.kind in ("count_star", "count"):
        assert sum(parts) == expected
        return
    merged = reference.aggregate(partial.kind, parts)
    if not isinstance(expected, float):
        assert merged == expected
    elif partial.kind == "sum":
        values = [row[partial.argument] for row in rows if row[partial.argument] is not None]
        magnitude = sum(abs(v) for v in values if math.isfinite(v))
        if magnitude < 1e300:
            assert merged == pytest.approx(expected, rel=0, abs=1e-12 * magnitude, nan_ok=True)
    else:
        assert reference.order(merged) == reference.order(expected)


def check_moments(
    parts: list[Any], expected: Any, rows: list[Any], name: str | None, scale: Fraction
) -> None:
    """Errors relative to the largest value: what the stable update promises for ordinary data."""
    assert sum(part["n"] for part in parts) == expected[0]
    if len(expected) == 1 or len(parts) != 1:
        return
    finite = [abs(r[name]) for r in rows if r[name] is not None and math.isfinite(r[name])]
    largest = float(max(finite, default=0) * scale)
    if largest < 1e100:
        _, mean, m2 = expected
        near = pytest.approx
        assert parts[0]["mean"] == near(float(mean * scale), rel=1e-12, abs=1e-13 * largest)
        assert parts[0]["m2"] == near(float(m2 * scale**2), rel=1e-11, abs=1e-12 * largest**2)


def aggregate_one(values: list[Any], kind: Any, type_: str, slide: int = 10) -> pa.Array:
    """All values, one microsecond apart, in one window made of many panes."""
    batch = pa.RecordBatch.from_arrays([pa.array(values)], ["x"])
    slots = [SlotSpec(1, EVER, WindowSpec(10 * slide, slide), 0)]
    matches = to_matches([[0]] * len(values), 1)
    ts_us = np.arange(len(values), dtype=np.int64)
    found = preaggregate(
        batch, matches, slots, ts_us, [], [Partial(kind, "x", "p")], {"x": type_}, 10 * slide - 1
    ).batch
    first = np.array(found.column("window_end_us")) == 10 * slide
    return found.column("p").filter(pa.array(first))


def test_sums_that_might_overflow_come_in_several_rows() -> None:
    values = [2**63 - 1, 2**63 - 1, -(2**63), 5]
    parts = aggregate_one(values, "sum", "bigint").to_pylist()
    assert sorted(parts) == sorted(values)


def test_sums_that_fit_come_in_one_row() -> None:
    assert aggregate_one([2**61, 2**61, -7], "sum", "bigint").to_pylist() == [2**62 - 7]


def test_moments_keep_their_digits_far_from_zero() -> None:
    values = [1e9 + (i % 7) * 0.25 for i in range(100)]
    moments = aggregate_one(values, "moments", "double").to_pylist()
    _, mean, m2 = reference.moments(values)
    assert moments[0]["mean"] == pytest.approx(float(mean), rel=1e-15)
    assert moments[0]["m2"] == pytest.approx(float(m2), rel=1e-7)  # squares of 1e9 keep no digit


def test_min_ignores_nan_unless_nothing_else_is_there() -> None:
    nan = float("nan")
    assert aggregate_one([nan, 2.0, nan], "min", "double").to_pylist() == [2.0]
    assert math.isnan(aggregate_one([nan, nan], "min", "double").to_pylist()[0])
    assert math.isnan(aggregate_one([nan, 2.0], "max", "double").to_pylist()[0])


def test_a_time_at_a_border_opens_the_next_window() -> None:
    slots = [SlotSpec(1, EVER, WindowSpec(10, 10))]
    batch = pa.RecordBatch.from_pydict({"x": [1, 2, 3]})
    ts_us = np.array([-1, 0, 9], np.int64)
    found = preaggregate(
        batch,
        to_matches([[0]] * 3, 1),
        slots,
        ts_us,
        [],
        [Partial("sum", "x", "s")],
        {"x": "bigint"},
        -(10**6),
    ).batch
    assert found.select(["window_end_us", "s"]).to_pylist() == [
        {"window_end_us": 0, "s": 1},
        {"window_end_us": 10, "s": 5},
    ]  # fmt: skip


def test_a_row_in_a_gap_between_windows_is_not_late() -> None:
    slots = [SlotSpec(1, EVER, WindowSpec(3, 10))]
    batch = pa.RecordBatch.from_pydict({"x": [1, 1]})
    ts_us = np.array([1, 8], np.int64)
    found = expand(batch, to_matches([[0], [0]], 1), slots, ts_us, 10, [])
    assert found.late_rows.tolist() == [False, True]


def test_thousands_of_groups_outgrow_the_first_hash_table() -> None:
    count = 5000
    batch = pa.RecordBatch.from_pydict({"k": list(range(count)) * 2})
    slots = [SlotSpec(i, EVER, WindowSpec(10, 10)) for i in range(3)]
    found = preaggregate(
        batch, to_matches([[0, 1, 2]] * (2 * count), 3), slots, np.zeros(2 * count, np.int64),
        ["k"], [Partial("count_star", None, "n")], {"k": "bigint"}, 0,
    ).batch  # fmt: skip
    rows = {(r["slot"], r["k"]): r["n"] for r in found.to_pylist()}
    assert found.num_rows == len(rows) == 3 * count
    assert set(rows.values()) == {2}


def test_a_slot_without_window_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1]})
    with pytest.raises(PenstockError, match="slot 5 has no window"):
        expand(batch, to_matches([[0]], 1), [SlotSpec(5, EVER)], np.zeros(1, np.int64), 0, [])


@pytest.mark.parametrize(
    ("kind", "type_"),
    [("sum", "decimal(19,0)"), ("sum", "string"), ("min", "binary"), ("moments", "date")],
)
def test_what_cannot_be_preaggregated_is_said(kind: Any, type_: str) -> None:
    assert not supported(kind, type_)
    with pytest.raises(PenstockError, match="cannot be pre-aggregated"):
        partial_type(kind, type_)
