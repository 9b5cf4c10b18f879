"""Windows as data against their twins."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import reference
from tests.kernels.batches import TYPES, batches, from_arrow

from penstock.control.punctuation import NEVER_US
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


# far from zero, where sums of times and windows still fit
origins = st.sampled_from([0, -(2**57), 2**57 + 1])


@st.composite
def window_slots(draw: st.DrawFn, origin: int = 0) -> list[SlotSpec]:
    ranges, slides = st.integers(1, 24), st.integers(1, 12)
    return [
        SlotSpec(
            100 + i,
            EVER,
            WindowSpec(draw(ranges), draw(slides)),
            draw(st.none() | st.integers(origin - 20, origin + 20)),
        )
        for i in range(draw(st.sampled_from([2, 1, 0, 3, 4])))
    ]


@st.composite
def streams(
    draw: st.DrawFn, count: int, slot_count: int, origin: int = 0
) -> tuple[list[Any], list[list[int]]]:
    """Event times, some missing, and the slots of each row."""
    near = st.integers(origin - 20, origin + 20)
    times = st.one_of(near, near, near, st.none())
    everywhere = st.just(set(range(slot_count)))
    some = st.sets(st.integers(0, slot_count - 1)) if slot_count else everywhere
    members = st.one_of(everywhere, everywhere, some)
    return (
        draw(st.lists(times, min_size=count, max_size=count)),
        [sorted(s) for s in draw(st.lists(members, min_size=count, max_size=count))],
    )


def as_arrays(times: list[int | None]) -> tuple[np.ndarray, np.ndarray]:
    mask = np.array([t is not None for t in times], np.bool_)
    return np.array([10**15 if t is None else t for t in times], np.int64), mask


EXTREMES = (-(2**63), NEVER_US, -(2**61), 0, 2**61, 2**62, 2**63 - 1)


@st.composite
def closings_by(
    draw: st.DrawFn, groups: Sequence[Hashable], origin: int = 0
) -> tuple[int | np.ndarray, list[int]]:
    """Punctuations as the kernels take them, one or one per row, and one per row."""
    near = st.integers(origin - 30, origin + 40)
    closings = st.one_of(near, near, st.sampled_from(EXTREMES))
    if draw(st.booleans()):
        closed_us = draw(closings)
        return closed_us, [closed_us] * len(groups)
    of_group = {group: draw(closings) for group in dict.fromkeys(groups)}
    each = [of_group[group] for group in groups]
    return np.array(each, np.int64), each


def late_pairs(found: WindowRows) -> list[tuple[Any, ...]]:
    late = found.late
    columns = (late.rows, late.positions, late.first_us, late.last_us, late.missed, late.lost)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_expanded_rows_agree_with_their_twin(data: st.DataObject) -> None:
    origin = data.draw(origins)
    slots = data.draw(window_slots(origin))
    batch, rows = data.draw(batches({"a": "string"}))
    times, matched = data.draw(streams(len(rows), len(slots), origin))
    closed_us, each_closed_us = data.draw(closings_by(range(len(rows)), origin))
    ts_us, mask = as_arrays(times)
    found = expand(batch, to_matches(matched, len(slots)), slots, ts_us, closed_us, ["a"], mask)
    expected, late = reference.expand(slots, matched, times, each_closed_us)
    assert found.batch.schema.names == ["__slot", "__end_us", "a"]
    assert list(zip(*(c.to_pylist() for c in found.batch.columns), strict=True)) == [
        (slots[position].slot, end, rows[row]["a"]) for row, position, end in expected
    ]
    assert late_pairs(found) == late


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
    origin = data.draw(origins)
    slots = data.draw(window_slots(origin))
    batch, rows = data.draw(batches(types))
    times, matched = data.draw(streams(len(rows), len(slots), origin))
    groups = [reference.group_key([row[k] for k in keys]) for row in rows]
    closed_us, each_closed_us = data.draw(closings_by(groups, origin))
    ts_us, mask = as_arrays(times)
    found = preaggregate(
        batch, to_matches(matched, len(slots)), slots, ts_us, keys, partials, types, closed_us, mask
    )
    cells = read_cells(found.batch, keys, partials, types)
    expected = reference.preaggregate(slots, matched, rows, times, keys, partials, each_closed_us)
    assert cells.keys() == expected.keys()
    for cell, its_rows in cells.items():
        assert len(its_rows) == 1 or any(p.kind == "sum" for p in partials)
        for i, partial in enumerate(partials):
            check_partial(partial, [row[i] for row in its_rows], expected[cell][i], rows, types)
    assert sorted(late_pairs(found)) == reference.expand(slots, matched, times, each_closed_us)[1]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_each_source_has_windows_of_its_own_punctuation(data: st.DataObject) -> None:
    types = {"source": "boolean"}  # two, and NULL is a third
    batch, rows = data.draw(batches(types))
    slots = data.draw(window_slots())
    times, matched = data.draw(streams(len(rows), len(slots)))
    closed_us, each_closed_us = data.draw(closings_by([row["source"] for row in rows]))
    ts_us, mask = as_arrays(times)
    count = [Partial("count_star", None, "n")]
    found = preaggregate(
        batch, to_matches(matched, len(slots)), slots, ts_us, ["source"], count, types, closed_us,
        mask,
    )  # fmt: skip
    cells = read_cells(found.batch, ["source"], count, types)
    expected = reference.preaggregate(
        slots, matched, rows, times, ["source"], count, each_closed_us
    )
    assert cells == {cell: [numbers] for cell, numbers in expected.items()}
    assert sorted(late_pairs(found)) == reference.expand(slots, matched, times, each_closed_us)[1]


def read_cells(
    batch: pa.RecordBatch, keys: list[str], partials: list[Partial], types: dict[str, str]
) -> dict[Any, list[list[Any]]]:
    """The output's partial values by (slot, window end, group)."""
    assert batch.schema.names == ["__slot", "__end_us", *keys, *(p.name for p in partials)]
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
        cell = (batch.column("__slot")[i].as_py(), batch.column("__end_us")[i].as_py(), group)
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
    first = np.array(found.column("__end_us")) == 10 * slide
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
    assert found.select(["__end_us", "s"]).to_pylist() == [
        {"__end_us": 0, "s": 1},
        {"__end_us": 10, "s": 5},
    ]  # fmt: skip


def test_a_row_in_a_gap_between_windows_is_not_late() -> None:
    slots = [SlotSpec(1, EVER, WindowSpec(3, 10))]
    batch = pa.RecordBatch.from_pydict({"x": [1, 1]})
    ts_us = np.array([1, 8], np.int64)
    found = expand(batch, to_matches([[0], [0]], 1), slots, ts_us, 10, [])
    assert late_pairs(found) == [(1, 0, 10, 10, 1, True)]


BOTH_WAYS = pytest.mark.parametrize("preaggregated", [False, True])


def place(
    times: list[int], slots: list[SlotSpec], closed_us: int | list[int], preaggregated: bool
) -> tuple[list[int], list[tuple[Any, ...]]]:
    """Window ends to report and late pairs of rows that are a group each, for every slot."""
    batch = pa.RecordBatch.from_pydict({"k": list(range(len(times)))})
    matches = to_matches([list(range(len(slots)))] * len(times), len(slots))
    ts_us = np.array(times, np.int64)
    closed = closed_us if isinstance(closed_us, int) else np.array(closed_us, np.int64)
    if preaggregated:
        types = {"k": "bigint"}
        found = preaggregate(batch, matches, slots, ts_us, ["k"], [], types, closed)
    else:
        found = expand(batch, matches, slots, ts_us, closed, ["k"])
    return found.batch.column("__end_us").to_pylist(), late_pairs(found)


@BOTH_WAYS
def test_a_row_that_misses_some_of_its_windows_counts_in_the_others(preaggregated: bool) -> None:
    slots = [SlotSpec(1, EVER, WindowSpec(50, 10))]
    ends, late = place([101, 120], slots, 129, preaggregated)
    assert ends == [130, 140, 150, 130, 140, 150, 160, 170]
    assert late == [(0, 0, 110, 120, 2, False)]


@BOTH_WAYS
def test_windows_that_begin_before_the_slot_are_not_missed(preaggregated: bool) -> None:
    slots = [SlotSpec(1, EVER, WindowSpec(50, 10), from_us) for from_us in (100, 101, 200)]
    ends, late = place([101], slots, 150, preaggregated)
    assert ends == []
    assert late == [(0, 0, 150, 150, 1, True)]


@BOTH_WAYS
def test_each_row_is_late_by_its_own_punctuation(preaggregated: bool) -> None:
    slots = [SlotSpec(1, EVER, WindowSpec(20, 10))]
    ends, late = place([5, 5, 5], slots, [10, NEVER_US, 2**63 - 1], preaggregated)
    assert ends == [20, 10, 20]
    assert late == [(0, 0, 10, 10, 1, False), (2, 0, 10, 20, 2, True)]


def test_thousands_of_groups_outgrow_the_first_hash_table() -> None:
    count = 5000
    batch = pa.RecordBatch.from_pydict({"k": list(range(count)) * 2})
    slots = [SlotSpec(i, EVER, WindowSpec(10, 10)) for i in range(3)]
    found = preaggregate(
        batch, to_matches([[0, 1, 2]] * (2 * count), 3), slots, np.zeros(2 * count, np.int64),
        ["k"], [Partial("count_star", None, "n")], {"k": "bigint"}, 0,
    ).batch  # fmt: skip
    rows = {(r["__slot"], r["k"]): r["n"] for r in found.to_pylist()}
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
