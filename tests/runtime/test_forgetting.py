"""What ever was does not pile up: dropped queries go, and nobody who needs them misses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.control.punctuation import NEVER_US
from penstock.errors import EngineError
from penstock.plan.codec import dumps, slot_from
from penstock.plan.specs import SlotSpec, Term
from penstock.runtime import versions
from penstock.runtime.config import StageConfig
from penstock.runtime.epochs import EpochKeeper
from penstock.runtime.registry import EpochRow, Registry, RingRow
from penstock.runtime.registry import queries as query_tables
from penstock.runtime.rings.moves import merge_slots
from penstock.runtime.versions import UNUSED_S, KeptByRing

RINGS = ("plain", "join")
PARTS = {"plain": ["plain"], "join": ["join#0", "join#1"]}


@dataclass
class Slots:
    """What a worker has of a ring."""

    version: int = 0
    held: dict[int, SlotSpec] = field(default_factory=dict)

    def change(self, version: int, added: Sequence[SlotSpec], dropped: Sequence[int] = ()) -> None:
        self.held |= {spec.slot: spec for spec in added}
        for slot in dropped:
            self.held.pop(slot, None)
        self.version = version


class World:
    def __init__(self, path: Path) -> None:
        self.registry = Registry(path)
        self.keeper = EpochKeeper(self.registry, lambda *_: None, 1, lambda: 0)
        self.lives: dict[int, tuple[str, int, int | None]] = {}  # ring, added, dropped
        self.numbers = dict.fromkeys((p for parts in PARTS.values() for p in parts), 0)
        for ring in RINGS:
            self.registry.add_ring(RingRow(ring, "S", "{}", "{}", "running", None, 0))

    def register(self, ring: str) -> int:
        slot = self.registry.add_query(f"q{self.registry.next_slot()}", "", ring, "{}")
        inner = () if ring == "plain" else (SlotSpec(slot, ()), SlotSpec(slot, ()))
        spec = SlotSpec(slot, (Term(()),), inputs=inner)
        self.lives[slot] = ring, self.registry.publish(slot, dumps(spec)), None
        return slot

    def drop(self, slot: int) -> None:
        ring, added, _ = self.lives[slot]
        self.lives[slot] = ring, added, self.registry.drop_query(slot)

    def run(self, part: str) -> EpochRow:
        """An epoch of the present version."""
        self.numbers[part] += 1
        work = '{"pieces": []}'
        epoch = EpochRow(part, self.numbers[part], self.registry.version, NEVER_US, None, work)
        self.registry.add_epoch(epoch, [])
        return epoch

    def alive(self, ring: str, version: int) -> set[int]:
        return {
            slot
            for slot, (own, added, dropped) in self.lives.items()
            if own == ring and added <= version and (dropped is None or dropped > version)
        }

    def rows(self) -> int:
        return int(self.registry.read("SELECT count(*) FROM queries")[0][0])


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_tables, "KEPT_DROPPED", 3)
    monkeypatch.setattr(query_tables, "_PURGED_EVERY", 4)


@pytest.fixture
def world(forgetful: None, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "catalog.sqlite")
    yield made
    made.registry.close()


def _config(ring: str) -> StageConfig:
    return StageConfig(ring, "", "", "", 0, "")


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_every_worker_has_the_slots_of_its_epoch_however_long_it_slept(
    forgetful: None, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    world = World(Path(":memory:"))
    monkeypatch.setattr(
        versions,
        "ask",
        lambda _, __, m: world.keeper.slots(m["ring"], m["since"], m["version"]),
    )
    workers: list[KeptByRing[Slots]] = [KeptByRing(), KeptByRing()]
    last: dict[str, EpochRow] = {}
    for _ in range(data.draw(st.integers(5, 40))):
        ring = data.draw(st.sampled_from(RINGS))
        part = data.draw(st.sampled_from(PARTS[ring]))
        live = sorted(s for s, (_, _, dropped) in world.lives.items() if dropped is None)
        match data.draw(st.sampled_from(["register", "drop", "drop all", "run", "again"])):
            case "register":
                world.register(ring)
            case "drop" if live:
                world.drop(data.draw(st.sampled_from(live)))
            case "drop all":
                for slot in live:
                    world.drop(slot)
            case "run":
                last[part] = world.run(part)
        if part in last:  # or runs again after a crash
            worker = data.draw(st.sampled_from(workers))
            held = worker.at_version(_config(part), last[part].version, Slots).held
            assert held.keys() == world.alive(ring, last[part].version)
    world.registry.close()


def test_a_worker_that_slept_too_long_begins_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = list[dict[str, Any]]()

    def ask(_: object, __: str, m: dict[str, Any]) -> dict[str, Any]:
        answers.append(world.keeper.slots(m["ring"], m["since"], m["version"]))
        return answers[-1]

    monkeypatch.setattr(versions, "ask", ask)
    worker: KeptByRing[Slots] = KeptByRing()
    stays, goes = world.register("plain"), world.register("plain")
    held = worker.at_version(_config("plain"), world.run("plain").version, Slots).held
    assert held.keys() == {stays, goes}
    world.drop(goes)
    for _ in range(20):
        world.drop(world.register("plain"))
        epoch = world.run("plain")
    held = worker.at_version(_config("plain"), epoch.version, Slots).held
    assert held.keys() == {stays}
    assert answers[-1]["anew"]


def test_a_hundred_queries_that_came_and_went_leave_a_few_rows(world: World) -> None:
    world.register("plain")
    for _ in range(100):
        world.drop(world.register("plain"))
        world.run("plain")
    assert world.rows() <= 1 + 3 + 4
    assert len(world.registry.queries()) == 1
    [forgotten] = world.registry.read("SELECT queries FROM forgotten")
    assert forgotten[0] + world.rows() == 101


def test_where_a_forgotten_query_was_before_is_forgotten_too(world: World) -> None:
    slots = [world.register("plain") for _ in range(20)]
    merge_slots(world.registry, "plain", "join", slots)
    for slot in slots:
        world.drop(slot)
    known = world.registry.read("SELECT slot FROM queries")
    assert len(known) < 20
    assert world.registry.read("SELECT slot FROM moves ORDER BY slot") == known


def test_without_any_tuples_they_go_as_well(world: World) -> None:
    world.run("plain")
    for _ in range(100):
        world.drop(world.register("plain"))
    assert world.rows() <= 3 + 4


def test_late_tuples_of_forgotten_queries_still_count(world: World) -> None:
    for part in PARTS["plain"]:
        world.registry.set_progress(part, 0, {}, NEVER_US)
    slots = [world.register("plain") for _ in range(20)]
    world.registry.count_late(dict.fromkeys(slots, 5), dict.fromkeys(slots, 2))
    for slot in slots:
        world.drop(slot)
    assert world.rows() < 20
    assert world.registry.stream_counts("S")[2:] == (100, 40)


def test_who_holds_a_query_that_was_dropped_long_ago_is_told(world: World) -> None:
    slots = [world.register("plain") for _ in range(20)]
    for slot in slots:
        world.drop(slot)
    assert world.registry.query_by_slot(slots[-1]).state == "dropped"
    with pytest.raises(EngineError, match="dropped long ago"):
        world.registry.query_by_slot(slots[0])


def test_a_ring_that_is_gone_keeps_the_epoch_where_others_begin(world: World) -> None:
    for _ in range(50):
        epoch = world.run("plain")
    world.registry.set_progress("plain", epoch.number, {}, NEVER_US)
    world.registry.retire_ring("plain")
    assert world.registry.read("SELECT number FROM epochs") == [(epoch.number,)]


def test_a_worker_forgets_rings_that_it_had_no_task_of_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, asked = [0.0], list[dict[str, Any]]()

    def ask(_: object, __: str, message: dict[str, Any]) -> dict[str, Any]:
        asked.append(message)
        return {"added": [dumps(SlotSpec(1, ()))], "dropped": [], "anew": False}

    monkeypatch.setattr(versions, "ask", ask)
    kept: KeptByRing[Slots] = KeptByRing(lambda: now_s[0])
    for ring in ("a", "b"):
        kept.at_version(_config(ring), 1, Slots)
    for now_s[0] in (UNUSED_S - 1, UNUSED_S + 1):
        kept.at_version(_config("a"), 1, Slots)
    assert len(kept) == 1
    assert len(asked) == 2
    assert slot_from(dumps(kept.at_version(_config("b"), 1, Slots).held[1])).slot == 1
    assert len(asked) == 3
