"""Answers that come when it is time: under load, at the trigger, in quiet times, in a hurry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.runtime.pacing import Found, Pace

QUICK_S = 0.04  # more than a loaded machine takes for nothing, less than any pause here


class Source:
    """Has work when it is told so; counts how often it was looked at."""

    def __init__(self) -> None:
        self.work = self.more = False
        self.looks = 0

    def __call__(self) -> Found[bool]:
        self.looks += 1
        return Found(self.work, self.work, self.more)


def _pace(trigger_ms: float = 100, longest_ms: float = 2000, **how: bool) -> Pace:
    return Pace(lambda: trigger_ms, lambda: longest_ms, **how)


def _answer(pace: Pace, source: Source) -> tuple[bool, float]:
    begin = time.perf_counter()
    found = pace.answer(source)
    return found, time.perf_counter() - begin


def _settle(pace: Pace, source: Source) -> None:
    """As after a micro-batch that was the last: the next answer may be waited for."""
    assert pace.answer(source) is False


@contextmanager
def _waiting(pace: Pace, source: Source) -> Iterator[Callable[[], tuple[bool, float]]]:
    """Somebody who waits for an answer; gives what it was, and how long it took from here."""
    answers: list[tuple[bool, float]] = []

    def ask() -> None:
        found = pace.answer(source)
        answers.append((found, time.perf_counter()))

    thread = threading.Thread(target=ask)
    thread.start()
    while not pace._waiting:
        time.sleep(0.001)
    begin = time.perf_counter()

    def result() -> tuple[bool, float]:
        thread.join(10)
        found, when = answers[0]
        return found, when - begin

    yield result
    with pace.hurried():
        thread.join(10)


def test_work_waits_for_the_trigger_unless_more_is_left_or_the_last_took_longer() -> None:
    pace, source = _pace(), Source()
    source.work = True
    assert _answer(pace, source)[1] < QUICK_S
    pace.ran()
    found, took_s = _answer(pace, source)
    assert found
    assert took_s > QUICK_S
    source.more = True
    _answer(pace, source)
    pace.ran()
    assert _answer(pace, source)[1] < QUICK_S  # more was left
    source.more = False
    _answer(pace, source)
    time.sleep(0.12)  # the micro-batch
    pace.ran()
    assert _answer(pace, source)[1] < QUICK_S


def test_after_a_micro_batch_nothing_is_said_at_once_for_windows_may_have_to_close() -> None:
    pace, source = _pace(), Source()
    assert _answer(pace, source)[1] < QUICK_S
    pace.ran()
    found, took_s = _answer(pace, source)
    assert not found
    assert took_s < 0.2  # the trigger, no more


def test_a_quiet_ring_is_looked_at_ever_more_seldom_inside_one_answer() -> None:
    pace, source = _pace(trigger_ms=10), Source()
    _settle(pace, source)
    with _waiting(pace, source):
        time.sleep(0.5)
        soon = source.looks
        time.sleep(0.5)
        later = source.looks - soon
    assert 3 <= later < soon <= 60  # every 10 ms, then a tenth of the quiet time


def test_what_comes_while_a_ring_waits_is_found_at_its_next_look() -> None:
    pace, source = _pace(trigger_ms=20), Source()
    _settle(pace, source)
    with _waiting(pace, source) as result:
        time.sleep(0.1)
        source.work = True
        found, took_s = result()
    assert found
    assert took_s < 0.5


def test_stirring_brings_the_next_look_forward() -> None:
    pace, source = _pace(trigger_ms=50, longest_ms=60_000), Source()
    pace._stirred_s -= 1000  # quiet for long: the next look is due in 60 s
    _settle(pace, source)
    with _waiting(pace, source) as result:
        source.work = True
        time.sleep(0.05)
        pace.stir()
        found, took_s = result()
    assert found
    assert took_s < 1


@pytest.mark.parametrize("work", [True, False])
def test_who_waits_looks_once_more_when_somebody_is_in_a_hurry(work: bool) -> None:
    pace, source = _pace(longest_ms=60_000), Source()
    pace._stirred_s -= 1000
    _settle(pace, source)
    with _waiting(pace, source) as result:
        source.work = work
        with pace.hurried() as waited:
            assert waited
            found, took_s = result()
            assert found is work
            assert took_s < 1
            assert _answer(pace, source)[1] < QUICK_S  # and nobody waits inside
    with pace.hurried() as waited:
        assert not waited


def test_a_bounded_engine_goes_on_at_once_after_work_and_looks_at_every_trigger() -> None:
    pace, source = _pace(trigger_ms=60, exhaustive=True), Source()
    source.work = True
    for _ in range(5):
        assert _answer(pace, source)[1] < QUICK_S
        pace.ran()
    source.work = False
    _settle(pace, source)
    pace._stirred_s -= 1000
    with _waiting(pace, source):
        looks = source.looks
        time.sleep(0.7)
        assert 5 <= source.looks - looks <= 13


def test_where_spark_looks_itself_an_answer_never_waits_for_work() -> None:
    pace, source = _pace(trigger_ms=20, longest_ms=150, blind=True), Source()
    _settle(pace, source)
    pace._stirred_s -= 1000
    found, took_s = _answer(pace, source)
    assert not found
    assert 0.1 < took_s < 0.5
    assert source.looks == 2
