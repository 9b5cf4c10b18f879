"""Threads for query graphs: the paper's four ways to allocate them (Kim et al., 2 and 3).

OTS gives every operator a thread, GTS every query. HMTS cuts a query into virtual operators, each
as many operators as stay within the minimum threshold together, and gives each a thread that goes
with the query. ROTS cuts the same way, but a virtual operator is a ring: queries with the same
operators share it up to the maximum threshold, and it stays when they go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, assert_never

from penstock.control.rings import (
    Create,
    Limits,
    QueryFacts,
    Reuse,
    RingFacts,
    Share,
    SlotFacts,
    place,
)


@dataclass(frozen=True, slots=True)
class Operator:
    """What it does, in words that are equal if and only if it does the same; its mean time."""

    does: str
    cost: float


@dataclass(frozen=True, slots=True)
class QueryGraph:
    id: int
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """The threads of a query; `created`: those that did not exist, by what they do."""

    query: int
    threads: tuple[str, ...]
    costs: tuple[float, ...]
    created: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class State:
    """All threads by id, and which a query has."""

    threads: Mapping[str, RingFacts] = field(default_factory=lambda: MappingProxyType({}))
    queries: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    made: int = 0  # threads ever

    def alike(self, composition: str) -> list[RingFacts]:
        return [t for t in self.threads.values() if t.composition == composition]

    def with_query(self, allocation: Allocation) -> State:
        threads = dict(self.threads)
        for thread, does in allocation.created.items():
            threads[thread] = RingFacts(thread, does)
        for thread, cost in zip(allocation.threads, allocation.costs, strict=True):
            slots = (*threads[thread].slots, SlotFacts(allocation.query, cost))
            threads[thread] = replace(threads[thread], slots=slots)
        queries = {**self.queries, allocation.query: allocation.threads}
        return State(threads, queries, self.made + len(allocation.created))

    def without_query(self, query: int, keeps_threads: bool) -> State:
        """keeps_threads: threads without a query stay, for the next one."""
        threads = dict(self.threads)
        for thread in self.queries[query]:
            slots = tuple(s for s in threads[thread].slots if s.slot != query)
            threads[thread] = replace(threads[thread], slots=slots)
            if not (slots or keeps_threads):
                del threads[thread]
        queries = {q: t for q, t in self.queries.items() if q != query}
        return State(threads, queries, self.made)


class Policy(Protocol):
    @property
    def keeps_threads(self) -> bool:
        """Whether threads outlive their queries."""
        ...

    def place(self, query: QueryGraph, state: State) -> Allocation:
        """The threads for a query that comes now."""
        ...


def _own_threads(
    query: QueryGraph, segments: Iterable[Sequence[Operator]], state: State
) -> Allocation:
    """A new thread for each segment."""
    cut = list(segments)
    names = [f"t{state.made + number}" for number in range(len(cut))]
    created = {name: described(segment) for name, segment in zip(names, cut, strict=True)}
    return Allocation(query.id, tuple(names), tuple(map(cost_of, cut)), created)


@dataclass(frozen=True, slots=True)
class Ots:
    """A thread for each operator."""

    keeps_threads: bool = False

    def place(self, query: QueryGraph, state: State) -> Allocation:
        return _own_threads(query, ([operator] for operator in query.operators), state)


@dataclass(frozen=True, slots=True)
class Gts:
    """A thread for each query."""

    keeps_threads: bool = False

    def place(self, query: QueryGraph, state: State) -> Allocation:
        return _own_threads(query, [query.operators], state)


@dataclass(frozen=True, slots=True)
class Hmts:
    """A thread for each virtual operator of each query."""

    limits: Limits
    keeps_threads: bool = False

    def place(self, query: QueryGraph, state: State) -> Allocation:
        return _own_threads(query, segments(query.operators, self.limits.minimum), state)


@dataclass(frozen=True, slots=True)
class Rots:
    """A thread for each ring; virtual operators of the same operators share rings."""

    limits: Limits
    keeps_threads: bool = True

    def place(self, query: QueryGraph, state: State) -> Allocation:
        threads: list[str] = []
        created: dict[str, str] = {}
        cut = segments(query.operators, self.limits.minimum)
        for segment in cut:
            does = described(segment)
            alike = [t for t in state.alike(does) if t.id not in threads]
            match place(QueryFacts(does, cost_of(segment)), alike, self.limits):
                case Share(thread) | Reuse(thread):
                    threads.append(thread)
                case Create():
                    threads.append(f"t{state.made + len(created)}")
                    created[threads[-1]] = does
                case other:
                    assert_never(other)
        return Allocation(query.id, tuple(threads), tuple(map(cost_of, cut)), created)


def segments(operators: Sequence[Operator], minimum: float) -> list[tuple[Operator, ...]]:
    """Neighbours whose costs together stay within the threshold; a larger operator is alone.

    >>> [len(s) for s in segments([Operator(f"o{c}", c) for c in (1, 2, 1, 9, 1)], minimum=4)]
    [3, 1, 1]
    """
    found: list[tuple[Operator, ...]] = []
    for operator in operators:
        if found and cost_of(found[-1]) + operator.cost <= minimum:
            found[-1] = (*found[-1], operator)
        else:
            found.append((operator,))
    return found


def cost_of(segment: Sequence[Operator]) -> float:
    return sum(operator.cost for operator in segment)


def described(segment: Sequence[Operator]) -> str:
    return " → ".join(operator.does for operator in segment)
