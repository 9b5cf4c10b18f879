"""Rings that have too much or too little to do: split, merged, kept warm, retired.

A ring above the maximum gives about half of its slots' costs away; two rings that together stay
within the minimum become one. Since the minimum is below the maximum, the halves of a split are
never merged again as they are, and what was merged is not split: with loads that stay the same,
decisions come to an end. A ring whose slots have just moved is left alone until it is settled, so
that nothing is decided on figures of before.

Slots of a ring without state may go to a ring that exists. Those of others only to a copy of
theirs; such rings are not merged: queries go to the fullest ring with room, so the emptier one
empties as its queries go.

Splitting helps only against what slots cost. What a ring costs to run at all is paid by both
halves: where that is most of it, a split is not worth its second reading of the stream.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.control.rings import Limits, RingFacts, SlotFacts

_GAIN = 0.2  # of its capacity value, that a ring must at least be rid of by a split


@dataclass(frozen=True, slots=True)
class Split:
    """Slots go from a ring to another one of its composition; to: None, a new one."""

    ring: str
    slots: tuple[int, ...]
    to: str | None


@dataclass(frozen=True, slots=True)
class Merge:
    """All slots of a ring go into another one."""

    ring: str
    into: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeepWarm:
    """An empty ring stays in the pool."""

    ring: str


@dataclass(frozen=True, slots=True)
class Retire:
    ring: str


RingDecision = Split | Merge | KeepWarm | Retire


def maintain(rings: Sequence[RingFacts], limits: Limits) -> list[RingDecision]:
    """What to do with the rings now; no ring has a part in two decisions."""
    alike: dict[str, list[RingFacts]] = defaultdict(list)
    for ring in rings:
        if ring.state == "running":
            alike[ring.composition].append(ring)
    decisions: list[RingDecision] = []
    for group in alike.values():
        decisions += _splits(group, limits) or _merge(group, limits)
    busy = {d.ring for d in decisions} | {d.to for d in decisions if isinstance(d, Split)}
    return decisions + _pool([r for r in rings if r.id not in busy], limits)


def _splits(group: Sequence[RingFacts], limits: Limits) -> list[RingDecision]:
    """What the overloaded rings of one composition give away, the fullest first."""
    found: list[RingDecision] = []
    taken: set[str] = set()
    over = [r for r in group if r.capacity > limits.maximum and r.settled_s >= limits.settle_s]
    more = limits.copies - len(group)
    for ring in sorted(over, key=lambda r: (-r.capacity, r.id)):
        moved = given_away(ring.slots)
        cost = sum(slot.cost for slot in moved)
        rest = ring.load - ring.fixed - cost
        if not moved or ring.fixed + max(cost, rest) > (1 - _GAIN) * ring.load:
            continue
        others = [r for r in group if r is not ring and r.id not in taken and ring.portable]
        to = _with_room(others, cost, limits)
        if to is None and more <= 0:
            continue
        more -= to is None
        taken |= {ring.id} if to is None else {ring.id, to}
        found.append(Split(ring.id, tuple(slot.slot for slot in moved), to))
    return found


def given_away(slots: Sequence[SlotFacts]) -> tuple[SlotFacts, ...]:
    """About half of the slots' costs in few slots; nothing of a single one.

    The costliest first, each to the part that has less so far; the part of fewer slots goes.

    >>> [s.slot for s in given_away([SlotFacts(n, c) for n, c in enumerate((1, 5, 1, 1, 1, 1))])]
    [1]
    """
    parts: tuple[list[SlotFacts], list[SlotFacts]] = ([], [])
    costs = [0.0, 0.0]
    for slot in sorted(slots, key=lambda s: (-s.cost, s.slot)):
        lesser = int(costs[1] < costs[0])
        parts[lesser].append(slot)
        costs[lesser] += slot.cost
    fewer = parts[0] if len(parts[0]) <= len(parts[1]) else parts[1]
    return tuple(fewer) if len(slots) > 1 else ()


def _with_room(rings: Iterable[RingFacts], cost: float, limits: Limits) -> str | None:
    """The ring that has least to do, if it can take this much more."""
    able = [r for r in rings if r.has_room(cost, limits.maximum)]
    return min(able, key=lambda r: (r.capacity, r.id)).id if able else None


def _merge(group: Sequence[RingFacts], limits: Limits) -> list[RingDecision]:
    """The two rings of one composition that have least to do, if one can do all of it."""
    used = [
        r
        for r in group
        if r.slots and r.settled_s >= limits.settle_s and r.backlog_per_s <= 0 and r.portable
    ]
    if len(used) < 2:
        return []
    least, next_ = sorted(used, key=lambda r: (r.capacity, len(r.slots), r.id))[:2]
    if next_.capacity + least.capacity - least.fixed > limits.minimum:
        return []
    return [Merge(least.id, next_.id, tuple(slot.slot for slot in least.slots))]


def _pool(rings: Sequence[RingFacts], limits: Limits) -> list[RingDecision]:
    """Empty rings: the pool keeps those that were needed last, one of each composition first."""
    served = {r.composition for r in rings if r.slots}
    kept: list[RingDecision] = []
    gone: list[RingDecision] = []
    first: list[RingFacts] = []
    more: list[RingFacts] = []
    for ring in sorted((r for r in rings if not r.slots), key=lambda r: (r.idle_s, r.id)):
        (more if ring.composition in served else first).append(ring)
        served.add(ring.composition)
    for ring in (*first, *more):
        if ring.state != "failed" and ring.idle_s < limits.warm_s and len(kept) < limits.pool:
            kept.append(KeepWarm(ring.id))
        else:
            gone.append(Retire(ring.id))
    return kept + gone
