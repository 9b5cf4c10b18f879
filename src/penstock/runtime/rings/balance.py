"""Rings as facts, and what the ring manager decides on them: who takes a query, who is split."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.control.ring_balance import RingDecision, is_full, maintain
from penstock.control.rings import Create, Limits, QueryFacts, RingFacts, expected_cost, place
from penstock.runtime.registry import Registry, RingRow
from penstock.runtime.rings.ring import Ring
from penstock.runtime.rings.watch import RingWatch
from penstock.runtime.settings import Settings

_EVERY_S = 2.0
_COPIED = 10  # times `ring_settle`: how long a ring that could not give its slots away is copied
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
        self._ask_tasks = tasks
        self._tasks = tasks()  # side by side; asking Spark takes milliseconds: not for every query
        self._decided = 0.0
        self._full = False  # as it was found then
        self._notes: dict[str, str] = {}
        self._copied_until: dict[str, float] = {}

    @property
    def _limits(self) -> Limits:
        settings = self._settings()
        return Limits(
            _MERGED * settings.ring_maximum,
            settings.ring_maximum,
            settings.idle_ring_s,
            settings.ring_pool,
            settle_s=settings.ring_settle_s,
            copies=1 if self._full else settings.ring_copies or max(2, self._tasks),
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
        self._tasks = self._ask_tasks()
        running = dict(self._rings)
        self._notes = {ring: note for ring, note in self._notes.items() if ring in running}
        until = self._copied_until.items()
        self._copied_until = {r: end for r, end in until if r in running and now < end}
        rows = [row for row in self._registry.rings() if row.id in running]
        alike = Counter(_group(row) for row in rows)
        maximum = self._limits.maximum
        facts: list[RingFacts] = []
        for row in rows:
            ring = running[row.id]
            if not ring.started:
                continue
            found = self._facts(row, ring)
            if alike[_group(row)] > 1 or found.capacity > maximum:
                found = self._facts(row, ring, whole=True)
            facts.append(found)
        self._full = is_full(facts, self._tasks)
        return maintain(facts, self._limits)

    def _facts(self, row: RingRow, ring: Ring, whole: bool = False) -> RingFacts:
        slots = [q.slot for q in self._registry.queries(row.id)] if whole else None
        movable = [] if slots is None else ring.dispatcher.movable(slots)
        idle_since = self._idle_since.get(row.id)
        idle_s = 0.0 if idle_since is None else time.monotonic() - idle_since
        facts = self._watch.facts(
            ring,
            _group(row),
            self._registry.count_queries(row.id) if slots is None else slots,
            self._tasks,
            self._settings().ring_settle_s,
            idle_s,
            _is_portable(ring) and ring.id not in self._copied_until,
            set(slots or ()) - set(movable),
        )
        return replace(facts, shared=not row.replay)

    def copy_next(self, ring: str) -> None:
        """Its slots could not go to another ring: for some time they only go to a copy."""
        settle_s = self._settings().ring_settle_s
        self._copied_until[ring] = time.monotonic() + _COPIED * settle_s

    def note(self, ring: str, what: str) -> None:
        """Remember the last thing that was decided on a ring, for SHOW RINGS."""
        self._notes[ring] = what

    def figures(self, ring: Ring) -> dict[str, Any]:
        """What SHOW RINGS tells of a ring's load."""
        load, backlog = self._watch.load(ring.id, self._tasks), self._watch.backlog(ring.id)
        return {
            "capacity": round(load.capacity, 3),
            "tuples_per_s": round(load.tuples_per_s, 1),
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
