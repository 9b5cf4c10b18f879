"""Threads that call the sinks: few, shared by all rings of an engine, replaced if a sink hangs.

A micro-batch waits for its calls, each no longer than the patience. A call that takes longer is
given up: its thread is left alone and another takes its place, what it answers later is ignored,
and its key is not called again before it has returned. So that hanging sinks cannot fill the
process with threads, those beyond a number are not replaced; calls are refused when none is left.

Threads live as long as there are calls to make: starting one takes less than 0.1 ms.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

THREADS = 8
MOST_STUCK = 64


@dataclass(slots=True)
class _Round:
    """The calls of one micro-batch."""

    patience_s: float
    unanswered: int
    done: threading.Condition
    started: dict[Hashable, float] = field(default_factory=dict)  # running calls: since when
    errors: dict[Hashable, BaseException] = field(default_factory=dict)

    def answer(self, key: Hashable, error: BaseException | None) -> None:
        if error is not None:
            self.errors[key] = error
        self.unanswered -= 1
        if not self.unanswered:
            self.done.notify()


@dataclass(frozen=True, slots=True)
class _Call:
    key: Hashable
    function: Callable[[], object]
    round: _Round


class SinkPool:
    """Makes the calls of micro-batches, several at a time; calls of one key never overlap."""

    def __init__(
        self,
        patience_s: Callable[[], float],
        threads: int = THREADS,
        most_stuck: int = MOST_STUCK,
    ) -> None:
        self._patience_s = patience_s
        self._threads = threads
        self._most_stuck = most_stuck
        self._guard = threading.Lock()
        self._calls: deque[_Call] = deque()
        self._working = 0
        self._stuck: set[Hashable] = set()

    def run(self, calls: Mapping[Hashable, Callable[[], object]]) -> dict[Hashable, BaseException]:
        """Make all calls and wait for them; the errors of those that failed, by key."""
        with self._guard:
            done = threading.Condition(self._guard)
            round_ = _Round(self._patience_s(), len(calls), done)
            self._calls.extend(_Call(key, function, round_) for key, function in calls.items())
            self._start_threads()
            while round_.unanswered:
                oldest = min(round_.started.values(), default=time.monotonic())
                round_.done.wait(oldest + round_.patience_s - time.monotonic())
                self._give_up_overdue(round_)
            return round_.errors

    def is_stuck(self, key: Hashable) -> bool:
        """Whether a call of the key was given up and has not returned."""
        with self._guard:
            return key in self._stuck

    def _start_threads(self) -> None:
        """As many as there are calls and room; each hanging sink too many takes a thread's room."""
        room = self._threads - self._working - max(0, len(self._stuck) - self._most_stuck)
        for _ in range(min(room, len(self._calls))):
            self._working += 1
            threading.Thread(target=self._work, name="penstock-sinks", daemon=True).start()
        while self._calls and not self._working:
            call = self._calls.popleft()
            refusal = TimeoutError(f"{len(self._stuck)} sinks hang: no more are called")
            call.round.answer(call.key, refusal)

    def _give_up_overdue(self, round_: _Round) -> None:
        since = time.monotonic() - round_.patience_s
        error = TimeoutError(f"the sink took longer than {round_.patience_s:g} s (sink_patience)")
        for key in [key for key, started in round_.started.items() if started <= since]:
            del round_.started[key]
            self._stuck.add(key)
            self._working -= 1
            round_.answer(key, error)
        self._start_threads()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            if not self._settle(call, _failure(call.function)):
                return

    def _next(self) -> _Call | None:
        with self._guard:
            while self._calls:
                call = self._calls.popleft()
                if call.key not in self._stuck:
                    call.round.started[call.key] = time.monotonic()
                    return call
                refusal = TimeoutError("an earlier call of the sink has not returned yet")
                call.round.answer(call.key, refusal)
            self._working -= 1
            return None

    def _settle(self, call: _Call, error: BaseException | None) -> bool:
        """Take a call's answer; False if it was given up, so that its thread is one too many."""
        with self._guard:
            if call.round.started.pop(call.key, None) is None:
                self._stuck.remove(call.key)
                return False
            call.round.answer(call.key, error)
            return True


def _failure(function: Callable[[], object]) -> BaseException | None:
    try:
        function()
    except BaseException as error:  # even of sys.exit(): the micro-batch waits for an answer
        return error
    return None
