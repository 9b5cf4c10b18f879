"""Results to sinks: each query gets its own rows, once, whatever the others do."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.specs import Shown
from penstock.runtime.dispatch import Dispatcher, Outlets
from penstock.runtime.rings.guarding import FAILED, Blame
from penstock.runtime.sinks.delivery import CallbackSink, Share
from penstock.runtime.sinks.files import FileSink
from penstock.runtime.sinks.live import Subscribers
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import shown_rows
from penstock.runtime.sinks.memory import MemorySink
from penstock.runtime.sinks.pool import SinkPool


class Frame:
    """The one call that dispatch makes of a DataFrame."""

    def __init__(self, slots: list[list[int]], values: list[int]) -> None:
        self._table = pa.table({"__slots": pa.array(slots, pa.list_(pa.int32())), "__o0": values})

    def toArrow(self) -> pa.Table:  # Spark's name
        return self._table


@dataclass
class Recorder:
    """Notes whom the dispatcher put aside, and leaves them there."""

    told: dict[str, Any]

    def put_aside(self, ring: Dispatcher, failed: Mapping[Hashable, Any], batch: int) -> None:
        for key, error in failed.items():
            slots = ring.served_by(key)[0]
            self.told["quarantined"] += [(slot, str(error)) for slot in slots if error is not None]

    def close(self, slot: int, error: str) -> None:
        self.told["closed"].append((slot, error))

    def count_cut(self, slots: Collection[int], cut: Mapping[int, Mapping[int, int]]) -> None:
        self.told["cut"].append((set(slots), cut))


@pytest.fixture
def told() -> dict[str, Any]:
    return {"quarantined": [], "finished": [], "closed": [], "cut": []}


@pytest.fixture
def dispatcher(tmp_path: Path, told: dict[str, Any]) -> Dispatcher:
    return _dispatcher(tmp_path, told)


def _dispatcher(workspace: Path, told: dict[str, Any], patience_s: float = 60.0) -> Dispatcher:
    return Dispatcher(
        "ring",
        ("n",),
        ResultLog(workspace / "log"),
        ResultLog(workspace / "waiting"),
        Recorder(told),
        lambda batch, rows: told["finished"].append((batch, rows)),
        Outlets(SinkPool(lambda: patience_s), Subscribers()),
    )


def _logged(dispatcher: Dispatcher, slot: int) -> list[int]:
    tables = dispatcher.log.read(slot) + dispatcher.waiting.read(slot)
    return [v for table in tables for v in table.column("n").to_pylist()]


def test_queries_with_different_sinks_in_one_ring_get_their_own_rows_once(
    dispatcher: Dispatcher, told: dict[str, Any]
) -> None:
    got: list[int] = []
    dispatcher.attach(1, None)
    dispatcher.attach(2, CallbackSink(lambda rows: got.extend(rows.column("n").to_pylist())))
    dispatcher(Frame([[1, 2], [2], [1], [3]], [10, 20, 30, 40]), 0)  # type: ignore[arg-type]
    assert _logged(dispatcher, 1) == [10, 30]
    assert got == [10, 20]
    assert _logged(dispatcher, 2) == []  # a row that both matched is kept for the first alone
    assert told["finished"] == [(0, {1: 2, 2: 2})]


def test_a_batch_that_is_done_again_calls_a_function_once(dispatcher: Dispatcher) -> None:
    got: list[int] = []
    dispatcher.attach(2, CallbackSink(lambda rows: got.extend(rows.column("n").to_pylist())))
    for _ in range(2):
        dispatcher(Frame([[2]], [5]), 0)  # type: ignore[arg-type]
    assert got == [5]


def test_a_failing_sink_quarantines_its_query_and_loses_nothing(
    dispatcher: Dispatcher, told: dict[str, Any]
) -> None:
    def fail(rows: pa.Table) -> None:
        raise OSError("disk full")

    got: list[int] = []
    dispatcher.attach(1, CallbackSink(fail))
    dispatcher.attach(2, CallbackSink(lambda rows: got.extend(rows.column("n").to_pylist())))
    dispatcher(Frame([[1, 2]], [1]), 0)  # type: ignore[arg-type]
    dispatcher(Frame([[1, 2]], [2]), 1)  # type: ignore[arg-type]
    assert told["quarantined"] == [(1, "disk full")]
    assert _logged(dispatcher, 1) == [1, 2]
    assert got == [1, 2]


class GuardedFrame(Frame):
    """Of rows that tell which output has no value."""

    def __init__(self, slots: list[list[int]], values: list[int], failed: list[int | None]) -> None:
        super().__init__(slots, values)
        self._table = self._table.append_column(FAILED, pa.array(failed, pa.int32()))


def test_a_query_gets_the_other_rows_of_the_micro_batch_that_closes_it(
    dispatcher: Dispatcher, told: dict[str, Any]
) -> None:
    dispatcher.blame = Blame(("1 / n",), "Division by zero")
    dispatcher.attach(1, None)
    dispatcher.attach(2, None)
    rows = GuardedFrame([[1, 2], [2], [1, 2]], [1, 0, 2], [None, 0, None])
    for batch in range(2):
        dispatcher(rows, batch)  # type: ignore[arg-type]
    assert told["closed"] == [(2, "1 / n: Division by zero")]
    assert _logged(dispatcher, 1) == [1, 2, 1, 2]
    assert _logged(dispatcher, 2) == [1, 2]


def test_a_query_that_is_in_another_ring_is_not_closed_here_for_when_it_comes_back(
    dispatcher: Dispatcher, told: dict[str, Any]
) -> None:
    dispatcher.blame = Blame(("1 / n",), "Division by zero")
    dispatcher(GuardedFrame([[2]], [0], [0]), 0)  # type: ignore[arg-type]
    dispatcher.attach(2, None)
    dispatcher(Frame([[2]], [5]), 1)  # type: ignore[arg-type]
    assert told["closed"] == []
    assert _logged(dispatcher, 2) == [5]


def test_rows_of_a_dropped_query_go_nowhere(dispatcher: Dispatcher, told: dict[str, Any]) -> None:
    dispatcher.attach(1, None)
    dispatcher.detach(1)
    dispatcher(Frame([[1]], [1]), 0)  # type: ignore[arg-type]
    assert _logged(dispatcher, 1) == []
    assert told["finished"] == [(0, {})]


def test_an_empty_batch_is_finished_too(dispatcher: Dispatcher, told: dict[str, Any]) -> None:
    dispatcher(Frame([], []), 7)  # type: ignore[arg-type]
    assert told["finished"] == [(7, {})]


def _into(got: list[int]) -> CallbackSink:
    return CallbackSink(lambda rows: got.extend(rows.column("n").to_pylist()))


def _values(tables: list[pa.Table]) -> list[int]:
    return [v for table in tables for v in table.column("n").to_pylist()]


BATCHES = st.lists(
    st.lists(st.lists(st.integers(1, 9), min_size=1, unique=True).map(sorted), max_size=8),
    min_size=1,
    max_size=4,
)
KINDS = st.lists(
    st.sampled_from(["log", "function", "memory", "files", "shared", "raises", "gone"]),
    min_size=9,
    max_size=9,
)


@settings(max_examples=50)
@given(BATCHES, KINDS, st.booleans())
def test_every_sink_gets_what_a_look_at_each_row_would_give_it(
    batches: list[list[list[int]]], kinds: list[str], replayed: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dispatcher = _dispatcher(Path(folder), {"quarantined": [], "finished": []})
        files, shared = Path(folder, "files"), Path(folder, "shared")
        got: dict[int, list[int]] = {slot: [] for slot in range(1, 10)}
        memory = {slot: MemorySink(1_000) for slot in got}
        live = {slot: dispatcher.outlets.subscribers.subscribe(slot, 1_000) for slot in got}
        sinks = {
            "log": lambda slot: None,
            "function": lambda slot: _into(got[slot]),
            "memory": lambda slot: memory[slot],
            "files": lambda slot: FileSink(str(files), "parquet", f"q{slot}"),
            "shared": lambda slot: Share(FileSink(str(shared), "parquet"), f"q{slot}"),
            "raises": lambda slot: CallbackSink(lambda rows: 1 // 0),
        }
        kind_of = dict(zip(got, kinds, strict=True))
        for slot, kind in kind_of.items():
            if kind != "gone":
                dispatcher.attach(slot, sinks[kind](slot))
        expected: dict[int, list[int]] = {slot: [] for slot in got}
        for batch, slots in enumerate(batches):
            values = [100 * batch + i for i in range(len(slots))]
            for _ in range(2 if replayed else 1):
                dispatcher(Frame(slots, values), batch)  # type: ignore[arg-type]
            for value, of in zip(values, slots, strict=True):
                for slot in of:
                    expected[slot].append(value)
        dispatcher.outlets.subscribers.end_all()
        by_name = [row for f in sorted(shared.glob("*")) for row in pq.read_table(f).to_pylist()]
        for slot, kind in kind_of.items():
            found = {
                "log": _logged(dispatcher, slot),
                "raises": _logged(dispatcher, slot),
                "function": got[slot],
                "memory": _values(memory[slot].rows()),
                "files": _values([pq.read_table(f) for f in sorted(files.glob(f"q{slot}-*"))]),
                "shared": [row["n"] for row in by_name if f"q{slot}" in row["_queries"]],
            }
            wanted = [] if kind == "gone" else expected[slot]
            assert found.pop(kind, []) == wanted
            assert _values(list(live[slot])) == wanted
            found.pop("raises" if kind == "log" else "log", None)
            assert not any(found.values())
        assert len(by_name) == len({row["n"] for row in by_name})  # a row for many is there once


def test_sinks_that_raise_hang_or_are_slow_hurt_nobody_else(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    dispatcher = _dispatcher(tmp_path, told, patience_s=1.0)
    release = threading.Event()
    got: dict[int, list[int]] = {slot: [] for slot in range(1, 6)}

    def raises(rows: pa.Table) -> None:
        got[2].extend(rows.column("n").to_pylist())
        if len(got[2]) == 2:
            raise OSError("disk full")

    def hangs(rows: pa.Table) -> None:
        if len(got[3]) == 2:
            release.wait(60)
        got[3].extend(rows.column("n").to_pylist())

    def is_slow(rows: pa.Table) -> None:
        time.sleep(0.05)
        got[4].extend(rows.column("n").to_pylist())

    dispatcher.attach(1, _into(got[1]))
    for slot, function in ((2, raises), (3, hangs), (4, is_slow)):
        dispatcher.attach(slot, CallbackSink(function))
    dispatcher.attach(5, None)
    for batch in range(5):
        for _ in range(2):
            dispatcher(Frame([[1, 2, 3, 4, 5]], [batch]), batch)  # type: ignore[arg-type]
    assert got == {1: [0, 1, 2, 3, 4], 2: [0, 1], 3: [0, 1], 4: [0, 1, 2, 3, 4], 5: []}
    logged = {slot: _logged(dispatcher, slot) for slot in got}
    assert logged == {1: [], 2: [1, 2, 3, 4], 3: [2, 3, 4], 4: [], 5: [0, 1, 2, 3, 4]}
    assert told["quarantined"] == [
        (2, "disk full"),
        (3, "the sink took longer than 1 s (sink_patience)"),
    ]
    assert told["finished"][-1] == (4, {1: 1, 2: 1, 3: 1, 4: 1, 5: 1})
    # a new function need not wait for the old one to return
    again: list[int] = []
    dispatcher.attach(3, _into(again))
    dispatcher(Frame([[3]], [5]), 5)  # type: ignore[arg-type]
    assert (again, _logged(dispatcher, 3)[-1]) == ([5], 4)


def test_queries_may_come_and_go_while_results_are_delivered(
    dispatcher: Dispatcher, told: dict[str, Any]
) -> None:
    better: list[int] = []

    def changes_its_mind(rows: pa.Table) -> None:
        dispatcher.detach(2)
        dispatcher.attach(1, _into(better))
        dispatcher.attach(3, None)
        raise OSError("too late to matter")

    dispatcher.attach(1, CallbackSink(changes_its_mind))
    dispatcher.attach(2, CallbackSink(lambda rows: 1 // 0))
    dispatcher(Frame([[1]], [0]), 0)  # type: ignore[arg-type]
    dispatcher(Frame([[1, 2, 3]], [1]), 1)  # type: ignore[arg-type]
    assert told["quarantined"] == []
    assert _logged(dispatcher, 1) == [0, 1]  # what the first function refused is not lost
    assert better == []  # until these are delivered: in their order
    assert _logged(dispatcher, 3) == [1]
    assert told["finished"] == [(0, {1: 1}), (1, {1: 1, 3: 1})]


def test_a_shared_sink_that_fails_quarantines_all_its_queries(
    dispatcher: Dispatcher, told: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for slot in (1, 2):
        path = str(tmp_path / "file" / "out")
        dispatcher.attach(slot, Share(FileSink(path, "parquet"), f"q{slot}"))
    dispatcher(Frame([[1, 2], [2]], [10, 20]), 0)  # type: ignore[arg-type]
    assert [slot for slot, _ in told["quarantined"]] == [1, 2]
    assert (_logged(dispatcher, 1), _logged(dispatcher, 2)) == ([10], [10, 20])


class TwoColumns(Frame):
    def __init__(self, slots: list[list[int]], values: list[int]) -> None:
        super().__init__(slots, values)
        self._table = self._table.append_column("__o1", pa.array([-v for v in values]))


TURNED = (Shown("b", 1), Shown("a", 0))
TWICE = (Shown("a", 0), Shown("b", 1), Shown("again", 0))


def test_each_query_shows_its_own_columns_of_the_rows_it_shares(tmp_path: Path, told) -> None:
    dispatcher = _dispatcher(tmp_path, told)
    dispatcher.names = ("__o0", "__o1")
    got: dict[int, list[pa.Table]] = {1: [], 2: [], 3: []}
    for slot, columns in ((1, TURNED), (2, TWICE), (3, None)):
        dispatcher.attach(slot, CallbackSink(got[slot].append), columns)
    live = dispatcher.outlets.subscribers.subscribe(1, 100)
    dispatcher.attach(4, None, TURNED)
    dispatcher(TwoColumns([[1, 2, 3, 4], [1]], [5, 6]), 0)  # type: ignore[arg-type]
    dispatcher.outlets.subscribers.end_all()
    assert [t.to_pylist() for t in got[1]] == [[{"b": -5, "a": 5}, {"b": -6, "a": 6}]]
    assert got[1][0].schema.names == ["b", "a"]
    assert [t.to_pylist() for t in got[2]] == [[{"a": 5, "b": -5, "again": 5}]]
    assert [t.to_pylist() for t in got[3]] == [[{"__o0": 5, "__o1": -5}]]
    assert [t.schema.names for t in live] == [["b", "a"]]
    # the log keeps a row once, as the ring has it: who reads it picks the columns
    [kept] = dispatcher.log.read(4)
    assert shown_rows(kept, TURNED).to_pylist() == [{"b": -5, "a": 5}]


def test_queries_that_share_files_but_not_their_columns_have_files_of_their_own(
    tmp_path: Path, told
) -> None:
    dispatcher = _dispatcher(tmp_path, told)
    dispatcher.names = ("__o0", "__o1")
    out = tmp_path / "out"
    for slot, columns in ((1, TURNED), (2, TURNED), (3, TWICE)):
        dispatcher.attach(slot, Share(FileSink(str(out), "parquet"), f"q{slot}"), columns)
    for _ in range(2):  # a replay replaces what it has written
        dispatcher(TwoColumns([[1, 2], [2, 3]], [5, 6]), 0)  # type: ignore[arg-type]
    tables = [pq.read_table(path) for path in out.iterdir()]
    found = {tuple(t.schema.names): t.to_pylist() for t in tables}
    assert len(tables) == 2
    assert found["_queries", "b", "a"] == [
        {"_queries": ["q1", "q2"], "b": -5, "a": 5},
        {"_queries": ["q2"], "b": -6, "a": 6},
    ]
    assert found["_queries", "a", "b", "again"] == [
        {"_queries": ["q3"], "a": 6, "b": -6, "again": 6}
    ]
