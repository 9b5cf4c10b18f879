"""Rings that go back to an earlier micro-batch: those after it are what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.test_epochs import Items, World

from penstock.runtime.derived.progress import batches_after, epoch_of, roll_back, take_up
from penstock.runtime.derived.replaying import as_noted

JOIN = "j"


class AskedJoin:
    """A join of two inputs as Spark runs it: it asks what is next, logs it, runs it, commits it."""

    def __init__(self, world: World, checkpoint: Path) -> None:
        self.world, self.checkpoint = world, checkpoint
        self.round = self.punctuation_us = 0
        calls = world.keeper.calls() | {
            "round": lambda _m, _p: self.round,
            "punctuation": lambda _m, _p: self.punctuation_us,
        }
        self.calls = as_noted(calls, lambda _: checkpoint)
        self.inputs = [world.ring(f"{JOIN}#{n}") for n in range(2)]
        self.sources = [Items(), Items()]
        for state, source in zip(self.inputs, self.sources, strict=True):
            state.planner, state.siblings = source, self.inputs

    def begin(self) -> list[dict[str, Any]]:
        """The offsets of the next micro-batch."""
        last = max(self._numbers("offsets"), default=-1)
        if last not in self._numbers("commits") and last >= 0:
            return self._logged(last)
        start = self._logged(last)[0]["epochs"] if last >= 0 else [{"epoch": 0}, {"epoch": 0}]
        epochs = [
            {"epoch": self._ask("plan", state.ring, start=at["epoch"]), "input": n}
            for n, (state, at) in enumerate(zip(self.inputs, start, strict=True))
        ]
        round_, told_us = self._ask("round", JOIN, round=0), self._ask("punctuation", JOIN)
        offsets = [{"epochs": epochs, "round": round_}, {"punctuation_us": told_us}]
        self._log("offsets", last + 1, "\n".join(["v1", "{}", *map(json.dumps, offsets)]))
        return offsets

    def run(self) -> list[dict[str, Any]]:
        offsets = self.begin()
        self._log("commits", max(self._numbers("offsets")), "v1")
        return offsets

    def _ask(self, call: str, ring: str, **message: int) -> int:
        return int(self.calls[call]({"ring": ring, **message}, []))

    def _log(self, log: str, batch: int, text: str) -> None:
        (self.checkpoint / log).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / log / str(batch)).write_text(text)

    def _logged(self, batch: int) -> list[dict[str, Any]]:
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        return [json.loads(line) for line in text.splitlines()[2:]]

    def _numbers(self, log: str) -> list[int]:
        return [int(path.name) for path in (self.checkpoint / log).glob("*")]


@pytest.fixture
def join(tmp_path: Path) -> AskedJoin:
    return AskedJoin(World(tmp_path), tmp_path / "checkpoint")


def _five(join: AskedJoin) -> list[list[dict[str, Any]]]:
    """One input after the other has something; the fourth only closes windows, the fifth joins
    what waits."""
    first, second = join.sources
    found = []
    for source, item, told_us, round_ in (
        (first, "a1", 0, 0),
        (second, "b1", 5, 0),
        (first, "a2", 9, 0),
        (None, "", 9, 0),
        (None, "", 9, 1),
    ):
        if source is not None:
            source.there.append(item)
        join.punctuation_us, join.round = told_us, round_
        found.append(join.run())
    return found


@pytest.mark.parametrize("batch", range(-1, 4))
def test_micro_batches_after_it_have_the_same_parts(join: AskedJoin, batch: int) -> None:
    ran = _five(join)
    join.sources[1].there += ["b2", "b3"]  # since then
    join.punctuation_us = join.round = 50
    roll_back(join.checkpoint, batch)
    assert batches_after(join.checkpoint, batch) == 4 - batch
    take_up(join.checkpoint)
    assert [join.run() for _ in ran[batch + 1 :]] == ran[batch + 1 :]
    after = join.run()
    assert [epoch["epoch"] for epoch in after[0]["epochs"]] == [2, 2]
    assert (after[0]["round"], after[1]["punctuation_us"]) == (50, 50)
    assert not (join.checkpoint / "again").exists()


@pytest.mark.parametrize("done", range(4))
def test_going_back_goes_on_after_any_end(join: AskedJoin, done: int) -> None:
    """Killed before or after Spark has logged a micro-batch, and sent back once more."""
    ran = _five(join)
    join.punctuation_us = join.round = 50
    roll_back(join.checkpoint, 0)
    for _ in range(2):
        take_up(join.checkpoint)
        assert [join.run() for _ in range(done)] == ran[1 : done + 1]
        join.begin()
        take_up(join.checkpoint)
        assert join.run() == ran[done + 1]
        roll_back(join.checkpoint, 0)
    take_up(join.checkpoint)
    assert [join.run() for _ in range(4)] == ran[1:]


def test_only_so_many_are_as_they_were_as_can_be(join: AskedJoin) -> None:
    """Spark reads a DataFrame itself, and all that is there."""
    ran = _five(join)
    join.punctuation_us = 50
    roll_back(join.checkpoint, 1, most=1)
    take_up(join.checkpoint)
    assert join.run() == ran[2]
    assert join.run()[1]["punctuation_us"] == 50


def test_the_beginning_has_no_state(join: AskedJoin) -> None:
    _five(join)
    (join.checkpoint / "state").mkdir()
    (join.checkpoint / "metadata").touch()  # Spark wants it where there are offsets
    roll_back(join.checkpoint, -1)
    take_up(join.checkpoint)
    assert not (join.checkpoint / "state").exists()
    assert (join.checkpoint / "metadata").exists()
    assert epoch_of(join.checkpoint, 0, 0) == 1
