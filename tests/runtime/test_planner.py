"""What is read next: how far an endless generator is at a time, and how far rings are apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.runtime.sources.files import FileOptions
from penstock.runtime.sources.generator import TICK_US, GeneratorOptions
from penstock.runtime.sources.planner import CATCH_UP_US, FilePlanner, GeneratorPlanner, Horizon
from penstock.testing import ManualClock

START_US = 1_704_067_200_000_000
SECOND = 1_000_000


def through(behind_us: int, done_ticks: int) -> int | None:
    """Ticks read by the first micro-batch of a planner that begins so long after their time."""
    clock = ManualClock(START_US + done_ticks * TICK_US + behind_us)
    planner = GeneratorPlanner(GeneratorOptions(start_us=START_US), clock, 10**9)
    work = planner.next_work({"through": done_ticks}, set(), 1)
    return None if work is None else work.body["through"] - done_ticks


@pytest.mark.parametrize("done_ticks", [0, 70])
def test_a_stream_that_is_hardly_behind_catches_up_with_the_clock(done_ticks: int) -> None:
    assert through(9 * SECOND, done_ticks) == 9 * SECOND // TICK_US
    assert through(CATCH_UP_US, done_ticks) == CATCH_UP_US // TICK_US


@pytest.mark.parametrize("behind_us", [CATCH_UP_US + 1, 10**15, -SECOND])
def test_any_other_goes_on_where_it_stopped(behind_us: int) -> None:
    assert through(behind_us, 70) is None
    clock = ManualClock(START_US + behind_us)
    planner = GeneratorPlanner(GeneratorOptions(start_us=START_US), clock, 10**9)
    assert planner.next_work({}, set(), 1) is None
    clock.advance(1)
    work = planner.next_work({}, set(), 1)
    assert work is not None
    assert work.body["through"] == SECOND // TICK_US


def test_a_horizon_that_one_micro_batch_reaches_is_near(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.json" for number in range(5)]
    for file in files:
        file.write_text("{}")
    paths = [str(file) for file in files]
    planner = FilePlanner(FileOptions(str(tmp_path), "json", max_files_per_batch=2))
    assert planner.is_near({}, set(), Horizon(frozenset(paths[:2])))
    assert not planner.is_near({}, set(), Horizon(frozenset(paths[:3])))
    assert planner.is_near({}, set(paths[:1]), Horizon(frozenset(paths[:3])))
    ticks = GeneratorPlanner(GeneratorOptions(rate=1000), ManualClock(), 5000)
    step = 5 * SECOND // TICK_US
    assert ticks.is_near({"through": 7}, set(), Horizon(through=7 + step))
    assert not ticks.is_near({"through": 7}, set(), Horizon(through=8 + step))
