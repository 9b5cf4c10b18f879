"""What a ring reads next from a source of penstock's own: bookkeeping over the source's readers.

A planner is asked for the next piece of work with what was done so far; it answers with pieces for
the tasks and with what to remember. Kafka or the exchange are further planners, nothing else
changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from penstock.runtime.sources.files import FileInfo, FileOptions, list_files, split_files
from penstock.runtime.sources.generator import TICK_US, GeneratorOptions, last_tick

CATCH_UP_US = 60_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """The pieces of one micro-batch (one list per task) and the items they use up.

    more: there is work for another one already.
    """

    body: dict[str, Any]
    consumed: list[str]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Horizon:
    """Up to where a ring may read for now: these items, or up to this place."""

    items: frozenset[str] = frozenset()
    through: int = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a ring has read so far, and what waits at its source, in units of the source."""

    done: int
    waiting: int
    unit: str


class Planner(Protocol):
    remembers_items: bool

    def next_work(
        self,
        done: dict[str, Any],
        consumed: set[str],
        parallelism: int,
        horizon: Horizon | None = None,
    ) -> Work | None:
        """The next micro-batch, or None while there is nothing new within the horizon."""
        ...

    def is_near(self, done: dict[str, Any], consumed: set[str], horizon: Horizon) -> bool:
        """Whether one micro-batch, after what is done or under way, gets to the horizon."""
        ...

    def backlog(self, done: dict[str, Any], consumed: set[str]) -> Backlog | None:
        """How far a ring is, and what it has not read yet; None if nobody can say at once."""
        ...


class FilePlanner:
    """Files not read before, oldest first, up to a limit per micro-batch."""

    remembers_items = True

    def __init__(self, options: FileOptions) -> None:
        self._options = options

    def next_work(
        self,
        done: dict[str, Any],
        consumed: set[str],
        parallelism: int,
        horizon: Horizon | None = None,
    ) -> Work | None:
        new = [f for f in list_files(self._options) if f.path not in consumed]
        if horizon is not None:
            new = [f for f in new if f.path in horizon.items]
        chosen: list[FileInfo] = []
        size = 0
        for file in new[: self._options.max_files_per_batch]:
            if chosen and size + file.size > self._options.max_bytes_per_batch:
                break
            chosen.append(file)
            size += file.size
        if not chosen:
            return None
        pieces = [
            [p.to_json() for p in task] for task in split_files(chosen, self._options, parallelism)
        ]
        return Work({"pieces": pieces}, [f.path for f in chosen], len(chosen) < len(new))

    def is_near(self, done: dict[str, Any], consumed: set[str], horizon: Horizon) -> bool:
        work = self.next_work(done, consumed, 1, horizon)
        return work is None or not work.more

    def backlog(self, done: dict[str, Any], consumed: set[str]) -> Backlog:
        new = sum(f.path not in consumed for f in list_files(self._options))
        return Backlog(len(consumed), new, "files")


class GeneratorPlanner:
    """Ticks of arrival time: as the clock goes; a bounded generator as fast as it is read."""

    remembers_items = False

    def __init__(
        self, options: GeneratorOptions, clock_us: Callable[[], int], batch_rows: int
    ) -> None:
        self._options = options
        self._clock_us = clock_us
        self._step = max(1, batch_rows * 1_000_000 // (options.rate * TICK_US))
        self._last = last_tick(options)
        self._started_us: int | None = None

    def next_work(
        self,
        done: dict[str, Any],
        consumed: set[str],
        parallelism: int,
        horizon: Horizon | None = None,
    ) -> Work | None:
        first = int(done.get("through", 0))
        known = self._end(first)
        if horizon is not None:
            known = min(known, horizon.through)
        end = min(first + self._step, known)
        if end <= first:
            return None
        tasks = min(parallelism, end - first)
        cuts = [first + (end - first) * i // tasks for i in range(tasks + 1)]
        pieces = [[{"first": a, "end": b}] for a, b in pairwise(cuts)]
        return Work({"pieces": pieces, "through": end}, [], end < known)

    def is_near(self, done: dict[str, Any], consumed: set[str], horizon: Horizon) -> bool:
        return horizon.through - int(done.get("through", 0)) <= self._step

    def backlog(self, done: dict[str, Any], consumed: set[str]) -> Backlog:
        first = int(done.get("through", 0))
        read, made = (t * TICK_US * self._options.rate // 10**6 for t in (first, self._end(first)))
        return Backlog(read, max(0, made - read), "tuples")

    def _end(self, first: int) -> int:
        """The tick up to which there are tuples now."""
        if self._last is not None:
            return self._last + 1
        now_us = self._clock_us()
        if self._started_us is None:
            self._started_us = self._begin(first, now_us)
        return (now_us - self._started_us) // TICK_US

    def _begin(self, first: int, now_us: int) -> int:
        """When tick 0 was; a stream that is hardly behind the clock catches up with it.

        So one that starts 'now' has the clock's times, however long its ring took to start. A
        restarted engine otherwise goes on where it stopped.
        """
        behind_us = now_us - (self._options.start_us + first * TICK_US)
        if 0 <= behind_us <= CATCH_UP_US:
            return self._options.start_us
        return now_us - first * TICK_US
