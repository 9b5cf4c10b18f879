"""When a ring's micro-batches begin: the engine answers Spark's question for work when it is time.

Spark asks what the next micro-batch is, in a thread of each ring, and does nothing for the ring
until it is told. So an answer that comes later is a pause, of any length, that costs nothing: not
in the JVM, not in the planner's process, and here only a look at the source now and then. How long
is decided in `control.triggers`: none under load, the user's trigger otherwise, and the longer a
ring has been quiet, the longer between two looks.

An answer that there is nothing to do makes Spark look whether its state needs a micro-batch without
tuples (windows that close). After every micro-batch, the next such answer is therefore given at
once; only if nothing came of it the ring may wait. A wait ends as soon as somebody is in a hurry:
Spark cannot stop a ring whose planner waits for an answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.control.triggers import TriggerFacts, pause_ms

# in one question; far below what whoever asks waits for an answer (`service.TIMEOUT_S`)
LONGEST_ANSWER_S = 15.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Found(Generic[Answer]):
    """What a look has found: the answer to give, whether it means work, and whether more is left
    for the micro-batch after it."""

    answer: Answer
    work: bool
    more: bool = False


class Pace:
    """The pauses of one ring.

    trigger_ms, longest_ms: the settings of now. exhaustive: the engine reads what there is and
    ends, so nothing is gained by waiting after work. blind: Spark reads some of the ring's sources
    itself, so it must ask again for these to be looked at, and goes by the trigger on its own.
    """

    def __init__(
        self,
        trigger_ms: Callable[[], float],
        longest_ms: Callable[[], float],
        exhaustive: bool = False,
        blind: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trigger_ms = trigger_ms
        self._longest_ms = longest_ms
        self._exhaustive = exhaustive
        self.blind = blind
        self._clock_s = clock_s
        self._changed = threading.Condition()
        self._hurried = self._waiting = 0
        self._ran = True  # a micro-batch has ended since the last answer
        self._more = False  # the last look left work behind
        self._working = False  # the last answer was work
        self._batch_ms = 0.0
        self._answered_s = float("-inf")  # the last answer, or the last look since then
        self._stirred_s = clock_s()  # since when it is quiet
        self.looked_ms = 0.0  # what the last answer took besides waiting

    def answer(self, look: Callable[[], Found[Answer]]) -> Answer:
        """What `look` finds, when it is time for it; that there is nothing only after a while."""
        self._asked()
        end_s = self._clock_s() + LONGEST_ANSWER_S
        self._wait(end_s)
        found = self._look(look)
        while not (found.work or self._ran or self.blind) and self._may_wait(end_s):
            self._wait(end_s)
            found = self._look(look)
        with self._changed:
            self._ran, self._more = False, found.more
            if found.work:
                self._stirred_s = self._clock_s()
        return found.answer

    def _asked(self) -> None:
        with self._changed:
            if self._working:
                self._batch_ms = 1000 * (self._clock_s() - self._answered_s)

    def _look(self, look: Callable[[], Found[Answer]]) -> Found[Answer]:
        begin_s = self._clock_s()
        found = look()
        with self._changed:
            self._answered_s = self._clock_s()
            self._working = found.work
            self.looked_ms = 1000 * (self._answered_s - begin_s)
        return found

    def _may_wait(self, end_s: float) -> bool:
        return not self._hurried and self._clock_s() < end_s

    def _wait(self, end_s: float) -> None:
        """Wait until the next look is due, or somebody is in a hurry, or it has taken too long."""
        with self._changed:
            self._waiting += 1
            while self._may_wait(end_s):
                now_s = self._clock_s()
                left_s = self._answered_s + self._pause_s(now_s) - now_s
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, end_s - now_s))
            self._waiting -= 1

    def _pause_s(self, now_s: float) -> float:
        """Between the last look and the next."""
        if self._working and self._exhaustive:
            return 0.0
        batch_ms, backlog = (self._batch_ms, float(self._more)) if self._working else (0.0, 0.0)
        facts = TriggerFacts(batch_ms, backlog, now_s - self._stirred_s)
        longest_ms = self._trigger_ms() if self._exhaustive else self._longest_ms()
        return pause_ms(facts, self._trigger_ms(), longest_ms) / 1000

    def ran(self) -> None:
        """A micro-batch is over, with tuples or without."""
        with self._changed:
            self._ran, self._stirred_s = True, self._clock_s()

    def stir(self) -> None:
        """Something has happened after which there may be tuples soon."""
        with self._changed:
            self._stirred_s = self._clock_s()
            self._changed.notify_all()

    @contextmanager
    def hurried(self) -> Iterator[bool]:
        """No pauses inside, and who waits gets an answer at once; whether somebody did wait."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            waited = self._waiting > 0
        try:
            yield waited
        finally:
            with self._changed:
                self._hurried -= 1
