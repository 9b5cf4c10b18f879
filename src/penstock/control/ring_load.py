"""How much a ring has to do: its capacity value, from what was seen of it over some seconds.

A micro-batch costs something by itself, whatever is in it. A ring that runs back to back is
therefore not full: with more tuples per second each micro-batch takes more of them, and what it
costs by itself is paid less often per tuple. What fills a ring is the time that grows with its
tuples: b micro-batches that took B seconds of T, at least m each, make a load of (B − b·m) / T.

A ring that does not keep up is over the top by as much as it would need more: if what waits grows
by g while r is read, it would have to do (r + g) / r of what it does. That holds for one that has
hardly a pause left, and from a tenth of r on: what comes all at once to a ring with time to spare
is a burst, and it will catch up; a little comes and goes. One that catches up does more than it has
to: g is negative then, and what it reads of old files is no load that stays.

A part of that is reading, which every ring of the stream pays for itself. The rest is what its
slots make of the tuples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

_FALLS_BEHIND = 0.1  # growth below this comes and goes with the moments at which it is seen
_NO_PAUSE = 0.8  # the share of the time from which on a ring is taken to run back to back


@dataclass(frozen=True, slots=True)
class Seen:
    """What a ring has done so far, at a moment: sums since it was opened.

    busy_s: of its micro-batches. run_s: of its tasks in the stage, read_s of it for reading.
    done, waiting: of its source, in the source's own units; None if nobody knows.
    """

    at_s: float
    batches: int
    busy_s: float
    tuples: int = 0
    read_s: float = 0.0
    run_s: float = 0.0
    done: int | None = None
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """capacity: the capacity value. fixed: the part of it that reading is. growth: by how much of
    what it reads its backlog grows, if it falls behind. tuples_per_s: over the same time. busy: the
    share of that time in which a micro-batch ran. behind: how many micro-batches, as large as those
    it had, what waits would take."""

    capacity: float = 0.0
    fixed: float = 0.0
    growth: float = 0.0
    tuples_per_s: float = 0.0
    busy: float = 0.0
    behind: float = 0.0


def load_between(first: Seen, last: Seen, least_s: float, tasks: int) -> Load:
    """The load from one moment to another; least_s: what a micro-batch takes by itself.

    tasks: how many of a ring's tasks run side by side.

    >>> load_between(Seen(0, 0, 0), Seen(10, 5, 3.75, 1000, 2.5, 4.0), 0.25, 2)
    Load(capacity=0.25, fixed=0.125, growth=0.0, tuples_per_s=100.0, busy=0.375, behind=0.0)
    >>> load_between(Seen(0, 0, 0, 0, 0, 0, 0, 0), Seen(10, 5, 10, 9, 2, 4, 100, 50), 0.2, 2).growth
    0.5
    """
    elapsed = last.at_s - first.at_s
    batches = last.batches - first.batches
    if elapsed <= 0 or not batches:
        return Load()
    busy = min(1.0, (last.busy_s - first.busy_s) / elapsed)
    capacity = max(0.0, busy - batches * least_s / elapsed)
    ran, read = last.run_s - first.run_s, last.read_s - first.read_s
    if read > 0:
        fixed = read / tasks / elapsed
    else:  # Spark reads: what is not the stage's
        fixed = capacity - ran / tasks / elapsed
    growth = _growth(first, last)
    if growth >= _FALLS_BEHIND and busy >= _NO_PAUSE:
        capacity = max(capacity, busy * (1 + growth))
    else:
        growth = min(0.0, growth)
        capacity, fixed = (1 + growth) * capacity, (1 + growth) * fixed
    tuples = (last.tuples - first.tuples) / elapsed
    fixed, behind = min(max(0.0, fixed), capacity), _behind(first, last)
    return Load(capacity, fixed, max(0.0, growth), tuples, busy, behind)


def _growth(first: Seen, last: Seen) -> float:
    if None in (first.done, last.done, first.waiting, last.waiting):
        return 0.0
    read = (last.done or 0) - (first.done or 0)
    more = (last.waiting or 0) - (first.waiting or 0)
    return max(-1.0, more / read) if read > 0 else 0.0


def _behind(first: Seen, last: Seen) -> float:
    if first.done is None or last.done is None or not last.waiting:
        return 0.0
    read = last.done - first.done
    return last.waiting * (last.batches - first.batches) / read if read > 0 else float("inf")


@dataclass(slots=True)
class LoadWatch:
    """The last seconds of a ring, and what its micro-batches take at least.

    The quickest micro-batch is one with few tuples in it; it is forgotten slowly, since a ring
    that has grown may never be that quick again.
    """

    over_s: float = 20.0
    least_s: float = 0.0
    seen: deque[Seen] = field(default_factory=deque)

    def add(self, seen: Seen, took_s: Iterable[float] = ()) -> None:
        """took_s: of the micro-batches since the last call."""
        for took in took_s:
            self.least_s = took if not self.least_s else min(took, self.least_s * 1.01)
        self.seen.append(seen)
        while len(self.seen) > 2 and self.seen[1].at_s <= seen.at_s - self.over_s:
            self.seen.popleft()

    def load(self, tasks: int) -> Load:
        if len(self.seen) < 2:
            return Load()
        return load_between(self.seen[0], self.seen[-1], self.least_s, tasks)

    @property
    def watched_s(self) -> float:
        """Over how long."""
        return self.seen[-1].at_s - self.seen[0].at_s if self.seen else 0.0
