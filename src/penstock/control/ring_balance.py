"""Rings that have too much or too little to do: split, merged, kept warm, retired.

A ring above the maximum gives about half of its slots' costs away; two rings that together stay
within the minimum become one. Since the minimum is below the maximum, the halves of a split are
never merged again as they are, and what was merged is not split: with loads that stay the same,
decisions come to an end. A ring whose slots have just moved is left alone until it is settled, so
that nothing is decided on figures of before.

Slots of a ring without state may go to a ring that exists, if both keep up: until they have read
the same, the one that is ahead has to wait. All others only go to a copy of theirs, which is where
the ring is. Rings with state are not merged: queries go to the fullest ring with room, so the
emptier one empties as its queries go.

Splitting helps only against what slots cost. What a ring costs to run at all is paid by both
halves: where that is most of it, a split is not worth its second reading of the stream. Nor does it
help where rings keep all cores busy already (`is_full`): then there may be no more copies.
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


def is_full(rings: Iterable[RingFacts], cores: int) -> bool:
    """Whether the rings keep all cores busy: one more would only add to it.

    >>> rings = [RingFacts("a", "x", busy=0.9), RingFacts("b", "y", busy=0.4)]
    >>> is_full(rings, 2), is_full(rings, 1)
    (False, True)
    """
    return sum(ring.busy for ring in rings) >= cores


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
        others = [r for r in group if r is not ring and r.id not in taken and r.keeps_up]
        able = ring.portable and ring.keeps_up
        to = _with_room(others, cost, limits) if able else None
        if to is None and more <= 0:
            continue
        more -= to is None
        taken |= {ring.id} if to is None else {ring.id, to}
        found.append(Split(ring.id, tuple(slot.slot for slot in moved), to))
    return found


def given_away(slots: Sequence[SlotFacts]) -> tuple[SlotFacts, ...]:
    """About half of the slots' costs in few slots; nothing of a single one.

    The costliest first, each to the part that has less so far; the part of fewer slots goes. Where
    some cannot move, the part with them stays.

    >>> [s.slot for s in given_away([SlotFacts(n, c) for n, c in enumerate((1, 5, 1, 1, 1, 1))])]
    [1]
    """
    staying = [slot for slot in slots if slot.stays]
    parts: tuple[list[SlotFacts], list[SlotFacts]] = (staying, [])
    costs = [sum(slot.cost for slot in staying), 0.0]
    for slot in sorted((s for s in slots if not s.stays), key=lambda s: (-s.cost, s.slot)):
        lesser = int(costs[1] < costs[0])
        parts[lesser].append(slot)
        costs[lesser] += slot.cost
    first_goes = not any(slot.stays for slot in slots) and len(parts[0]) <= len(parts[1])
    return tuple(parts[0] if first_goes else parts[1]) if len(slots) > 1 else ()


def _with_room(rings: Iterable[RingFacts], cost: float, limits: Limits) -> str | None:
    """The ring that has least to do, if it can take this much more."""
    able = [r for r in rings if r.has_room(cost, limits.maximum)]
    return min(able, key=lambda r: (r.capacity, r.id)).id if able else None


def _merge(group: Sequence[RingFacts], limits: Limits) -> list[RingDecision]:
    """The two rings of one composition that have least to do, if one can do all of it."""
    used = [
        r
        for r in group
        if r.slots
        and r.settled_s >= limits.settle_s
        and r.keeps_up
        and r.portable
        and not any(slot.stays for slot in r.slots)  # it would not get empty
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
        useful = ring.state != "failed" and ring.shared and ring.idle_s < limits.warm_s
        if useful and len(kept) < limits.pool:
            kept.append(KeepWarm(ring.id))
        else:
            gone.append(Retire(ring.id))
    return kept + gone
