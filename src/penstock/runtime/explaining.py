"""EXPLAIN: what is known of a checked query and of the ring that it is in, or would be."""

from __future__ import annotations

from penstock.plan.explain import explain_query
from penstock.runtime.joining.explain import explain_join_plan
from penstock.runtime.planning import Plan
from penstock.runtime.registry import Registry
from penstock.runtime.rings.manager import RingManager
from penstock.runtime.sharing import joint, sharing_of
from penstock.runtime.streams import readable
from penstock.runtime.workspace import Workspace


def explain_plan(
    plan: Plan, slot: int | None, registry: Registry, manager: RingManager, workspace: Workspace
) -> str:
    """The text for a query that runs in a slot, or (None) for one that may come."""
    composition = plan.composed.composition
    if slot is None:
        ring = manager.find(composition)
    else:
        own = registry.query_by_slot(slot).ring
        ring = next(r for r in registry.rings() if r.id == own)
    if composition.join is not None:
        figures = None if ring is None else manager.join_figures(ring.id)
        sharing = None if ring is None else joint(registry, ring.id, slot)
        return explain_join_plan(plan.bound, plan.composed, plan.outputs, sharing, figures)
    stream = readable(plan.bound.source.stream, workspace)
    terms = plan.composed.terms
    sharing = None if ring is None else sharing_of(registry, ring.id, terms, slot)
    place = manager.place(ring, composition, stream)
    return explain_query(plan.bound, plan.composed, plan.outputs, place, sharing)
