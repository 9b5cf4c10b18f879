"""Queries whose sinks fail: kept apart, tried again, given all that was kept in its order."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.test_dispatch import Frame

from penstock.control.quarantine import Patience
from penstock.errors import EngineError
from penstock.runtime.dispatch import Dispatcher, Outlets
from penstock.runtime.registry import Registry
from penstock.runtime.rings.quarantine import Quarantine
from penstock.runtime.sinks.delivery import CallbackSink, Missing, Share
from penstock.runtime.sinks.files import FileSink
from penstock.runtime.sinks.live import Subscribers
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.pool import SinkPool
from penstock.testing import ManualClock


@dataclass
class Ward:
    """A ring's dispatcher with the engine's quarantine behind it, without Spark."""

    folder: Path
    patience_s: float = 30.0
    limit_bytes: int | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    patience: Patience = Patience(first_s=10, longest_s=40, tries=2)  # noqa: RUF009

    def __post_init__(self) -> None:
        self.registry = Registry(self.folder / "catalog.sqlite")
        pool = SinkPool(lambda: self.patience_s)
        self.quarantine = Quarantine(
            self.registry,
            lambda: self.patience,
            lambda: self.patience_s,
            self.clock,
            pool.is_stuck,
        )
        self.ring = Dispatcher(
            "ring",
            ("n",),
            ResultLog(self.folder / "log"),
            ResultLog(self.folder / "waiting", self.limit_bytes),
            self.quarantine,
            lambda batch, rows: None,
            Outlets(pool, Subscribers()),
        )

    def query(self, name: str) -> int:
        return self.registry.add_query(name, "", "ring", "")

    def batch(self, number: int, *slots: int) -> None:
        self.ring(Frame([list(slots)], [number]), number)  # type: ignore[arg-type]

    def settle(self) -> None:
        self.quarantine.settle(time.monotonic() + 30)

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.settle()

    def state(self, slot: int) -> str:
        row = self.registry.query_by_slot(slot)
        told = self.quarantine.care(self.ring, slot).told if row.state == "quarantined" else ""
        return " / ".join(part for part in (row.state, row.error, told) if part)

    def again(self) -> Ward:
        """The next engine on the same workspace."""
        self.close()
        return Ward(self.folder, self.patience_s, self.limit_bytes, self.clock, self.patience)

    def close(self) -> None:
        self.quarantine.stop()
        self.registry.close()


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Ward]:
    made = Ward(tmp_path)
    yield made
    made.close()


@dataclass
class Moody:
    """A function that takes rows or raises, as the test wants."""

    broken: bool = True
    got: list[int] = field(default_factory=list)
    calls: int = 0

    def __call__(self, rows: pa.Table) -> None:
        self.calls += 1
        if self.broken:
            raise OSError("disk full")
        self.got += rows.column("n").to_pylist()


def test_after_the_sink_has_recovered_what_was_kept_comes_first_and_then_live_rows(
    ward: Ward,
) -> None:
    sink, other = Moody(), Moody(broken=False)
    slot, well = ward.query("broken"), ward.query("well")
    ward.ring.attach(slot, CallbackSink(sink))
    ward.ring.attach(well, CallbackSink(other))
    for number in range(3):
        ward.batch(number, slot, well)
        assert other.got == list(range(number + 1))  # at once, whatever the other one does
    assert (sink.calls, sink.got) == (1, [])
    assert ward.state(slot) == "quarantined / OSError: disk full / tried again in 10 s"
    assert ward.state(well) == "running"
    ward.later(9)
    assert sink.calls == 1
    ward.later(1)  # in vain
    assert sink.calls == 2
    assert ward.state(slot).endswith("tried again in 20 s")
    sink.broken = False
    ward.batch(3, slot, well)
    ward.later(20)
    assert sink.got == [0, 1, 2, 3]
    assert ward.state(slot) == "running"
    ward.batch(4, slot, well)
    assert sink.got == [0, 1, 2, 3, 4]
    sink.broken = True  # a new quarantine begins anew
    ward.batch(5, slot)
    assert ward.state(slot).endswith("tried again in 10 s")
    sink.broken = False
    ward.later(10)
    assert (sink.got, other.got) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4])


def test_after_the_last_try_only_the_user_resumes_it(ward: Ward) -> None:
    sink = Moody()
    slot = ward.query("broken")
    ward.ring.attach(slot, CallbackSink(sink))
    ward.batch(0, slot)
    ward.later(10)
    ward.later(20)
    assert ward.state(slot) == "quarantined / OSError: disk full / not tried again by itself"
    assert ward.quarantine.care(ward.ring, slot).given_up
    sink.broken = False
    ward.later(1e6)
    assert sink.calls == 3
    ward.quarantine.resume(ward.ring, slot)
    ward.settle()
    assert (sink.got, ward.state(slot)) == ([0], "running")


def test_a_call_that_hangs_is_not_made_again_and_what_it_took_at_last_does_not_come_twice(
    tmp_path: Path,
) -> None:
    ward = Ward(tmp_path, patience_s=0.2)
    release, got = threading.Event(), []

    def hangs(rows: pa.Table) -> None:
        got.append(rows.column("n").to_pylist())
        release.wait(60)

    slot = ward.query("hangs")
    ward.ring.attach(slot, CallbackSink(hangs))
    ward.batch(0, slot)
    ward.batch(1, slot)
    ward.later(1000)
    ward.quarantine.resume(ward.ring, slot)
    ward.settle()
    assert got == [[0]]
    assert ward.state(slot).endswith("its call has not returned yet")
    ward.patience_s = 30.0
    release.set()
    _wait(lambda: ward.state(slot) == "running")
    assert got == [[0], [1]]
    ward.close()


def test_a_hanging_retry_keeps_nobody_else_from_being_delivered_to(tmp_path: Path) -> None:
    ward = Ward(tmp_path, patience_s=120.0)
    release, failed, other = threading.Event(), [], Moody(broken=False)

    def fails_then_hangs(rows: pa.Table) -> None:
        if failed:
            release.wait(300)
        failed.append(True)
        raise OSError("disk full")

    slot, well = ward.query("hangs"), ward.query("well")
    ward.ring.attach(slot, CallbackSink(fails_then_hangs))
    ward.ring.attach(well, CallbackSink(other))
    ward.batch(0, slot, well)
    ward.clock.advance(10)
    _wait(lambda: len(failed) == 1 and ward.quarantine._detained[ward.ring.key_of(slot)].busy)
    started = time.monotonic()
    for number in range(1, 20):
        ward.batch(number, slot, well)
    assert time.monotonic() - started < 60.0  # who waits for the sink waits for 120 s
    assert other.got == list(range(20))
    release.set()
    ward.close()


def test_queries_that_share_files_are_tried_together_and_newcomers_wait_with_them(
    ward: Ward, tmp_path: Path
) -> None:
    (tmp_path / "disk").write_text("in the way")
    out = tmp_path / "disk" / "out"
    slots = [ward.query(name) for name in ("a", "b", "late")]
    for slot, name in zip(slots[:2], "ab", strict=True):
        ward.ring.attach(slot, Share(FileSink(str(out), "parquet"), name))
    ward.batch(0, *slots[:2])
    ward.ring.attach(slots[2], Share(FileSink(str(out), "parquet"), "late"))
    ward.batch(1, *slots)
    (tmp_path / "disk").unlink()
    ward.later(10)
    ward.batch(2, *slots)
    found = [pq.read_table(path).to_pylist() for path in sorted(out.iterdir())]
    names = ["a", "b", "late"]
    assert found == [
        [{"_queries": names[:2], "n": 0}],
        [{"_queries": names, "n": 1}],
        [{"_queries": names, "n": 2}],
    ]
    assert [ward.state(slot) for slot in slots[:2]] == ["running", "running"]


def test_a_new_engine_goes_on_where_delivery_was_and_shows_nothing_twice(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    out, got = tmp_path / "out", []
    slot, called = ward.query("files"), ward.query("function")
    out.write_text("in the way")

    def takes_two(rows: pa.Table) -> None:
        if len(got) == 2:
            raise OSError("enough")
        got.append(rows.column("n").to_pylist())

    ward.ring.attach(slot, FileSink(str(out), "parquet", "q"))
    ward.ring.attach(called, CallbackSink(takes_two))
    for number in range(4):
        ward.batch(number, slot, called)
    assert got == [[0], [1]]
    ward = ward.again()
    out.unlink()
    ward.ring.attach(called, Missing())
    key = ward.ring.attach(slot, FileSink(str(out), "parquet", "q"), behind=True)
    ward.quarantine.take_up(ward.ring, slot, key)
    ward.batch(3, slot, called)  # Spark does the last one again
    ward.settle()
    assert ward.state(slot) == "running"
    ward.batch(4, slot, called)
    found = {path.name: pq.read_table(path).column("n").to_pylist() for path in out.iterdir()}
    assert found == {f"q-ring-{n:08d}.parquet": [n] for n in range(5)}
    # the function has still to be handed over
    key = ward.ring.attach(
        called, CallbackSink(lambda t: got.append(t["n"].to_pylist())), None, True
    )
    ward.quarantine.take_up(ward.ring, called, key)
    ward.settle()
    ward.batch(5, called)
    assert got == [[0], [1], [2, 3, 4], [5]]
    assert ward.ring.waiting.batches() == []
    ward.close()


def test_what_one_query_was_given_while_another_waits_it_is_not_given_again(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    mended, broken = Moody(), Moody()
    slots = [ward.query("mended"), ward.query("broken")]
    for slot, sink in zip(slots, (mended, broken), strict=True):
        ward.ring.attach(slot, CallbackSink(sink))
    ward.batch(0, *slots)
    mended.broken = False
    ward.later(10)
    assert (mended.got, broken.calls, ward.ring.waiting.batches()) == ([0], 2, [0])
    ward = ward.again()
    broken.broken = False
    sinks = [CallbackSink(mended), CallbackSink(broken)]
    keys = [ward.ring.attach(slot, sinks[i], behind=True) for i, slot in enumerate(slots)]
    for slot, key in zip(slots, keys, strict=True):
        ward.quarantine.take_up(ward.ring, slot, key)
    ward.settle()
    assert (mended.got, broken.got, ward.ring.waiting.batches()) == ([0], [0], [])
    ward.close()


def test_what_did_not_fit_into_the_log_is_counted(tmp_path: Path) -> None:
    ward = Ward(tmp_path, limit_bytes=2_000)
    sink = Moody()
    slot = ward.query("broken")
    ward.ring.attach(slot, CallbackSink(sink))
    for number in range(10):
        ward.batch(number, slot)
    sink.broken = False
    ward.later(10)
    cut = ward.quarantine.care(ward.ring, slot).cut
    assert 0 < cut < 10
    assert sink.got == list(range(cut, 10))
    ward.close()


def test_a_sink_that_was_dropped_or_replaced_is_not_tried(ward: Ward) -> None:
    dropped, replaced, better = Moody(), Moody(), Moody(broken=False)
    one, two = ward.query("one"), ward.query("two")
    ward.ring.attach(one, CallbackSink(dropped))
    ward.ring.attach(two, CallbackSink(replaced))
    ward.batch(0, one, two)
    ward.ring.detach(one)
    key = ward.ring.attach(two, CallbackSink(better), behind=True)
    ward.quarantine.take_up(ward.ring, two, key)
    ward.batch(1, one, two)
    ward.later(1000)
    ward.batch(2, two)
    assert (dropped.calls, replaced.calls) == (1, 1)
    assert (better.got, ward.state(two)) == ([0, 1, 2], "running")


def test_a_query_moves_to_another_ring_only_when_nothing_waits_for_it(ward: Ward) -> None:
    sink = Moody()
    slots = [ward.query(name) for name in ("broken", "well", "missing", "closed")]
    ward.ring.attach(slots[0], CallbackSink(sink))
    ward.ring.attach(slots[1], None)
    ward.ring.attach(slots[2], Missing())
    ward.ring.attach(slots[3], None)
    ward.ring.closed.add(slots[3])
    for number in (5, 6):
        ward.batch(number, *slots)
    assert ward.ring.movable([*slots, 99]) == [slots[1]]  # one is not there any more
    sink.broken = False
    ward.later(10)
    assert ward.ring.movable(slots) == slots[:2]
    assert sink.got == [5, 6]
    # it comes back, and the ring's micro-batches are numbered otherwise than where it was
    ward.quarantine.book.set_first(slots[:1], 90)
    ward.quarantine.moved(ward.ring, slots[:1])
    sink.broken = True
    ward.batch(7, slots[0])
    sink.broken = False
    ward.later(10)
    assert sink.got == [5, 6, 7]


def test_waiting_for_a_sink_that_is_slow_to_catch_up_ends(ward: Ward) -> None:
    release, sink = threading.Event(), Moody()
    slot = ward.query("slow")
    ward.ring.attach(slot, CallbackSink(sink))
    ward.batch(0, slot)
    key = ward.ring.attach(slot, CallbackSink(lambda rows: release.wait(60)), behind=True)
    ward.quarantine.take_up(ward.ring, slot, key)
    with pytest.raises(EngineError, match="still being delivered"):
        ward.quarantine.settle(time.monotonic() + 0.3)
    release.set()
    ward.settle()


EVENTS = st.lists(
    st.sampled_from(["batch", "break", "mend", "time", "resume", "restart", "replace", "replay"]),
    max_size=14,
)


@settings(max_examples=25, deadline=None)
@given(EVENTS)
def test_whatever_happens_a_sink_gets_every_row_in_its_order(events: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ward = Ward(Path(folder), patience=Patience(first_s=10, longest_s=10, tries=2))
        slot, number, disk = ward.query("q"), -1, Path(folder, "disk")

        files = FileSink(str(disk / "out"), "parquet", "q")
        function = Moody(broken=False)
        called = ward.query("f")
        ward.ring.attach(slot, files)
        ward.ring.attach(called, CallbackSink(function))
        for event in [*events, "mend", "batch", "resume", "time"]:
            if event in ("batch", "replay"):
                number = max(0, number + (event == "batch"))
                ward.batch(number, slot, called)
            elif event == "break" and not disk.is_file():
                disk.rename(Path(folder, "away")) if disk.exists() else None
                disk.write_text("")
                function.broken = True
            elif event == "mend" and disk.is_file():
                disk.unlink()
                away = Path(folder, "away")
                away.rename(disk) if away.exists() else None
                function.broken = False
            elif event == "time":
                ward.later(10)
            elif event == "resume":
                for each in (slot, called):
                    ward.quarantine.resume(ward.ring, each)
                ward.settle()
            elif event in ("restart", "replace"):
                function = Moody(function.broken, function.got)
                behind = event == "restart" and ward.state(slot) != "running"
                ward = ward.again() if event == "restart" else ward
                keys = {called: ward.ring.attach(called, CallbackSink(function), behind=True)}
                if event == "restart":
                    key = ward.ring.attach(slot, files, behind=behind)
                    keys |= {slot: key} if behind else {}
                for each, key in keys.items():
                    ward.quarantine.take_up(ward.ring, each, key)
        ward.settle()
        written = sorted((disk / "out").iterdir())
        assert [n for f in written for n in pq.read_table(f).column("n").to_pylist()] == list(
            range(number + 1)
        )
        first = list(dict.fromkeys(function.got))  # a replay after a restart may come again
        assert first == list(range(number + 1))
        assert (ward.state(slot), ward.state(called)) == ("running", "running")
        ward.close()


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)
