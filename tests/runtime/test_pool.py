"""The pool that calls sinks: several at once, never longer than the patience, never without end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.runtime.sinks.pool import SinkPool

LONG_S = 60.0


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What hanging sinks wait for; set at the end, so that their threads go."""
    event = threading.Event()
    yield event
    event.set()


def _nothing() -> None:
    pass


def _until(answered: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG_S
    while not answered():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_calls_are_made_at_the_same_time_but_no_more_than_threads() -> None:
    together = threading.Barrier(3)
    guard, running, most = threading.Lock(), 0, 0

    def call() -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        together.wait(LONG_S)
        with guard:
            running -= 1

    assert SinkPool(lambda: LONG_S, threads=3).run(dict.fromkeys(range(12), call)) == {}
    assert most == 3


def test_errors_come_back_by_key_even_those_that_end_programs() -> None:
    errors = SinkPool(lambda: LONG_S).run(
        {"divides": lambda: 1 // 0, "exits": lambda: sys.exit("enough"), "works": _nothing}
    )
    assert {key: str(error) for key, error in errors.items()} == {
        "divides": "integer division or modulo by zero",
        "exits": "enough",
    }


def test_nothing_to_call_is_done_at_once() -> None:
    assert SinkPool(lambda: LONG_S).run({}) == {}


def test_a_hanging_call_is_given_up_and_its_thread_replaced(release: threading.Event) -> None:
    made: list[str] = []
    calls: dict[Any, Any] = {"hangs": lambda: release.wait(LONG_S)}
    calls |= {name: lambda name=name: made.append(name) for name in ("b", "c")}
    errors = SinkPool(lambda: 2.5, threads=1).run(calls)
    assert list(errors) == ["hangs"]
    assert str(errors["hangs"]) == "the sink took longer than 2.5 s (sink_patience)"
    assert made == ["b", "c"]


def test_a_key_is_not_called_again_before_its_first_call_has_returned(
    release: threading.Event,
) -> None:
    patience_s = [0.5]
    pool = SinkPool(lambda: patience_s[0])
    calls: list[int] = []

    def late() -> None:
        release.wait(LONG_S)
        raise OSError("nobody hears this")

    pool.run({"sink": late})
    patience_s[0] = LONG_S
    errors = pool.run({"sink": lambda: calls.append(1), "other": lambda: calls.append(2)})
    assert str(errors["sink"]) == "an earlier call of the sink has not returned yet"
    assert calls == [2]
    release.set()
    _until(lambda: not pool.run({"sink": lambda: calls.append(3)}))
    assert calls == [2, 3]


def test_calls_are_made_while_a_thread_is_left_and_refused_then(release: threading.Event) -> None:
    before = set(threading.enumerate())
    patience_s = [0.2]
    pool = SinkPool(lambda: patience_s[0], threads=2, most_stuck=3)
    made: list[str] = []
    hanging = dict.fromkeys(range(4), lambda: release.wait(LONG_S))
    assert len(pool.run(hanging)) == 4  # three are replaced, the fourth is not
    patience_s[0] = LONG_S
    assert not pool.run({"innocent": lambda: made.append("yes")})
    patience_s[0] = 0.2
    errors = pool.run(dict.fromkeys(range(4, 20), lambda: release.wait(LONG_S)))
    refused = [key for key, error in errors.items() if "sinks hang: no more" in str(error)]
    assert len(errors) == 16
    assert len(refused) == 15
    assert len(set(threading.enumerate()) - before) <= 5
    assert "no more are called" in str(pool.run({"innocent": lambda: made.append("no")}))
    patience_s[0] = LONG_S
    release.set()
    _until(lambda: not pool.run({"innocent": lambda: made.append("yes")}))
    assert made == ["yes", "yes"]


def test_a_ring_does_not_wait_for_the_sinks_of_another(release: threading.Event) -> None:
    pool = SinkPool(lambda: LONG_S, threads=2)
    other = threading.Thread(target=lambda: pool.run({1: lambda: release.wait(LONG_S)}))
    other.start()
    assert pool.run(dict.fromkeys(range(2, 10), _nothing)) == {}
    assert other.is_alive()
    release.set()
    other.join(LONG_S)
    assert not other.is_alive()
