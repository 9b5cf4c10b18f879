"""Epochs: decided once, replayed the same, counted once; new rings start where the others are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.closing import LEARNING, with_lag
from penstock.control.disorder import Disorder, Rules, nothing_seen
from penstock.control.ordering import OrderFacts
from penstock.control.ordering import plain as plain_order
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import UNKNOWN_US, DelayFacts, plain
from penstock.plan.codec import dumps, slot_from
from penstock.plan.specs import Composition, Output, SlotSpec, Term, WindowSpec
from penstock.runtime.epochs import EpochKeeper, Report, RingEpochs
from penstock.runtime.registry import EpochRow, Registry, RingRow
from penstock.runtime.sources.planner import Horizon, Work

SECOND = 1_000_000
DAY_US = 86_400 * SECOND


class Items:
    """A source of numbered items, one per micro-batch."""

    remembers_items = True

    def __init__(self) -> None:
        self.there: list[str] = []

    def next_work(
        self,
        done: dict[str, Any],
        consumed: set[str],
        parallelism: int,
        horizon: Horizon | None = None,
    ) -> Work | None:
        new = [item for item in self.there if item not in consumed]
        new = new if horizon is None else [item for item in new if item in horizon.items]
        return Work({"pieces": [[new[0]]]}, new[:1]) if new else None

    def is_near(self, done: dict[str, Any], consumed: set[str], horizon: Horizon) -> bool:
        return len(horizon.items - consumed) <= 1


def _composition(event_time: str = "ts") -> Composition:
    outputs = (Output("n", "__a0"),)
    return Composition("window", "S", (), (), outputs, event_time, preaggregated=True)


class World:
    def __init__(self, path: Path) -> None:
        self.registry = Registry(path / "catalog.sqlite")
        self.kept: list[tuple[int, int]] = []
        self.keeper = EpochKeeper(
            self.registry,
            lambda _, epoch, reports: self.kept.append((epoch, len(reports))),
            2,
            lambda: 0,
        )
        self.source = Items()

    def ring(self, name: str, new: bool = True, event_time: str = "ts") -> RingEpochs:
        composition = _composition(event_time)
        if new:
            self.registry.add_ring(RingRow(name, "S", dumps(composition), "{}", "running", None, 0))
            self.registry.inherit_position(name, "S", event_time)
        state = RingEpochs(
            name, composition, self.source, Disorder(Rules("fixed")), DAY_US, hold=False
        )
        self.keeper.open(state)
        return state

    def join(self, new: bool = True) -> list[RingEpochs]:
        """The two inputs of a join, opened for the first time or again."""
        inputs = [self.ring(name, new) for name in ("j#0", "j#1")]
        for state in inputs:
            state.siblings = inputs
        return inputs

    def register(self, ring: str, inputs: int = 0) -> int:
        slot = self.registry.add_query(f"q{self.registry.next_slot()}", "", ring, "{}")
        spec = SlotSpec(slot, (Term(()),), WindowSpec(10, 10))
        self.registry.publish(slot, dumps(replace(spec, inputs=(spec,) * inputs)))
        return slot

    def report(
        self,
        ring: str,
        number: int,
        part: int,
        event_us: int,
        late: int = 0,
        lost: int = 0,
        punctuation_us: int = NEVER_US,
    ) -> None:
        times = {"clock_us": event_us, "event_us": event_us, "last_event_us": event_us}
        facts = plain(DelayFacts(1, **times))
        calls = self.keeper.calls()
        whole = {"ring": ring, "number": number, "part": part}
        calls["report"](
            {
                **whole,
                "facts": facts,
                "sources": {},
                "order": plain_order(OrderFacts(tuples=1)),
                "late": {"1": late},
                "lost": {"1": lost},
                "unplaced": 0,
                "punctuation_us": punctuation_us,
                "pieces": 0,
            },
            [],
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.registry.close()


def test_an_epoch_is_decided_once_and_then_stays(world: World) -> None:
    world.ring("r")
    world.source.there = ["a", "b"]
    assert world.keeper.plan("r", 0) == 1
    world.register("r")  # after the decision: not in this epoch
    assert world.keeper.plan("r", 0) == 1
    first = world.keeper.epoch("r", 1)
    assert (first["version"], first["pieces"]) == (0, [["a"]])
    assert world.keeper.plan("r", 1) == 2
    assert world.keeper.epoch("r", 2)["version"] == 1
    assert world.keeper.plan("r", 2) == 2  # nothing left


def test_a_restarted_keeper_gives_the_same_answers(world: World) -> None:
    world.ring("r")
    world.source.there = ["a", "b"]
    world.keeper.plan("r", 0)
    world.report("r", 1, 0, 5 * SECOND)
    world.keeper.absorb("r")
    world.keeper.plan("r", 1)
    second = world.keeper.epoch("r", 2)
    again = World.__new__(World)
    again.registry, again.source, again.kept = world.registry, world.source, []
    again.keeper = EpochKeeper(world.registry, lambda *_: None, 2, lambda: 0)
    state = again.ring("r", new=False)
    assert again.keeper.plan("r", 0) == 1
    assert again.keeper.epoch("r", 2) == second
    assert state.disorder.punctuation_us == 5 * SECOND
    assert again.keeper.plan("r", 2) == 2


@pytest.mark.parametrize(
    ("kind", "feeds"), [("select", True), ("window", False), ("events", False)]
)
def test_a_punctuation_that_came_with_tuples_goes_on_without_any(
    kind: str, feeds: bool, world: World
) -> None:
    """Of a derived stream: to one that a selection feeds, or to windows and events."""
    state = world.ring("r")
    state.composition, state.feeds = replace(state.composition, kind=kind), feeds
    state.disorder = Disorder(Rules("upstream"))
    world.source.there = ["a"]
    assert world.keeper.plan("r", 0) == 1
    world.report("r", 1, 0, 9 * SECOND, punctuation_us=5 * SECOND)
    world.keeper.absorb("r")
    assert world.keeper.told_us("r") == NEVER_US
    assert world.keeper.plan("r", 1) == 2
    assert world.keeper.epoch("r", 2)["pieces"] == []
    assert world.keeper.told_us("r") == 5 * SECOND
    assert world.keeper.plan("r", 2) == 2


def test_punctuation_that_came_later_is_not_told_with_what_runs_again(world: World) -> None:
    inputs = world.join()
    world.source.there = ["a", "b"]
    for number in (1, 2):
        for state in inputs:
            state.disorder.hold_at(number * SECOND)
            world.keeper.plan(state.ring, number - 1)
    assert world.keeper.told_us("j#0") == 2 * SECOND
    assert world.keeper.told_us("j#0", {"j#0": 1, "j#1": 1}) == SECOND
    assert world.keeper.told_us("j#0", {"j#0": 1, "j#1": 2}) == 2 * SECOND


def test_windows_of_sources_close_again_when_they_closed(world: World) -> None:
    state = world.ring("r")
    state.feeds, state.disorder = True, Disorder(Rules("fixed", per=True))
    world.source.there = ["a", "b"]
    world.keeper.plan("r", 0)
    first = world.keeper.epoch("r", 1)["sources"]
    state.disorder.others = with_lag(LEARNING, 7, 0)
    assert world.keeper.epoch("r", 1)["sources"] == first
    world.keeper.plan("r", 1)
    assert world.keeper.epoch("r", 2)["sources"] != first


def test_inputs_of_a_join_are_where_tuples_have_brought_any_of_them(world: World) -> None:
    inputs = [world.ring("j#0"), world.ring("j#1")]
    for state in inputs:
        state.siblings, state.eager = inputs, True
    world.source.there = ["a"]
    for state in inputs:
        assert world.keeper.plan(state.ring, 0) == 1
        world.report(state.ring, 1, 0, 5 * SECOND)
        world.keeper.absorb(state.ring)
    for state in inputs:
        assert world.keeper.plan(state.ring, 1) == 1  # nothing waits for the punctuation
    assert world.keeper.punctuation("j#0") == NEVER_US
    world.source.there = ["a", "b"]
    assert world.keeper.plan("j#0", 1) == 2
    assert world.keeper.punctuation("j#1") == 5 * SECOND
    again = world.ring("j#1", new=False)
    again.disorder = Disorder(Rules("fixed"))
    again.siblings = [inputs[0], again]
    world.keeper.open(again)
    assert again.disorder.punctuation_us == 5 * SECOND


def test_inputs_of_a_join_have_one_version_in_a_micro_batch(world: World) -> None:
    inputs = world.join()
    world.source.there = ["a"]
    assert world.keeper.plan("j#0", 0) == 1
    world.register("j", inputs=3)  # between the two
    assert world.keeper.plan("j#1", 0) == 1
    assert [world.keeper.epoch(s.ring, 1)["version"] for s in inputs] == [0, 0]
    world.source.there = ["a", "b"]
    for state in inputs:
        assert world.keeper.plan(state.ring, 1) == 2
    assert [world.keeper.epoch(s.ring, 2)["version"] for s in inputs] == [1, 1]
    assert world.keeper.plan("j#0", 2) == 2  # nothing to read: others need not go by it
    world.register("j", inputs=3)
    world.source.there = ["a", "b", "c"]
    assert world.keeper.plan("j#1", 2) == 3
    assert world.keeper.epoch("j#1", 3)["version"] == 2


def test_a_join_that_ended_between_its_inputs_keeps_to_its_version(world: World) -> None:
    inputs = [world.ring("j#0"), world.ring("j#1")]
    world.source.there = ["a"]
    world.keeper.plan("j#0", 0)
    world.register("j", inputs=3)
    again = [world.ring(state.ring, new=False) for state in inputs]
    for state in again:
        state.siblings = again
        assert world.keeper.plan(state.ring, 0) == 1
    assert [world.keeper.epoch(s.ring, 1)["version"] for s in inputs] == [0, 0]


def test_a_join_keeps_to_the_version_of_an_input_that_is_asked_last(world: World) -> None:
    """The first one had nothing to read when the micro-batch was begun, and has now."""
    inputs = [world.ring("j#0"), world.ring("j#1")]
    inputs[0].planner = Items()
    for state in inputs:
        state.siblings = inputs
    world.source.there = ["b"]
    assert [world.keeper.plan(s.ring, 0) for s in inputs] == [0, 1]
    world.register("j", inputs=2)  # Spark has logged nothing yet
    full = Items()
    full.there = ["a", "more"]
    inputs[0].planner = full
    assert [world.keeper.plan(s.ring, 0) for s in inputs] == [1, 1]
    assert [world.keeper.epoch(s.ring, 1)["version"] for s in inputs] == [0, 0]
    assert [world.keeper.plan(s.ring, 1) for s in inputs] == [2, 1]
    assert world.keeper.epoch("j#0", 2)["version"] == 1


def test_a_join_that_was_killed_keeps_to_the_version_of_an_input_that_is_asked_last(
    world: World,
) -> None:
    inputs = [world.ring("j#0"), world.ring("j#1")]
    inputs[0].planner = Items()
    for state in inputs:
        state.siblings = inputs
    world.source.there = ["b"]
    assert [world.keeper.plan(s.ring, 0) for s in inputs] == [0, 1]
    world.register("j", inputs=2)
    again = world.join(new=False)
    assert [world.keeper.plan(s.ring, 0) for s in again] == [1, 1]
    assert [world.keeper.epoch(s.ring, 1)["version"] for s in again] == [0, 0]


def test_what_spark_has_logged_binds_no_other_micro_batch_of_a_join(world: World) -> None:
    world.join()
    world.source.there = ["b"]
    world.keeper.plan("j#1", 0)
    world.register("j", inputs=2)
    again = world.join(new=False)
    again[1].logged = 1  # killed after that
    assert [world.keeper.plan(s.ring, n) for n, s in enumerate(again)] == [1, 1]
    assert world.keeper.epoch("j#0", 1)["version"] == 1


def test_a_dataframe_keeps_to_the_version_of_a_micro_batch_that_runs_again(world: World) -> None:
    world.join()
    world.source.there = ["a"]
    world.keeper.plan("j#0", 0)
    world.register("j", inputs=2)  # killed before a task of the DataFrame has asked
    again = world.join(new=False)
    again[1].planner = None
    assert world.keeper.epoch("j#0", 1)["version"] == 0  # nobody plans what is replayed
    assert world.keeper.epoch("j#1", 7)["version"] == 0
    world.source.there = ["a", "b"]
    world.keeper.plan("j#0", 1)
    assert world.keeper.epoch("j#0", 2)["version"] == 1
    assert world.keeper.epoch("j#1", 8)["version"] == 1


def test_dataframes_of_a_join_have_one_version_in_a_micro_batch(world: World) -> None:
    inputs = [world.ring("j#0"), world.ring("j#1"), world.ring("j#2")]
    for state in inputs:
        state.siblings = inputs
    inputs[1].planner = inputs[2].planner = None
    world.source.there = ["a"]
    world.keeper.plan("j#0", 0)
    world.register("j", inputs=3)
    assert [world.keeper.epoch(f"j#{n}", 7 if n else 1)["version"] for n in range(3)] == [0] * 3
    world.keeper.plan("j#0", 1)  # nothing to read
    assert world.keeper.epoch("j#2", 8)["version"] == 1
    world.register("j", inputs=3)
    assert world.keeper.epoch("j#1", 8)["version"] == 1
    assert world.keeper.epoch("j#1", 9)["version"] == 2


def test_a_replayed_epoch_is_counted_once(world: World) -> None:
    world.ring("r")
    slot = world.register("r")
    world.source.there = ["a"]
    world.keeper.plan("r", 0)
    for _ in range(2):
        world.report("r", 1, 0, SECOND, late=3, lost=1)
        world.report("r", 1, 0, SECOND, late=3, lost=1)  # a task that was tried twice
        world.report("r", 1, 1, 2 * SECOND, late=4, lost=2)
        world.keeper.absorb("r")
    counted = world.registry.query_by_slot(slot)
    assert (counted.late, counted.lost) == (7, 3)
    assert world.kept == [(1, 2)]


def test_a_window_query_starts_after_what_its_ring_has_seen(world: World) -> None:
    world.ring("r")
    first = world.register("r")
    world.source.there = ["a", "b"]
    world.keeper.plan("r", 0)
    world.report("r", 1, 0, 7 * SECOND)
    second = world.register("r")  # while the first micro-batch runs
    world.keeper.absorb("r")
    world.keeper.plan("r", 1)
    starts = [slot_from(world.registry.query_by_slot(s).spec).from_us for s in (first, second)]
    assert starts == [None, 7 * SECOND + 1]


def test_a_new_ring_starts_where_the_others_have_counted(world: World) -> None:
    world.ring("r")
    world.source.there = ["a", "b", "c"]
    world.keeper.plan("r", 0)
    world.report("r", 1, 0, 7 * SECOND)
    world.keeper.absorb("r")
    world.keeper.plan("r", 1)  # b is being read, not counted yet
    state = world.ring("late")
    assert state.consumed == {"a"}
    assert (state.disorder.event_us, state.disorder.rows) == (7 * SECOND, 0)
    assert state.disorder.punctuation_us == NEVER_US
    assert world.keeper.plan("late", 0) == 1
    assert world.keeper.epoch("late", 1)["pieces"] == [["b"]]


def test_times_of_another_attribute_are_not_inherited(world: World) -> None:
    world.ring("r", event_time="other")
    world.source.there = ["a"]
    world.keeper.plan("r", 0)
    world.report("r", 1, 0, 7 * SECOND)
    world.keeper.absorb("r")
    state = world.ring("new", event_time="ts")
    assert state.disorder.event_us == UNKNOWN_US
    assert state.consumed == {"a"}


def test_a_stream_that_takes_a_dropped_ones_name_starts_anew(world: World) -> None:
    world.ring("r")
    world.source.there = ["a"]
    world.keeper.plan("r", 0)
    world.report("r", 1, 0, 7 * SECOND)
    world.keeper.absorb("r")
    world.registry.drop_stream("S")
    state = world.ring("new")
    assert (state.consumed, state.disorder.event_us) == (set(), UNKNOWN_US)
    assert state.disorder.punctuation_us == NEVER_US


def test_rows_come_in_pieces_and_a_second_try_replaces_the_first(world: World) -> None:
    state = world.ring("r")
    calls = world.keeper.calls()
    whole = {"ring": "r", "number": 1, "part": 0}
    for position in range(3):
        rows = {**whole, "kind": "bad", "piece": "f#0", "position": position}
        calls["rows"](rows, [bytes([position])])
    calls["rows"]({**whole, "kind": "bad", "piece": "f#0", "position": 0}, [b"again"])
    seen = {"facts": plain(DelayFacts(1)), "sources": {}, "order": plain_order(OrderFacts())}
    counts = {"late": {}, "lost": {}, "unplaced": 0, "pieces": 2, "punctuation_us": NEVER_US}
    calls["report"]({**whole, **seen, **counts}, [])
    report: Report = state.reports[1][0]
    assert [report.rows[k].body for k in sorted(report.rows)] == [b"again", b"\x01"]


def test_a_flush_closes_the_last_window_once_nothing_is_left(world: World) -> None:
    state = world.ring("r")
    world.register("r")
    state.hold = True
    world.source.there = ["a"]
    world.keeper.plan("r", 0)
    world.report("r", 1, 0, 7 * SECOND)
    world.keeper.absorb("r")
    assert world.keeper.plan("r", 1) == 1  # held: nothing is late before the end
    world.keeper.flush(["r"], True)
    assert world.keeper.plan("r", 1) == 2
    assert world.keeper.epoch("r", 2)["punctuation_us"] > 7 * SECOND + 10
    assert world.keeper.plan("r", 2) == 2


def test_times_are_trusted_at_least_ten_ranges_from_the_clock(world: World) -> None:
    world.ring("r")
    world.source.there = ["a", "b"]
    world.keeper.plan("r", 0)
    assert world.keeper.epoch("r", 1)["trust_us"] == DAY_US
    slot = world.registry.add_query("weekly", "", "r", "{}")
    week = WindowSpec(7 * DAY_US, DAY_US)
    world.registry.publish(slot, dumps(SlotSpec(slot, (Term(()),), week)))
    world.keeper.plan("r", 1)
    assert world.keeper.epoch("r", 2)["trust_us"] == 70 * DAY_US
    assert world.keeper.epoch("r", 1)["trust_us"] == DAY_US  # as it was decided


def test_frozen_epochs_keep_their_version_until_they_thaw(world: World) -> None:
    world.ring("r")
    world.register("r")
    world.keeper.freeze("r")
    version = world.registry.version
    world.register("r")
    assert world.keeper.frozen_at("r") == version
    assert world.keeper.epoch("r", 1)["version"] == version
    world.keeper.thaw("r")
    assert world.keeper.epoch("r", 1)["version"] == version  # decided is decided
    assert world.keeper.epoch("r", 2)["version"] == world.registry.version > version


ENDED = st.tuples(
    st.sampled_from(["ts", "other"]),
    st.sets(st.sampled_from("abcdef")),  # read and counted
    st.sets(st.sampled_from("xyz")),  # read and not counted
    st.integers(0, 99),  # position
    st.integers(1, 99),  # latest event time
    st.booleans(),  # whether it is gone
    st.booleans(),  # whether its query is remembered
)


def _registry_of(rings: list[tuple[Any, ...]], retired: bool) -> Registry:
    registry = Registry(Path(":memory:"))
    for n, (event_time, read, begun, position, event_s, gone, known) in enumerate(rings):
        name, through = f"r{n}", n % 3 + 1
        text = dumps(_composition(event_time))
        registry.add_ring(RingRow(name, "S", text, "{}", "running", None, 0))
        if known or not gone:
            registry.add_query(f"q{n}", "", name, "{}")
        else:
            with registry.change() as db:
                db.execute("INSERT INTO forgotten VALUES (?, 1, ?, ?)", (name, n, 2 * n))
        for number, items in ((1, read), (through, []), (through + 1, begun)):
            if registry.epoch(name, number) is None:
                work = json.dumps({"through": position})
                registry.add_epoch(EpochRow(name, number, 1, 0, None, work), sorted(items))
        facts = {**nothing_seen(), "event_us": event_s * SECOND, "rows": 3 * n, "untimed": 1}
        registry.set_progress(name, through, {**facts, "unplaced": n % 4}, 0)
        if retired and gone:
            registry.retire_ring(name)
            registry.forget_rings()
    return registry


@settings(deadline=None, max_examples=60)
@given(st.lists(ENDED, max_size=8))
def test_rings_begin_the_same_whatever_is_left_of_those_that_are_gone(
    rings: list[tuple[Any, ...]],
) -> None:
    found = []
    for retired in (False, True):
        registry = _registry_of(rings, retired)
        for event_time in ("ts", "other"):
            registry.add_ring(RingRow(event_time, "S", "{}", "{}", "running", None, 0))
            registry.inherit_position(event_time, "S", event_time)
            with registry.change() as db:  # the next one is not to begin where this one does
                db.execute("UPDATE rings SET stream = '-' WHERE id = ?", (event_time,))
            epoch, progress = registry.last_epoch(event_time), registry.progress(event_time)
            found.append((registry.consumed(event_time), epoch, progress))
        found.append((set(), None, registry.stream_counts("S")))
        registry.close()
    assert found[:3] == found[3:]


def test_a_hundred_rings_that_came_and_went_leave_one_position(world: World) -> None:
    for n in range(100):
        ring = f"r{n}"
        world.ring(ring)
        world.source.there.append(f"item {n}")
        number = world.keeper.plan(ring, 0 if n == 0 else world.registry.last_epoch(ring).number)
        world.report(ring, number, 0, n * SECOND)
        world.keeper.absorb(ring)
        world.keeper.close(ring)
        world.registry.retire_ring(ring)
        gone = world.registry.forget_rings()
        assert gone == ([f"r{n - 1}"] if n else [])
    for table, rows in (("rings", 1), ("progress", 1), ("epochs", 1), ("consumed", 100)):
        assert world.registry.read(f"SELECT count(*) FROM {table}") == [(rows,)]
    assert world.ring("new").consumed == set(world.source.there)


@pytest.mark.parametrize("steps", range(6))
def test_what_rings_that_are_gone_have_read_is_put_together_in_steps(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is cut short, a new ring begins the same, and the next one ends it."""
    monkeypatch.setattr("penstock.runtime.registry.retired._AT_ONCE", 2)
    read = {"a": set("uvwxy"), "b": set("xyz")}
    registry = Registry(Path(":memory:"))
    for name, items in read.items():
        text = dumps(_composition("ts"))
        registry.add_ring(RingRow(name, "S", text, "{}", "running", None, 0))
        work = json.dumps({"through": len(items)})
        registry.add_epoch(EpochRow(name, 1, 1, 0, None, work), sorted(items))
        registry.set_progress(name, 1, nothing_seen(), 0)
        registry.retire_ring(name)
    assert {name: registry.consumed(name) for name in read} == read  # nobody has waited for that
    for _ in range(steps):
        registry._gather_some()
    registry.add_ring(RingRow("new", "S", "{}", "{}", "running", None, 0))
    registry.inherit_position("new", "S", None)
    assert registry.consumed("new") == set("uvwxyz")
    assert json.loads(registry.last_epoch("new").work)["through"] == 5
    assert registry.forget_rings() == ["a"]
    assert registry.consumed("b") == set("uvwxyz")
    registry.close()


def test_results_of_a_ring_that_is_gone_stay_while_a_query_is_remembered(world: World) -> None:
    world.ring("a")
    world.ring("b")
    slot = world.register("a")
    for ring in ("a", "b"):
        world.registry.set_progress(ring, 0, {}, NEVER_US)
        world.registry.retire_ring(ring)
    assert world.registry.forget_rings() == []
    with world.registry.change() as db:  # it went on in another ring
        db.execute("UPDATE queries SET ring = 'c' WHERE slot = ?", (slot,))
        db.execute("INSERT INTO moves VALUES (?, 'a', 1, 0)", (slot,))
    assert world.registry.forget_rings() == []
    with world.registry.change() as db:
        db.execute("DELETE FROM moves")
    assert world.registry.forget_rings() == ["a"]


def read(world: World, ring: str, number: int) -> None:
    """A micro-batch of one item, from its plan to what is reported of it."""
    assert world.keeper.plan(ring, number - 1) == number
    world.report(ring, number, 0, number)
    world.keeper.absorb(ring)


def test_rings_are_held_until_they_have_read_the_same(world: World) -> None:
    for name in "ab":
        world.ring(name).hold = True  # no punctuation: epochs are items
    world.source.there = ["1", "2"]
    read(world, "a", 0)
    horizon = world.keeper.align(["a", "b"])
    assert horizon is not None
    assert world.keeper.plan("a", 0) == 0
    assert not world.keeper.if_aligned(["a", "b"], horizon, lambda: True)
    read(world, "b", 0)
    assert world.keeper.plan("b", 0) == 0
    assert world.keeper.if_aligned(["a", "b"], horizon, lambda: True)
    world.keeper.release(["a", "b"], horizon)
    assert world.keeper.plan("a", 0) == 1


def test_nobody_is_held_for_a_ring_that_is_far_behind(world: World) -> None:
    for name in "ab":
        world.ring(name).hold = True  # no punctuation: epochs are items
    world.source.there = ["1", "2", "3"]
    read(world, "a", 0)
    read(world, "a", 1)
    assert world.keeper.align(["a", "b"]) is None
    read(world, "a", 2)


def test_a_ring_that_was_opened_again_is_not_where_the_other_is_held(world: World) -> None:
    """Nothing keeps it from reading on: with nothing left, it may have read more than the other."""
    for name in "ab":
        world.ring(name).hold = True  # no punctuation: epochs are items
    world.source.there = ["1"]
    read(world, "a", 0)
    read(world, "b", 0)
    horizon = world.keeper.align(["a", "b"])
    assert horizon is not None
    world.keeper.close("b")
    assert not world.keeper.if_aligned(["a", "b"], horizon, lambda: True)
    world.ring("b", new=False).hold = True
    world.source.there = ["1", "2"]
    read(world, "b", 1)
    assert not world.keeper.if_aligned(["a", "b"], horizon, lambda: True)
    second = world.keeper.align(["a", "b"])
    assert second is not None
    world.keeper.release(["a", "b"], horizon)  # somebody else's
    read(world, "a", 1)
    assert world.keeper.if_aligned(["a", "b"], second, lambda: True)
