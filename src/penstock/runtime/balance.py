"""Rings as facts, and what the ring manager decides on them: who takes a query, who is split."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.control.ring_balance import RingDecision, maintain
from penstock.control.rings import Create, Limits, QueryFacts, RingFacts, expected_cost, place
from penstock.runtime.registry import Registry, RingRow
from penstock.runtime.ring import Ring
from penstock.runtime.ring_watch import RingWatch
from penstock.runtime.settings import Settings

_EVERY_S = 2.0
_MERGED = 0.375  # of the maximum: what is merged is far from being split again


class Balance:
    """Facts of the rings that are open, all of them the manager's."""

    def __init__(
        self,
        registry: Registry,
        watch: RingWatch,
        rings: Mapping[str, Ring],
        idle_since: Mapping[str, float],
        settings: Callable[[], Settings],
        tasks: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._watch = watch
        self._rings = rings
        self._idle_since = idle_since
        self._settings = settings
        self._tasks = tasks
        self._decided = 0.0
        self._notes: dict[str, str] = {}

    @property
    def _limits(self) -> Limits:
        settings = self._settings()
        return Limits(
            _MERGED * settings.ring_maximum,
            settings.ring_maximum,
            settings.idle_ring_s,
            settings.ring_pool,
            settle_s=settings.ring_settle_s,
            copies=settings.ring_copies or max(2, self._tasks()),
        )

    def place(self, rows: Iterable[RingRow]) -> str | None:
        """Which of the rings of one composition takes one more query; None: a new one."""
        facts = [self._facts(row, self._rings[row.id]) for row in rows]
        if not facts:
            return None
        composition = facts[0].composition
        query = QueryFacts(composition, expected_cost(composition, facts))
        placement = place(query, facts, self._limits)
        return None if isinstance(placement, Create) else placement.ring

    def decide(self) -> list[RingDecision]:
        """What to do with the rings, every few seconds."""
        now = time.monotonic()
        if now - self._decided < _EVERY_S:
            return []
        self._decided = now
        running = dict(self._rings)
        self._notes = {ring: note for ring, note in self._notes.items() if ring in running}
        rows = [row for row in self._registry.rings() if row.id in running]
        alike = Counter(_group(row) for row in rows)
        maximum = self._limits.maximum
        facts = []
        for row in rows:
            ring = running[row.id]
            if not ring.started:
                continue
            found = self._facts(row, ring)
            if alike[_group(row)] > 1 or found.capacity > maximum:
                found = self._facts(row, ring, whole=True)
            facts.append(found)
        return maintain(facts, self._limits)

    def _facts(self, row: RingRow, ring: Ring, whole: bool = False) -> RingFacts:
        slots = [q.slot for q in self._registry.queries(row.id)] if whole else None
        idle_since = self._idle_since.get(row.id)
        idle_s = 0.0 if idle_since is None else time.monotonic() - idle_since
        return self._watch.facts(
            ring,
            _group(row),
            self._registry.count_queries(row.id) if slots is None else slots,
            self._tasks(),
            self._settings().ring_settle_s,
            idle_s,
            _is_portable(ring),
        )

    def note(self, ring: str, what: str) -> None:
        """Remember the last thing that was decided on a ring, for SHOW RINGS."""
        self._notes[ring] = what

    def figures(self, ring: Ring) -> dict[str, Any]:
        """What SHOW RINGS tells of a ring's load."""
        load, backlog = self._watch.load(ring.id, self._tasks()), self._watch.backlog(ring.id)
        return {
            "capacity": round(load.capacity, 3),
            "tuples_per_s": load.tuples_per_s,
            "backlog": None if backlog is None else f"{backlog.waiting:,} {backlog.unit}",
            "note": self._notes.get(ring.id),
        }


def _group(row: RingRow) -> str:
    """Rings among which queries may move; one that is shared with nobody is alone in its group."""
    return f"{row.id} {row.composition}" if row.replay else row.composition


def _is_portable(ring: Ring) -> bool:
    """Whether another ring can take over its slots: it keeps nothing, and penstock itself decides
    what both read."""
    composition = ring.composition
    stateless = composition.kind == "select" and composition.join is None
    return stateless and composition.following is None and ring.place == "reader"
