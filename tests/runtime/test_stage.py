"""The stage without Spark: who is late, what is said of it, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from penstock.control.closing import LEARNING, LEARNING_US, plain, with_lag
from penstock.control.punctuation import NEVER_US
from penstock.geometry import to_hex
from penstock.kernels.delays import UNKNOWN_US
from penstock.plan.catalog import Stream, companion
from penstock.plan.leaves import IS_FALSE, IS_TRUE
from penstock.plan.specs import (
    Composition,
    FenceTest,
    Output,
    Partial,
    SlotSpec,
    Term,
    WindowSpec,
)
from penstock.plan.valuesets import compare
from penstock.runtime import stage as stage_module
from penstock.runtime.packing import unpacked
from penstock.runtime.per_source import Sources
from penstock.runtime.report import TaskReport
from penstock.runtime.stage import Stage
from penstock.schema import Schema

STREAM = Stream("S", Schema.of("id INT, ts TIMESTAMP"), "file", "ts")
EVER = (Term(()),)
EPOCH = {
    "punctuation_us": NEVER_US,
    "clock_us": UNKNOWN_US,
    "newest": 0,
    "order": (),
    "prefix": None,
    "sources": None,
    "trust_us": 10**12,
}
SLOTS = (SlotSpec(7, EVER, WindowSpec(50, 10)), SlotSpec(9, EVER, WindowSpec(10, 10)))


def stage(slots: tuple[SlotSpec, ...], preaggregated: bool) -> Stage:
    partials = (Partial("count_star", None, "__p0"),) if preaggregated else ()
    composition = Composition(
        "window",
        "S",
        (),
        () if preaggregated else ("id",),
        (Output("n", "__a0"),),
        "ts",
        partials=partials,
        partial_types=("bigint",) * len(partials),
        preaggregated=preaggregated,
    )
    stage = Stage.of(composition, STREAM)
    stage.change(1, slots)
    return stage


def in_batches(times_us: Sequence[int], *cuts: int) -> Iterator[pa.RecordBatch]:
    """Tuples numbered from 0 on, cut into batches."""
    schema = STREAM.schema.arrow()
    ids = pa.array(range(len(times_us)), pa.int32())
    whole = pa.record_batch([ids, pa.array(times_us, schema.field("ts").type)], schema=schema)
    for begin, end in pairwise([0, *cuts, len(times_us)]):
        yield whole.slice(begin, end - begin)


def run(times_us: Sequence[int], closed_us: int, preaggregated: bool) -> TaskReport:
    """What a task reports that reads three batches, and two when it reads again."""
    report = TaskReport()
    epoch = EPOCH | {"punctuation_us": closed_us}
    made = stage(SLOTS, preaggregated)
    list(made.run(in_batches(times_us, 2, 3), epoch, report, lambda _: in_batches(times_us, 4)))
    return report


def micros(moment: Any) -> int:
    return round(moment.timestamp() * 1_000_000)


@pytest.mark.parametrize("preaggregated", [False, True])
def test_late_tuples_are_counted_and_kept_whatever_the_batches_are(preaggregated: bool) -> None:
    report = run([150, 101, 62, 149, 105], 120, preaggregated)
    assert report.late == {7: 3, 9: 3}
    assert report.lost == {7: 1, 9: 3}
    kept = pa.Table.from_batches(report.late_rows).to_pylist()
    assert [(r["id"], r["_slot"], r["_missed"], r["_lost"]) for r in kept] == [
        (1, 7, 2, False),
        (1, 9, 1, True),
        (2, 7, 5, True),
        (2, 9, 1, True),
        (4, 7, 2, False),
        (4, 9, 1, True),
    ]
    ends = [(micros(r["_first_missed"]), micros(r["_last_missed"])) for r in kept]
    assert ends == [(110, 120), (110, 110), (70, 110), (70, 70), (110, 120), (110, 110)]
    assert {micros(r["_punctuation"]) for r in kept} == {120}


@pytest.mark.parametrize("preaggregated", [False, True])
def test_columns_may_have_the_names_that_window_rows_have(preaggregated: bool) -> None:
    stream = Stream("S", Schema.of("slot INT, end_us INT, ts TIMESTAMP"), "file", "ts")
    columns = ("slot", "end_us")
    composition = replace(
        stage((), preaggregated).composition,
        shipped=() if preaggregated else columns,
        keys=columns,
        key_types=("int", "int"),
    )
    made = Stage.of(composition, stream)
    made.change(1, SLOTS[1:])
    batch = pa.RecordBatch.from_pylist([{"slot": 3, "end_us": 4, "ts": 5}], stream.schema.arrow())
    [rows] = made.run(iter([batch]), EPOCH, TaskReport())
    [row] = rows.to_pylist()
    names = ("__k0", "__k1") if preaggregated else columns
    assert (row["__slot"], *(row[name] for name in names)) == (9, 3, 4)


@pytest.mark.parametrize("preaggregated", [False, True])
def test_big_batches_are_cut_and_nothing_else_changes(
    preaggregated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [150, 101, 62, 149, 105, 200, 150, 62, 170]
    expected = run(times, 120, preaggregated)
    monkeypatch.setattr(stage_module, "_LEAST_ROWS", 2)
    monkeypatch.setattr(stage_module, "_MOST_PAIRS", 2 * len(SLOTS))
    pieces = stage(SLOTS, preaggregated).pieces(in_batches(times, 5))
    assert [piece.num_rows for piece in pieces] == [2, 2, 1, 2, 2]
    cut = run(times, 120, preaggregated)
    assert (cut.late, cut.lost) == (expected.late, expected.lost)
    assert cut.facts.rows == expected.facts.rows == len(times)
    assert kept(cut) == kept(expected)


def kept(report: TaskReport) -> list[dict[str, Any]]:
    return pa.Table.from_batches(report.late_rows).to_pylist()


def test_nothing_is_late_before_the_first_punctuation() -> None:
    report = run([150, -(10**9), 0, 1, 2], NEVER_US, preaggregated=True)
    assert (report.late, report.lost, report.late_rows) == ({}, {}, [])


def test_kept_tuples_have_the_columns_of_the_companion() -> None:
    kept = run([0] * 5, 10**9, preaggregated=True).late_rows[0].schema
    known = companion(STREAM, "late").schema.arrow()
    slot = kept.get_field_index("_slot")
    assert kept.set(slot, pa.field("_query", pa.string())).equals(known)


def sources(column: pa.Array, known: dict[str, list[list[int]]] | None = None) -> Sources:
    epoch = {
        "punctuation_us": 0,
        "trust_us": 10**12,
        "sources": {"others": plain(LEARNING), "known": known or {}},
    }
    return Sources(column, epoch)


def test_sources_are_those_that_spark_groups_by() -> None:
    floats = sources(pa.array([0.0, -0.0, float("nan"), None, float("nan")]))
    assert floats.codes.tolist() == [0, 0, 1, 2, 1]
    assert floats.names == ["=0.0", "=nan", "null"]
    far = pa.array([10**18, None, 5], pa.timestamp("us", tz="UTC"))  # beyond the year 9999
    assert sources(far).names == ["=1000000000000000000", "null", "=5"]
    assert sources(pa.array([3_000_000], pa.date32())).names == ["=3000000"]
    assert sources(pa.array(["null", None, "=null"])).names == ["=null", "null", "==null"]
    assert sources(pa.array([], pa.string())).names == []


def test_sources_beyond_a_bound_are_lumped_together() -> None:
    codes, names = sources(pa.array(["a", "b", "c", "d", "b"])).bounded(2)
    assert (codes.tolist(), names) == ([0, 1, 2, 2, 1], ["=a", "=b", ""])


def test_each_row_closes_by_the_schedule_of_its_source() -> None:
    own = plain(with_lag(LEARNING, 5_000, -(10**9)))
    found = sources(pa.array(["a", "b", "a"]), {"=a": own})
    assert found.closed_us(10**9).tolist() == [10**9 - 5_000, 10**9 - LEARNING_US, 10**9 - 5_000]
    ends = np.array([10**10, 10**10, 10**13])
    closing = found.closing_us(ends).tolist()
    assert closing == [10**10 + 5_000, 10**10 + LEARNING_US, 10**13 + LEARNING_US]


def test_a_stage_tests_geofences_on_columns_that_it_does_not_ship() -> None:
    stream = Stream("S", Schema.of("id INT, x DOUBLE, y FLOAT, z INT, ts TIMESTAMP"), "file", "ts")
    composition = Composition("select", "S", (), ("id",), (Output("id", "`id`"),), "ts")
    squares = [to_hex(shapely.box(0, 0, side, side)) for side in (2, 4)]
    small, large = (FenceTest("x", "y", "within", 0.0, square) for square in squares)
    made = Stage.of(composition, stream)
    in_one = SlotSpec(3, (Term((), ((small, IS_TRUE),)),))
    between = SlotSpec(5, (Term((("z", compare(">", 0)),), ((small, IS_FALSE), (large, IS_TRUE))),))
    made.change(1, [in_one, between, SlotSpec(8, EVER)])
    assert made.columns() == ["id", "x", "y", "z", "ts"]

    rows = {"id": [0, 1, 2, 3, 4], "x": [1.0, 3.0, 2.0, None, 3.0], "y": [1, 3, 2, 1, 3]}
    columns = pa.RecordBatch.from_pydict({**rows, "z": [1, 1, 1, 1, 0], "ts": [0] * 5}).cast(
        stream.schema.arrow()
    )
    epoch = {"order": ("z",), "prefix": None, "clock_us": UNKNOWN_US, "trust_us": 10**12}

    def run_now() -> list[list[int]]:
        found = made.run(iter([columns.select(made.columns())]), epoch, TaskReport())
        shipped = unpacked(pa.Table.from_batches(found)).to_pylist()
        slots = {row["__o0"]: sorted(row["__slots"]) for row in shipped}
        return [slots.get(row, []) for row in rows["id"]]

    assert run_now() == [[3, 8], [5, 8], [5, 8], [8], [8]]
    made.change(2, [], [5, 8])
    assert made.columns() == ["id", "x", "y", "ts"]
    assert run_now() == [[3], [], [], [], []]
