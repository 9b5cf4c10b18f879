"""Experiment 1: threads for a thousand queries of which more and more are alike (Kim et al., 4.1).

A simulation by the paper's rules of allocation (`control.scheduling`), over the operators of the
compositions that the planner really makes of query texts. What operators cost is assumed, as in the
paper: a weight for each kind, and for each operator between half and one and a half of it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.bench.report import Value
from penstock.bench.rings.queries import composed, draw_shape, text_of
from penstock.control.rings import Limits
from penstock.control.scheduling import Gts, Hmts, Operator, Ots, Policy, QueryGraph, Rots, State
from penstock.plan.composed import Composed
from penstock.plan.specs import Composition

Row = dict[str, Value]

# what a tuple costs, relative to a comparison
WEIGHTS = {"read": 4.0, "derive": 2.0, "select": 1.0, "join": 8.0, "window": 5.0, "project": 1.0}
LIMITS = Limits(minimum=8.0, maximum=80.0)
MAXIMA = (20.0, 40.0, 80.0, 160.0, 320.0)


def policies(limits: Limits) -> dict[str, Policy]:
    return {"ots": Ots(), "gts": Gts(), "hmts": Hmts(limits), "rots": Rots(limits)}


@dataclass(frozen=True, slots=True)
class Workload:
    """Queries of few compositions, and queries that have theirs for themselves."""

    similar: Sequence[QueryGraph]
    others: Sequence[QueryGraph]
    compositions: int  # of the similar ones

    def mixed(self, share: float) -> list[QueryGraph]:
        """As many queries, of which a share is alike."""
        count = round(share * len(self.similar))
        return [*self.similar[:count], *self.others[count:]]


def draw_workload(queries: int, kinds: int, seed: int) -> Workload:
    """Queries through the planner; similar ones in words of their own, the others all different."""
    rng = random.Random(seed)
    drawn = _distinct(rng)
    shapes = [next(drawn)[0] for _ in range(kinds)]
    planned = [composed(text_of(rng.choice(shapes), rng)) for _ in range(queries)]
    return Workload(
        [graph_of(number, query) for number, query in enumerate(planned)],
        [graph_of(number, next(drawn)[1]) for number in range(queries)],
        len({query.composition for query in planned}),
    )


def _distinct(rng: random.Random) -> Iterator[tuple]:
    """Shapes, each with a query, no two of one composition."""
    seen: set[Composition] = set()
    while True:
        shape = draw_shape(rng)
        query = composed(text_of(shape, rng))
        if query.composition not in seen:
            seen.add(query.composition)
            yield shape, query


def graph_of(number: int, query: Composed) -> QueryGraph:
    """The operators of a query, from its streams to its results."""
    return QueryGraph(number, tuple(_operator(*each) for each in _steps(query.composition)))


def _steps(composition: Composition) -> Iterable[tuple[str, object]]:
    join = composition.join
    for part in (composition,) if join is None else join.inputs:
        yield "read", part.stream
        if part.derived:
            yield "derive", (part.stream, [a.sql for a in part.derived])
        yield "select", (part.stream, part.computed, part.shipped)
    if join is not None:
        yield "join", ([(i.stream, i.keys) for i in join.inputs], join.residual, join.steps)
    if composition.kind == "window":
        yield "window", (composition.keys, composition.partials, composition.aggregates)
    yield "project", ([o.sql for o in composition.outputs], composition.having)


def _operator(kind: str, about: object) -> Operator:
    does = f"{kind} {about}"
    part = int.from_bytes(hashlib.sha256(does.encode()).digest()[:4]) / 2**32
    return Operator(does, WEIGHTS[kind] * (0.5 + part))


def threads_of(policy: Policy, queries: Iterable[QueryGraph]) -> State:
    state = State()
    for query in queries:
        state = state.with_query(policy.place(query, state))
    return state


def by_share(workload: Workload, shares: Sequence[float]) -> list[Row]:
    """Threads by each policy, for growing shares of similar queries."""
    rows: list[Row] = []
    for share in shares:
        queries = workload.mixed(share)
        for name, policy in policies(LIMITS).items():
            state = threads_of(policy, queries)
            rows.append(
                {
                    "experiment": "1 threads",
                    "similar_percent": round(100 * share),
                    "policy": name,
                    "queries": len(queries),
                    "operators": sum(len(query.operators) for query in queries),
                    "threads": len(state.threads),
                    "slots_per_thread": _slots(state) / len(state.threads),
                    "valid": is_valid(state, queries, LIMITS if name == "rots" else None),
                }
            )
    return rows


def by_maximum(workload: Workload, maxima: Sequence[float]) -> list[Row]:
    """Rings for similar queries only, by how much a ring may take."""
    rows: list[Row] = []
    for maximum in maxima:
        limits = Limits(minimum=LIMITS.minimum, maximum=maximum)
        state = threads_of(Rots(limits), workload.similar)
        rows.append(
            {
                "experiment": "1 maximum",
                "maximum": maximum,
                "policy": "rots",
                "threads": len(state.threads),
                "slots_per_thread": _slots(state) / len(state.threads),
                "valid": is_valid(state, workload.similar, limits),
            }
        )
    return rows


def by_churn(workload: Workload, seed: int) -> list[Row]:
    """Every query goes and another one comes: threads that had to be made for them.

    Half of them are similar, and so are those that follow them; the others were never there before.
    """
    share = 0.5
    first, rng = workload.mixed(share), random.Random(seed)
    count, alike = len(first), round(share * len(first))
    coming = [*rng.choices(workload.similar, k=alike), *workload.others[: count - alike]]
    later = [QueryGraph(count + n, query.operators) for n, query in enumerate(coming)]
    order = rng.sample(range(count), count)
    rows: list[Row] = []
    for name, policy in policies(LIMITS).items():
        state = threads_of(policy, first)
        before = state.made
        for number in order:
            state = state.without_query(number, policy.keeps_threads)
            state = state.with_query(policy.place(later[number], state))
        rows.append(
            {
                "experiment": "1 churn",
                "similar_percent": round(100 * share),
                "policy": name,
                "queries_replaced": count,
                "threads_made_again": state.made - before,
                "threads_in_use": sum(bool(t.slots) for t in state.threads.values()),
                "threads_in_pool": sum(not t.slots for t in state.threads.values()),
                "valid": is_valid(state, later, LIMITS if name == "rots" else None),
            }
        )
    return rows


def _slots(state: State) -> int:
    return sum(len(thread.slots) for thread in state.threads.values())


def is_valid(state: State, queries: Sequence[QueryGraph], limits: Limits | None) -> bool:
    """Whether each query has all its operators, in order, and no ring too many queries."""
    wanted: Mapping[int, str] = {q.id: " → ".join(o.does for o in q.operators) for q in queries}
    found = {
        query: " → ".join(state.threads[thread].composition for thread in threads)
        for query, threads in state.queries.items()
    }
    within = limits is None or all(
        thread.capacity <= limits.maximum or len(thread.slots) == 1
        for thread in state.threads.values()
    )
    return found == wanted and within
