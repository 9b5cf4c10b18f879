"""Answers that come when it is time: under load, at the trigger, in quiet times, in a hurry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime.rings.pacing import Found, Pace


class Clock:
    """A clock, and the condition of a Pace: whoever waits moves it on, to what happens next."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._coming: list[tuple[float, Callable[[], Any]]] = []

    def __call__(self) -> float:
        return self.now_s

    def after(self, seconds: float, action: Callable[[], Any]) -> None:
        self._coming.append((self.now_s + seconds, action))

    def wait(self, timeout: float) -> None:
        until_s = self.now_s + timeout
        due = [event for event in self._coming if event[0] <= until_s]
        if not due:
            self.now_s = until_s
            return
        self._coming.remove(due[0])
        self.now_s = due[0][0]
        due[0][1]()

    def notify_all(self) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Source:
    """Has work when it is told so; notes when it was looked at."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.work = self.more = False
        self.looks: list[float] = []
        self._clock = clock

    def __call__(self) -> Found[bool]:
        self.looks.append(self._clock())
        return Found(self.work, self.work, self.more)

    def looked(self, first_s: float, last_s: float) -> int:
        return sum(first_s < when <= last_s for when in self.looks)


class Asked:
    """A ring's pace, by a clock that moves only while somebody waits."""

    def __init__(self, trigger_ms: float = 100, longest_ms: float = 2000, **how: bool) -> None:
        self.clock = Clock()
        self.source = Source(self.clock)
        self.pace = Pace(lambda: trigger_ms, lambda: longest_ms, clock_s=self.clock, **how)
        self.pace._changed = self.clock  # type: ignore[assignment]

    def answer(self) -> tuple[bool, float]:
        """What is answered, and after how long."""
        begin_s = self.clock.now_s
        return self.pace.answer(self.source), pytest.approx(self.clock.now_s - begin_s)

    def settle(self) -> None:
        """As after a micro-batch that was the last: the next answer may be waited for."""
        assert self.pace.answer(self.source) is False

    def find(self, work: bool = True) -> None:
        self.source.work = work


def test_work_waits_for_the_trigger_unless_more_is_left_or_the_last_took_longer() -> None:
    ring = Asked()
    ring.find()
    assert ring.answer() == (True, 0.0)
    ring.pace.ran()
    assert ring.answer() == (True, 0.1)
    ring.source.more = True
    ring.answer()
    ring.pace.ran()
    assert ring.answer() == (True, 0.0)  # more was left
    ring.source.more = False
    ring.answer()
    ring.clock.now_s += 0.12  # the micro-batch
    ring.pace.ran()
    assert ring.answer() == (True, 0.0)


def test_after_a_micro_batch_nothing_is_said_at_once_for_windows_may_have_to_close() -> None:
    ring = Asked()
    assert ring.answer() == (False, 0.0)
    ring.pace.ran()
    assert ring.answer() == (False, 0.1)  # the trigger, no more


def test_a_quiet_ring_is_looked_at_ever_more_seldom_inside_one_answer() -> None:
    ring = Asked(trigger_ms=10)
    ring.settle()
    ring.settle()
    soon, later = ring.source.looked(0, 0.5), ring.source.looked(0.5, 1)
    assert 3 <= later < soon <= 60  # every 10 ms, then a tenth of the quiet time


def test_what_comes_while_a_ring_waits_is_found_at_its_next_look() -> None:
    ring = Asked(trigger_ms=20)
    ring.settle()
    ring.clock.after(0.11, ring.find)
    found, took_s = ring.answer()
    assert found
    assert took_s == pytest.approx(0.12, abs=0.011)


def test_stirring_brings_the_next_look_forward() -> None:
    ring = Asked(trigger_ms=50, longest_ms=60_000)
    ring.pace._stirred_s -= 1000  # quiet for long: the next look is due in 60 s
    ring.settle()
    ring.clock.after(1, ring.find)
    ring.clock.after(2, ring.pace.stir)
    assert ring.answer() == (True, 2.0)


@pytest.mark.parametrize("work", [True, False])
def test_who_waits_looks_once_more_when_somebody_is_in_a_hurry(work: bool) -> None:
    ring = Asked(longest_ms=60_000)
    ring.pace._stirred_s -= 1000
    ring.settle()
    hurry, waited = ring.pace.hurried(), list[bool]()
    ring.clock.after(1, lambda: ring.find(work))
    ring.clock.after(2, lambda: waited.append(hurry.__enter__()))
    assert ring.answer() == (work, 2.0)
    assert ring.answer() == (work, 0.0)  # and nobody waits inside
    hurry.__exit__(None, None, None)
    assert waited == [True]
    with ring.pace.hurried() as somebody:
        assert not somebody


def test_a_bounded_engine_goes_on_at_once_after_work_and_looks_at_every_trigger() -> None:
    ring = Asked(trigger_ms=60, exhaustive=True)
    ring.find()
    for _ in range(5):
        assert ring.answer() == (True, 0.0)
        ring.pace.ran()
    ring.find(False)
    ring.settle()
    ring.pace._stirred_s -= 1000
    ring.settle()
    assert ring.source.looked(0, 0.7) == 11


def test_where_spark_looks_itself_an_answer_never_waits_for_work() -> None:
    ring = Asked(trigger_ms=20, longest_ms=150, blind=True)
    ring.settle()
    ring.pace._stirred_s -= 1000
    assert ring.answer() == (False, 0.15)
    assert len(ring.source.looks) == 2


def test_threads_that_stir_or_hurry_end_a_wait() -> None:
    pace = Pace(lambda: 50, lambda: 60_000)
    source = Source(time.monotonic)
    assert not pace.answer(source)
    for end in (pace.stir, pace.hurried().__enter__):
        pace._stirred_s -= 1000
        source.work = False
        answers: list[bool] = []
        thread = threading.Thread(target=lambda a=answers: a.append(pace.answer(source)))
        thread.start()
        while not pace._waiting:
            time.sleep(0.001)
        source.work = True
        begin_s = time.monotonic()
        end()
        thread.join(30)
        assert answers == [True]
        assert time.monotonic() - begin_s < 10  # an answer that nobody wants sooner takes 15 s
