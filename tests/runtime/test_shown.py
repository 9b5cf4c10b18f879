"""Queries of a selection show other columns: what leaves the stage, and what each query gets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock
from penstock.kernels.selection import Matches
from penstock.plan.catalog import Stream
from penstock.plan.specs import Composition, Output, SlotSpec, Term
from penstock.runtime.packing import PACKED, pack, unpacked
from penstock.runtime.shown import ShownColumns
from penstock.runtime.sinks.matched import matched_rows
from penstock.runtime.stage import Stage
from penstock.schema import Schema

SCHEMA = "id INT, name STRING, v DOUBLE, note STRING, ts TIMESTAMP"


def slot(number: int, *shows: int) -> SlotSpec:
    return SlotSpec(number, (), shows=shows)


def test_places_follow_the_slots() -> None:
    shown = ShownColumns()
    assert shown.places == []
    shown.change([slot(1, 0, 2), slot(2, 2), slot(3, 2)], [])
    assert shown.places == [0, 2]
    shown.change([slot(4, 3)], [1])
    assert shown.places == [2, 3]
    shown.change([], [2, 3, 4, 99])
    assert shown.places == []


COLUMNS = {0: pa.array(range(6)), 1: pa.array(["a", None, "c", "d", "e", "f"])}
LISTS = st.sampled_from([(0,), (1,), (0, 1)])


@given(st.lists(LISTS, min_size=1, max_size=5), st.data())
def test_a_row_has_what_the_queries_show_that_want_it(
    lists: list[tuple[int, ...]], data: st.DataObject
) -> None:
    some = st.sets(st.integers(0, len(lists) - 1)).map(sorted)
    wanted = [data.draw(some) for _ in range(6)]
    offsets = np.concatenate([[0], np.cumsum([len(w) for w in wanted])]).astype(np.int32)
    positions = np.array([p for w in wanted for p in w], np.int32)
    matches = Matches(len(lists), offsets, positions, 0)
    shown = ShownColumns()
    shown.change([slot(10 * n, *places) for n, places in enumerate(lists)], [])
    batch = pa.RecordBatch.from_arrays(list(COLUMNS.values()), names=["a", "b"])
    kept = np.flatnonzero(np.diff(offsets))
    slots = np.arange(len(lists)) * 10
    leaving = [(place, "ab"[place]) for place in shown.places]
    found = dict(zip(shown.places, shown.taken(batch, leaving, kept, matches, slots), strict=True))
    for row, number in enumerate(kept):
        for position in wanted[number]:
            for place in lists[position]:
                assert found[place][row] == COLUMNS[place][number]
        if 1 in found and not any(1 in lists[position] for position in wanted[number]):
            assert found[1][row].as_py() is None


def test_a_stage_without_slots_still_reads_something() -> None:
    stream = Stream("S", Schema.of("id INT, name STRING"), "file")
    outputs = (Output("__o0", "`id`"), Output("__o1", "`name`"))
    composition = Composition("select", "S", (), ("id", "name"), outputs, any_columns=True)
    stage = Stage.of(composition, stream)
    stage.change(1, [SlotSpec(1, (Term(()),), shows=(1,))])
    assert stage.columns() == ["name"]
    stage.change(2, [], [1])
    assert stage.columns() == ["id"]


def test_blobs_of_other_columns_come_together() -> None:
    """As of two versions in one micro-batch."""
    lists = pa.array([[1]], pa.list_(pa.int32()))
    first = pa.RecordBatch.from_arrays([lists, pa.array(["x"])], names=["__slots", "__o2"])
    second = pa.RecordBatch.from_arrays(
        [lists, pa.array([7]), pa.array(["y"])], names=["__slots", "__o0", "__o2"]
    )
    blobs = pa.Table.from_batches([*pack(first), *pack(second)])
    assert blobs.column_names == [PACKED]
    matched = matched_rows(unpacked(blobs), ["a", "b", "c"])
    assert matched.rows.to_pylist() == [
        {"a": None, "b": None, "c": "x"},
        {"a": 7, "b": None, "c": "y"},
    ]


def _write(path: Path, first: int) -> None:
    lines = [
        {"id": n, "name": f"n{n}", "v": n / 2, "note": "x" * 50, "ts": f"2026-01-01 00:00:{n:02}"}
        for n in range(first, first + 10)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize("format_", ["json", "parquet"])
def test_queries_with_other_columns_share_a_ring(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    inbox, workspace = tmp_path / "in", tmp_path / "w"
    inbox.mkdir()

    def arrive(first: int) -> None:
        _write(inbox / f"{first}.json.part", first)
        if format_ == "parquet":
            frame = spark.read.schema(SCHEMA).json(str(inbox / f"{first}.json.part"))
            frame.coalesce(1).write.mode("append").parquet(str(inbox))
            (inbox / f"{first}.json.part").unlink()
        else:
            (inbox / f"{first}.json.part").rename(inbox / f"{first}.json")

    with penstock.Engine(spark, workspace) as engine:
        engine.execute(
            f"CREATE STREAM S ({SCHEMA}) WITH (source = 'file', format = '{format_}',"
            f" path = '{inbox}', event_time = 'ts')"
        )
        engine.register("SELECT id, v FROM S WHERE id < 15", name="numbers")
        engine.register("SELECT name AS who FROM S WHERE id >= 5", name="names")
        arrive(0)
        engine.await_idle()
        engine.register("SELECT note, id, note AS again FROM S WHERE v > 6", name="notes")
        arrive(10)
        engine.await_idle()
    with penstock.Engine(spark, workspace) as engine:  # goes on with what was shown before
        engine.query("numbers").drop()
        engine.register("SELECT * FROM S WHERE id = 25", name="all")
        arrive(20)
        engine.await_idle()
        assert [ring["kind"] for ring in engine.rings()] == ["select"]
        names = engine.query("names").results()
        assert sorted(names.column("who").to_pylist()) == sorted(f"n{n}" for n in range(5, 30))
        notes = engine.query("notes").results()
        assert notes.column_names == ["note", "id", "again"]
        assert sorted(notes.column("id").to_pylist()) == list(range(13, 30))
        assert set(notes.column("note").to_pylist()) == {"x" * 50}
        [row] = engine.query("all").results().to_pylist()
        assert (row["id"], row["name"], row["v"], row["note"]) == (25, "n25", 12.5, "x" * 50)
