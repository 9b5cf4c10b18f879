"""EXPLAIN of a join: where its inputs are read, and what the cost model expects."""

from __future__ import annotations

from statistics import fmean

from penstock.control.join_costs import StepCosts, biht_cost, mjoin_cost
from penstock.plan.bound import BoundQuery
from penstock.plan.composed import Composed
from penstock.plan.explain import Place
from penstock.plan.explain_join import JoinCosts, explain_join
from penstock.plan.explain_ring import Sharing
from penstock.runtime.compile import runs_in_reader
from penstock.runtime.joining.monitor import JoinFigures
from penstock.schema import Schema

_ASSUMED = 0.5  # selectivity while nothing is known


def explain_join_plan(
    query: BoundQuery,
    composed: Composed,
    outputs: Schema,
    sharing: Sharing | None,
    figures: JoinFigures | None,
) -> str:
    places: list[Place] = [
        "reader" if runs_in_reader(part.composition, source.stream) else "stage"
        for source, part in zip(query.inputs, composed.inputs, strict=True)
    ]
    costs = expected_costs(len(query.inputs), figures)
    return explain_join(query, composed, outputs, places, costs, sharing)


def expected_costs(streams: int, figures: JoinFigures | None) -> JoinCosts:
    """Of a tuple, whichever stream it belongs to; others are asked in the best order."""
    # tables without keys tell nothing: after a restart they are empty until tuples come
    seen = figures.selectivities if figures is not None and figures.keys else None
    selectivities = [_ASSUMED] * streams if seen is None else list(seen)
    asked = [
        sorted(selectivities[:number] + selectivities[number + 1 :]) for number in range(streams)
    ]
    return JoinCosts(
        fmean(selectivities),
        seen is None,
        fmean(biht_cost(1.0, others, StepCosts()) for others in asked),
        fmean(mjoin_cost(1.0, others, StepCosts()) for others in asked),
    )
