"""EXPLAIN of a join: where its inputs are read, and what the cost model expects."""

from __future__ import annotations

from penstock.control.join_costs import StepCosts, biht_cost, mjoin_cost
from penstock.plan.bind import BoundQuery
from penstock.plan.composed import Composed
from penstock.plan.explain import Place, Sharing
from penstock.plan.explain_join import JoinCosts, explain_join
from penstock.runtime.compile import runs_in_reader
from penstock.runtime.registry import Registry, RingRow
from penstock.schema import Schema

_ASSUMED = 0.5  # selectivity while nothing is known


def explain_join_plan(
    query: BoundQuery,
    composed: Composed,
    outputs: Schema,
    ring: RingRow | None,
    registry: Registry,
) -> str:
    places: list[Place] = [
        "reader" if runs_in_reader(part.composition, source.stream) else "stage"
        for source, part in zip(query.inputs, composed.inputs, strict=True)
    ]
    others = [_ASSUMED] * (len(query.inputs) - 1)
    costs = JoinCosts(
        _ASSUMED,
        True,
        biht_cost(1.0, others, StepCosts()),
        mjoin_cost(1.0, others, StepCosts()),
    )
    sharing = None if ring is None else Sharing(ring.id, registry.count_queries(ring.id), {})
    return explain_join(query, composed, outputs, places, costs, sharing)
