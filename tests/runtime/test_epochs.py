"""Epochs: decided once, replayed the same, counted once; new rings start where the others are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.control.disorder import Disorder, Rules
from penstock.control.ordering import OrderFacts
from penstock.control.ordering import plain as plain_order
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import UNKNOWN_US, DelayFacts, plain
from penstock.plan.codec import dumps, slot_from
from penstock.plan.specs import Composition, Output, SlotSpec, Term, WindowSpec
from penstock.runtime.epochs import EpochKeeper, Report, RingEpochs
from penstock.runtime.registry import Registry, RingRow
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
        return Work({"pieces": [[new[0]]]}, new[:1]) if new else None


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

    def register(self, ring: str) -> int:
        slot = self.registry.add_query(f"q{self.registry.next_slot()}", "", ring, "{}")
        self.registry.publish(slot, dumps(SlotSpec(slot, (Term(()),), WindowSpec(10, 10))))
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


def test_a_punctuation_that_came_with_tuples_goes_on_without_any(world: World) -> None:
    """A selection from a derived stream that feeds another one."""
    state = world.ring("r")
    state.composition, state.feeds = replace(state.composition, kind="select"), True
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
