"""Where a query runs: in a ring that exists, in a warm one, or in a new one (Kim et al., 3.2.1).

A ring is one running pipeline of one composition; a query of that composition takes a slot in it.
The capacity value of a ring is the share of its trigger interval in which it is busy: what it costs
to run at all (reading, decoding) and what each slot adds. A query shares a ring if the sum stays
within the maximum. An empty ring is kept for a while and takes the next query of its composition,
however large: a query that is too large for any ring still has to run somewhere.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

_NEAR = 2.0  # micro-batches: what a ring may have left to read of what another one has read


@dataclass(frozen=True, slots=True)
class Limits:
    """What the user allows.

    maximum: capacity value up to which a ring takes queries. minimum: up to which two rings become
    one. warm_s: how long an empty ring is kept; pool: how many of them. starting: how many rings
    may start at once. settle_s: how long a ring is left alone after its slots have moved. copies:
    how many rings of one composition there may be: all of them read the stream, and where the
    machine itself is full another one only adds to it.
    """

    minimum: float = 0.3
    maximum: float = 0.8
    warm_s: float = 300.0
    pool: int = 8
    starting: int = 1
    settle_s: float = 30.0
    copies: int = 1000

    def __post_init__(self) -> None:
        if not 0 < self.minimum < self.maximum:
            raise ValueError(f"minimum {self.minimum} is not between 0 and {self.maximum}")
        if self.pool < 0 or self.starting < 1 or self.copies < 1:
            raise ValueError("the pool has room for 0 rings or more, 1 or more may start and run")


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """A query in a ring, or several as one.

    cost: what they add to the ring's capacity value. stays: it cannot move now, since results wait
    for its sink.
    """

    slot: int
    cost: float
    queries: int = 1
    stays: bool = False


@dataclass(frozen=True, slots=True)
class RingFacts:
    """A ring as it is now.

    fixed: its capacity value without any slot. measured: with those it has had for a while.
    backlog_per_s: by how much what waits at the source grows, if it falls behind. idle_s: since the
    last slot went, of an empty ring. settled_s: since slots came or went by a decision. portable:
    whether a ring that exists can take its slots; those of others need a copy of it. busy: the
    share of the time in which its micro-batches run, whatever they do. shared: whether other
    queries may come to it. behind: how many micro-batches what waits at the source would take.
    """

    id: str
    composition: str
    slots: tuple[SlotFacts, ...] = ()
    fixed: float = 0.0
    measured: float = 0.0
    backlog_per_s: float = 0.0
    state: Literal["starting", "running", "failed"] = "running"
    idle_s: float = 0.0
    settled_s: float = float("inf")
    portable: bool = True
    busy: float = 0.0
    shared: bool = True
    behind: float = 0.0

    @property
    def keeps_up(self) -> bool:
        """Whether it has read soon what any other ring of its stream has."""
        return self.backlog_per_s <= 0 and self.behind <= _NEAR

    @property
    def load(self) -> float:
        """The capacity value that its slots give it, those not yet measured too."""
        return self.fixed + sum(slot.cost for slot in self.slots)

    @property
    def capacity(self) -> float:
        """The capacity value: as measured, or as its slots will make it."""
        return max(self.measured, self.load) if self.slots else self.fixed

    def has_room(self, cost: float, maximum: float) -> bool:
        """Whether it may take this much more and keeps up with its source."""
        return self.backlog_per_s <= 0 and self.capacity + cost <= maximum


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """A query to place; cost: what it is expected to add to a ring."""

    composition: str
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """A slot beside others."""

    ring: str


@dataclass(frozen=True, slots=True)
class Reuse:
    """A slot in a ring of the pool."""

    ring: str


@dataclass(frozen=True, slots=True)
class Create:
    composition: str


Placement = Share | Reuse | Create


def place(query: QueryFacts, rings: Iterable[RingFacts], limits: Limits) -> Placement:
    """Where a query goes: the fullest ring with room for it, else a warm one, else a new one.

    If there may be no more, the ring with least to do takes it.

    >>> rings = [RingFacts("a", "x", (SlotFacts(1, 0.7),)), RingFacts("b", "x")]
    >>> place(QueryFacts("x", 0.1), rings, Limits()), place(QueryFacts("x", 0.2), rings, Limits())
    (Share(ring='a'), Reuse(ring='b'))
    """
    alike = [r for r in rings if r.composition == query.composition and r.state != "failed"]
    used = [r for r in alike if r.slots and r.has_room(query.cost, limits.maximum)]
    if used:
        return Share(max(used, key=lambda ring: (ring.capacity, ring.id)).id)
    empty = [r for r in alike if not r.slots]
    if empty:
        return Reuse(min(empty, key=lambda r: (r.state != "running", r.idle_s, r.id)).id)
    if len(alike) >= limits.copies:
        return Share(min(alike, key=lambda ring: (ring.capacity, ring.id)).id)
    return Create(query.composition)


def expected_cost(composition: str, rings: Iterable[RingFacts]) -> float:
    """What one more query adds, as those of its composition do on average; 0 if there are none.

    >>> expected_cost("x", [RingFacts("a", "x", (SlotFacts(-1, 0.5, queries=2),))])
    0.25
    """
    slots = [s for r in rings if r.composition == composition for s in r.slots]
    return sum(s.cost for s in slots) / sum(s.queries for s in slots) if slots else 0.0


def apportioned(busy: float, fixed: float, weights: Mapping[int, float]) -> tuple[SlotFacts, ...]:
    """A ring's measured busy share as costs of its slots, by what each had to do with its tuples.

    >>> [(s.slot, s.cost) for s in apportioned(busy=0.5, fixed=0.2, weights={1: 2, 2: 1})]
    [(1, 0.2), (2, 0.1)]
    """
    total = sum(weights.values())
    shared = max(0.0, busy - fixed)
    return tuple(
        SlotFacts(slot, round(shared * (weight / total), 12) if total else 0.0)
        for slot, weight in weights.items()
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ring that has been decided on and has not been started yet."""

    ring: str
    composition: str


def next_starts(
    waiting: Sequence[Waiting], starting: int, limits: Limits, had: Mapping[str, int]
) -> list[str]:
    """Which rings start now: of the composition that had fewest starts, then of the first to come.

    waiting: in the order in which they came. had: starts of each composition since any ring waits.
    """
    queues: dict[str, deque[str]] = defaultdict(deque)
    for each in waiting:
        queues[each.composition].append(each.ring)
    turns = {composition: had.get(composition, 0) for composition in queues}
    chosen: list[str] = []
    while turns and len(chosen) < limits.starting - starting:
        composition = min(turns, key=turns.__getitem__)
        chosen.append(queues[composition].popleft())
        turns[composition] += 1
        if not queues[composition]:
            del turns[composition]
    return chosen
