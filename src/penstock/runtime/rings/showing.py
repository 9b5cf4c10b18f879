"""Rings as SHOW RINGS tells of them: what each does, with the figures of its last micro-batch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock.plan.codec import composition_from
from penstock.plan.specs import FENCE_PREFIX, Composition
from penstock.runtime.registry import Registry
from penstock.runtime.rings.balance import Balance
from penstock.runtime.rings.ring import Ring
from penstock.runtime.rings.running import RunningRings


def kind_of(composition: Composition) -> str:
    """What a ring is called: select, window, join or join_window."""
    if composition.join is None:
        return composition.kind
    return "join" if composition.kind == "select" else "join_window"


def shown_rings(
    registry: Registry, running: RunningRings, balance: Balance
) -> list[dict[str, Any]]:
    """Rings that run, wait or failed."""
    found = []
    for row in registry.rings():
        if row.state == "retired":
            continue
        ring = running.open_rings.get(row.id)
        unread = ring is not None and ring.feeds is not None and not ring.started
        state = row.state
        if state == "running" and (ring is None or unread):
            state = "waiting"
        figures: dict[str, Any] = {}
        if ring is not None:
            progress = _progress(running, ring)
            if state == "running" and "batch" not in progress:  # Spark has not asked for work yet
                state = "starting"
            figures = progress | _selection(running, ring) | balance.figures(ring)
        found.append(
            {
                "ring": row.id,
                "kind": kind_of(composition_from(row.composition)),
                "stream": row.stream,
                "queries": registry.count_queries(row.id),
                "state": state,
                **figures,
                "error": row.error,
            }
        )
    return found


def _progress(running: RunningRings, ring: Ring) -> dict[str, Any]:
    counted = sum(map(running.epochs.last_tuples, ring.parts))
    unplaced = sum(map(running.epochs.unplaced, ring.parts))
    progress = ring.progress(None if ring.place == "spark" else counted)
    return {**progress, "unplaced": unplaced}


def _selection(running: RunningRings, ring: Ring) -> dict[str, Any]:
    """Who evaluates predicates, and in which order; derived attributes by their SQL."""
    if ring.composition.join is not None:
        figures = running.joins.figures(ring.id)
        found: dict[str, Any] = {"selection": ring.place, "ordering": None, "join": None}
        if figures is not None:
            found |= {"join": asdict(figures), "state_rows": figures.state_tuples}
        return found
    if ring.generation.native is not None:
        return {"selection": ring.place, "ordering": None}
    ordering = running.epochs.ordering(ring.id)
    derived = (*ring.composition.derived, *ring.generation.derived)
    texts = {a.name: a.sql for a in derived}
    named = {k: [_shown(texts.get(n, n)) for n in ordering[k]] for k in ("order", "cover")}
    return {"selection": ring.place, "ordering": ordering | named}


def _shown(attribute: str) -> str:
    return "a geofence" if attribute.startswith(FENCE_PREFIX) else attribute
