"""What running rings have to do, looked at all the time, and as facts for the ring manager's
decisions.

Looking costs next to nothing for a ring that is idle: Spark is asked only after micro-batches.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.control.ring_load import Load, LoadWatch, Seen
from penstock.control.rings import RingFacts, SlotFacts, apportioned
from penstock.runtime.epochs import EpochKeeper, Spent
from penstock.runtime.rings.ring import Ring
from penstock.runtime.sources.planner import Backlog

_ROWS_S = 60.0  # over which results count for what a slot costs


@dataclass(slots=True)
class _Watched:
    loads: LoadWatch
    since: float  # when its slots last moved
    queries: deque[tuple[float, int]] = field(default_factory=deque)  # over the same time
    batches: int = 0
    busy_s: float = 0.0
    backlog: Backlog | None = None
    rows: Counter[int] = field(default_factory=Counter)  # results by slot
    before: Counter[int] = field(default_factory=Counter)  # of the stretch before
    turned: float = 0.0


class RingWatch:
    def __init__(
        self, epochs: EpochKeeper, over_s: float = 20.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._epochs = epochs
        self._over_s = over_s
        self._clock = clock
        self._rings: dict[str, _Watched] = {}

    def _of(self, ring: str) -> _Watched:
        if ring not in self._rings:
            self._rings[ring] = _Watched(LoadWatch(self._over_s), self._clock())
        return self._rings[ring]

    def forget(self, ring: str) -> None:
        self._rings.pop(ring, None)

    def moved(self, *rings: str) -> None:
        """Slots came or went by a decision: what was seen before is of another ring."""
        for ring in rings:
            self._rings[ring] = _Watched(LoadWatch(self._over_s), self._clock())

    def count(self, ring: str, rows: Mapping[int, int]) -> None:
        """Results of a micro-batch by slot."""
        watched, now = self._of(ring), self._clock()
        if now - watched.turned > _ROWS_S:
            watched.before, watched.rows, watched.turned = watched.rows, Counter(), now
        watched.rows.update(rows)

    def look(self, ring: Ring, queries: int) -> None:
        """See what a ring has done since the last time, for so many queries."""
        watched = self._of(ring.id)
        watched.queries.append((self._clock(), queries))
        while watched.queries[0][0] < watched.queries[-1][0] - self._over_s:
            watched.queries.popleft()
        ended = ring.dispatcher.batches  # Spark tells how long they took a moment later
        took = ring.take_durations() if ended != watched.batches else []
        if took:
            watched.batches = ended
            watched.busy_s += sum(took)
            watched.backlog = self._backlog(ring)
        spent = sum((self._epochs.spent(part) for part in ring.parts), Spent())
        known = watched.backlog
        seen = Seen(
            self._clock(),
            watched.batches,
            watched.busy_s,
            spent.tuples,
            spent.read_ns / 1e9,
            spent.run_ns / 1e9,
            None if known is None else known.done,
            None if known is None else known.waiting,
        )
        watched.loads.add(seen, took)

    def _backlog(self, ring: Ring) -> Backlog | None:
        found = [self._epochs.backlog(part) for part in ring.parts]
        known = [backlog for backlog in found if backlog is not None]
        if len(known) < len(found) or len({backlog.unit for backlog in known}) > 1:
            return None
        return Backlog(sum(b.done for b in known), sum(b.waiting for b in known), known[0].unit)

    def load(self, ring: str, tasks: int) -> Load:
        return Load() if ring not in self._rings else self._rings[ring].loads.load(tasks)

    def backlog(self, ring: str) -> Backlog | None:
        return None if ring not in self._rings else self._rings[ring].backlog

    def facts(
        self,
        ring: Ring,
        composition: str,
        slots: Iterable[int] | int,
        tasks: int,
        settle_s: float,
        idle_s: float,
        portable: bool,
        staying: Collection[int] = (),
    ) -> RingFacts:
        """A ring for decisions; slots: which they are, or only how many, where that is enough.

        staying: those that cannot move.

        What is seen of one that has just started, or whose slots have moved, says nothing yet.
        Queries that come in a burst are not seen yet: they count as those that are.
        """
        watched = self._of(ring.id)
        settled_s = self._clock() - watched.since
        seen = self.load(ring.id, tasks)
        load = seen if settled_s >= settle_s else Load()
        if isinstance(slots, int):
            cost = (load.capacity - load.fixed) * _growth(watched, slots)
            lump = SlotFacts(-1, cost, slots)
            costs: tuple[SlotFacts, ...] = (lump,) if slots else ()
        else:
            weights = {slot: 1.0 + watched.rows[slot] + watched.before[slot] for slot in slots}
            costs = tuple(
                replace(cost, stays=cost.slot in staying)
                for cost in apportioned(load.capacity, load.fixed, weights)
            )
        return RingFacts(
            ring.id,
            composition,
            costs,
            load.fixed,
            load.capacity,
            load.growth,
            "running" if ring.active else "starting",
            idle_s,
            settled_s,
            portable,
            seen.busy,
            behind=seen.behind,
        )


def _growth(watched: _Watched, queries: int) -> float:
    """How many times as many queries there are as there were while the ring was looked at."""
    seen = sum(count for _, count in watched.queries)
    return max(1.0, queries * len(watched.queries) / seen) if seen else 1.0
