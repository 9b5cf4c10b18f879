"""What keeps a ring from starting: it is said, and tried again where it may pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from threading import Event, RLock, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Engine, EngineError
from penstock.control.mode import ModeFacts
from penstock.control.quarantine import Patience
from penstock.plan.specs import SlotSpec
from penstock.runtime.compile import Generation
from penstock.runtime.derived.progress import too_long_ago
from penstock.runtime.dispatch import Dispatcher
from penstock.runtime.registry import RingRow
from penstock.runtime.rings import ring, tries
from penstock.runtime.rings.failures import first_cause, may_pass
from penstock.runtime.rings.generations import Generations
from penstock.runtime.rings.manager import RingManager
from penstock.runtime.rings.pacing import Pace
from penstock.runtime.rings.ring import Ring
from penstock.runtime.rings.running import RunningRings
from penstock.runtime.rings.together import Blocks
from penstock.runtime.rings.tries import Tries
from penstock.testing import ScriptedStream, quick_engine

NOT_STARTED = """An error occurred while calling o4475.load.
: org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(Factory.scala:266)
Caused by: java.net.SocketTimeoutException: Timeout on a socket
\t... 31 more
"""
REFUSED = "An error occurred while calling o1.load.\n: java.io.IOException: disk full\n\tat x.y(Z)"


@pytest.mark.parametrize(
    ("error", "cause", "passes"),
    [
        (NOT_STARTED, "Python worker failed to connect back.", True),
        (REFUSED, "disk full", False),
        (REFUSED.replace("disk full", "Stream closed"), "Stream closed", True),  # to a daemon
        ("[STREAM_FAILED] Query x: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 2", "", False),
        ("Traceback\nValueError: no column\n\nat org.Spark", "ValueError: no column", False),
        ("", "", False),
    ],
)
def test_the_cause_is_told_in_one_line(error: str, cause: str, passes: bool) -> None:
    assert cause in first_cause(error)
    assert "An error occurred" not in first_cause(error)
    assert "\n" not in first_cause(error)
    assert may_pass(error) is passes


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], list[str]]:
    """Spark fails so often with this error where it makes a ring's plan; gives the ring of each."""
    made = ring.ring_frame
    monkeypatch.setattr(tries, "RESTARTS", Patience(first_s=0.01, longest_s=0.02, tries=3))

    def fail(error: str, times: int) -> list[str]:
        failed: list[str] = []

        def fail_or_make(*given: Any) -> Any:
            if len(failed) < times:
                failed.append(given[1].stream)
                raise RuntimeError(error)
            return made(*given)

        monkeypatch.setattr(ring, "ring_frame", fail_or_make)
        return failed

    return fail


def test_a_ring_whose_worker_comes_too_late_is_started_again(
    engine: Engine, failing: Callable[[str, int], list[str]]
) -> None:
    failed = failing(NOT_STARTED, 2)
    stream = ScriptedStream(engine, "S", "id INT")
    query = engine.register("SELECT id FROM S")
    stream.push([{"id": 1}, {"id": 2}])
    engine.await_idle(60)
    assert failed == ["S", "S"]
    assert sorted(query.results().column("id").to_pylist()) == [1, 2]


def test_a_plan_whose_worker_comes_too_late_refuses_nobody(
    engine: Engine, failing: Callable[[str, int], list[str]]
) -> None:
    """A running ring that learns to derive an attribute goes on with the new plan, or the old."""
    stream = ScriptedStream(engine, "S", "id INT, name STRING")
    first = engine.register("SELECT id FROM S WHERE lower(name) < 'c'")
    stream.push([{"id": 1, "name": "A"}])
    engine.await_idle(60)
    failed = failing(NOT_STARTED, 2)  # the new plan and the one it had
    second = engine.register("SELECT id FROM S WHERE reverse(name) = 'B'")
    assert len(engine.rings()) == 1
    stream.push([{"id": 2, "name": "B"}])
    engine.await_idle(60)
    assert failed == ["S", "S"]
    assert sorted(first.results().column("id").to_pylist()) == [1, 2]
    assert second.results().column("id").to_pylist() == [2]


@pytest.mark.parametrize(("error", "tries"), [(NOT_STARTED, 4), (REFUSED, 1)])
def test_a_ring_that_cannot_be_started_says_why(
    engine: Engine, failing: Callable[[str, int], list[str]], error: str, tries: int
) -> None:
    failed = failing(error, 100)
    ScriptedStream(engine, "S", "id INT")
    with pytest.raises(EngineError, match=first_cause(error)):
        engine.register("SELECT id FROM S")
    assert len(failed) == tries


class IdleRing:
    """What starting asks of a ring; it never starts."""

    id = composition_text = "r"
    parts: tuple[str, ...] = ()
    started = False


class Books(RunningRings):
    """Rings on the books, without Spark."""

    def __init__(self, *rings: Any) -> None:
        self.guard, self.starting, self.stopped = RLock(), RLock(), Event()
        self.open_rings = {ring.id: ring for ring in rings}
        self.idle_since, self._beginning, self._blocks = {}, set(), Blocks()
        self._tries = Tries(self.stopped)
        self._context = SimpleNamespace(bounded=False)  # type: ignore[assignment]
        self.pipelines = SimpleNamespace(wanted=list)  # type: ignore[assignment]


def test_an_engine_that_stops_does_not_go_on_starting_rings() -> None:
    class Stopping(Books):
        def start(self, ring: Any) -> None:
            self.stopped.set()
            raise RuntimeError("Spark is gone")

    rings = Stopping(IdleRing())
    starter = Thread(target=rings.start_pending, daemon=True)
    starter.start()
    starter.join(10)
    assert not starter.is_alive()
    rings.open_rings.clear()  # ends the loop if there is one


class Stream:
    """A plan that starts at once, and what it is then."""

    def __init__(self) -> None:
        self.isActive = True
        self.recentProgress: list[dict[str, Any]] = []

    def __getattr__(self, _: str) -> Any:  # writeStream and all that it is told
        return self if _ == "writeStream" else lambda *_, **__: self

    def stop(self) -> None:
        self.isActive = False

    def exception(self) -> None:
        return None


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Ring:
    """A ring without Spark."""
    monkeypatch.setattr(ring, "ring_settings", lambda *_: nullcontext())
    monkeypatch.setattr(ring, "scheduled_in", lambda *_: nullcontext())
    monkeypatch.setattr(ring, "ring_frame", lambda *_: Stream())
    nothing: Any = None
    pace = Pace(lambda: 0.0, lambda: 0.0)
    outlet = Dispatcher("r", (), nothing, nothing, nothing, nothing, nothing)
    return Ring("r", nothing, (), nothing, outlet, "/nowhere", pace, 0)


def begin(bare: Ring) -> None:
    nothing: Any = None
    launch = ring.Launch(nothing, {}, 0, {}, Generation())
    if bare.started:
        bare.renew(launch, lambda: None)
    else:
        bare.start(launch)


class Starting(Books):
    def start(self, ring: Any) -> None:
        begin(ring)


def test_a_ring_that_is_closed_while_it_starts_leaves_no_query_behind(
    bare: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, closing = Event(), Event()

    def plan(*_: object) -> Stream:
        planned.set()
        closing.wait(10)
        return Stream()

    monkeypatch.setattr(ring, "ring_frame", plan)
    starter, closer = Thread(target=begin, args=[bare]), Thread(target=bare.close)
    starter.start()
    planned.wait(10)
    closer.start()
    closer.join(0.2)
    closing.set()
    starter.join(10)
    closer.join(10)
    assert not bare.active
    begin(bare)
    assert not bare.active


def test_a_ring_that_nobody_started_again_after_a_stop_is_started(bare: Ring) -> None:
    rings = Starting(bare)
    begin(bare)
    assert not bare.stranded
    bare.pause()
    assert (bare.failure(), bare.stranded) == (None, True)
    assert rings.recover(bare) is None
    assert bare.active
    assert not bare.stranded


def test_a_ring_that_cannot_go_on_with_any_plan_is_given_up_with_the_error(
    bare: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = Starting(bare)
    begin(bare)

    def refuse(*_: object) -> None:
        raise RuntimeError(REFUSED)

    monkeypatch.setattr(ring, "ring_frame", refuse)
    with pytest.raises(RuntimeError):
        begin(bare)
    assert bare.stranded
    assert rings.recover(bare) == "disk full"
    with pytest.raises(EngineError, match="stands still"):
        bare.await_idle(time.monotonic() + 10)
    bare.close()
    assert not bare.stranded


def test_what_keeps_a_lost_queue_from_being_made_again_is_told(
    bare: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Losing(Starting):
        def _restore_queues(self, ring: Any) -> None:
            raise too_long_ago(3)

    monkeypatch.setattr(tries, "RESTARTS", Patience(first_s=0.01, longest_s=0.02, tries=3))
    begin(bare)
    monkeypatch.setattr(Stream, "exception", lambda _: "queue q is not on this node any more")
    bare._query.stop()  # type: ignore[union-attr]
    rings = Losing(bare)
    assert rings.recover(bare) is None  # it is not time yet
    time.sleep(0.02)
    error = rings.recover(bare)
    assert error is not None
    assert "too long ago" in error


class Trying(Books):
    """Starts as rings do: what may pass is tried again."""

    def start(self, ring: Any) -> None:
        self._tries.begin(ring, lambda: begin(ring))


def fail_in_passing(bare: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stream, "exception", lambda _: NOT_STARTED)
    bare._query.stop()  # type: ignore[union-attr]


def test_starts_in_vain_are_counted_apart_from_failures_of_a_running_ring(
    bare: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "RESTARTS", Patience(first_s=0.001, longest_s=0.001, tries=4))
    rings = Trying(bare)
    begin(bare)
    plans = iter([Stream(), Stream(), Stream(), None, None, Stream()])

    def plan(*_: object) -> Stream:
        if (found := next(plans)) is None:  # a restart goes back to the plan it had, in vain, too
            raise RuntimeError(NOT_STARTED)
        return found

    monkeypatch.setattr(ring, "ring_frame", plan)
    for _ in range(4):  # as often as it may
        fail_in_passing(bare, monkeypatch)
        while not bare.active:
            assert rings.recover(bare) is None
    fail_in_passing(bare, monkeypatch)
    assert rings.recover(bare) == "Python worker failed to connect back."


def test_nobody_waits_until_a_ring_that_failed_in_passing_is_due(
    bare: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "RESTARTS", Patience(first_s=300, longest_s=300, tries=1))
    rings = Starting(bare)
    begin(bare)
    fail_in_passing(bare, monkeypatch)
    before = time.monotonic()
    for _ in range(3):  # one failure, however often it is looked at
        assert rings.recover(bare) is None
    assert time.monotonic() - before < 100
    assert not bare.active
    assert bare.retry_at_s is not None
    bare.retry_at_s -= 300
    assert rings.recover(bare) is None
    assert bare.active
    fail_in_passing(bare, monkeypatch)
    assert rings.recover(bare) is not None


def manager_of(rings: RunningRings) -> RingManager:
    manager = RingManager.__new__(RingManager)
    manager.running = rings
    return manager


def test_the_supervisor_outlives_errors_and_what_telling_of_them_leads_to() -> None:
    told: list[str] = []

    def tell(error: str) -> None:
        told.append(error)
        raise OSError("disk full")

    manager = manager_of(Books())
    with manager._outliving(tell):
        raise KeyError("r")
    with manager._outliving():
        raise EngineError("nobody is told")
    assert told == ["KeyError: 'r'"]


def test_whoever_waits_for_a_ring_that_has_not_started_is_told_at_once(bare: Ring) -> None:
    with pytest.raises(EngineError, match="has not started"):
        manager_of(Books(bare))._await([bare], time.monotonic() + 20)


def test_a_failure_that_cannot_be_written_down_leaves_the_ring_on_the_books(bare: Ring) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    rings = Books(bare)
    rings._registry = SimpleNamespace(set_ring_state=refuse)  # type: ignore[assignment]
    with pytest.raises(OSError, match="disk full"):
        rings.fail(bare, "it had failed")
    assert rings.is_open(bare.id)


def test_nobody_waits_for_the_trouble_of_another_ring(bare: Ring) -> None:
    begin(bare)
    rings, done = Books(bare), Event()
    rings.generations = SimpleNamespace(is_due=lambda _: False)  # type: ignore[assignment]

    def register() -> None:
        rings.start_pending(of="r")
        rings.start_pending()
        done.set()

    with rings.starting:
        waiter = Thread(target=register)
        waiter.start()
        assert done.wait(20)
        for awaited in ("r", None):
            rings._beginning = {"r"}  # it goes on with another plan just now
            assert rings._is_awaited(awaited)
    waiter.join(10)


def test_a_ring_that_is_opened_for_nobody_is_idle_from_then_on(bare: Ring) -> None:
    rings = Books()
    rings._opener = SimpleNamespace(open=lambda *_: bare)  # type: ignore[assignment]
    rings._registry = SimpleNamespace(count_queries=lambda _: 0)  # type: ignore[assignment]
    rings.open(RingRow("r", "S", "", "", "running", None, 0))
    assert rings.idle_since.keys() == {"r"}


def test_a_plan_that_spark_refused_is_not_tried_again_before_queries_have_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing: Any = None
    kept: Any = SimpleNamespace(live_specs_since=lambda *_: [], frozen_at=lambda _: 0, thaw=id)
    generations = Generations(kept, kept, nothing, nothing, nothing)
    monkeypatch.setattr(generations, "_facts_of", lambda _: ModeFacts(True, 1, 8, 1e6, 0))
    settling: Any = SimpleNamespace(
        id="r",
        place="stage",
        composition=SimpleNamespace(kind="select", join=None),
        planned=Generation((), ((1, "id > 1"),)),
        generation=Generation(),
    )
    assert generations.may_settle(settling)
    assert generations.refused(settling) == []
    generations.sorted_out(settling)
    assert not generations.may_settle(settling)
    generations.expect(settling, SlotSpec(2, ()))
    assert generations.may_settle(settling)
