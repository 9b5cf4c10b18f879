"""What can be seen of an engine, as plain data: streams with their disorder, rings, queries.

Rings that are open tell their figures themselves; of the others the registry holds the last ones.
Times are in microseconds, in keys that end in `_us`; None where nothing is known yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

from penstock.control.disorder import Disorder
from penstock.plan.catalog import Stream
from penstock.plan.codec import composition_from
from penstock.runtime.query import query_status
from penstock.runtime.registry import ALONE, QueryRow, Registry, RingRow
from penstock.runtime.rings.quarantine import Care
from penstock.runtime.streams import rules_of


class Running(Protocol):
    """What is asked of the rings that run now; a RingManager."""

    def describe(self) -> list[dict[str, Any]]: ...

    def disorder(self, ring: str) -> dict[str, Any]: ...

    def is_open(self, ring: str) -> bool: ...

    def care(self, query: QueryRow) -> Care: ...


def metrics_of(registry: Registry, running: Running) -> dict[str, Any]:
    """Figures of all streams, rings and queries; `json.dumps` takes them as they are."""
    rings = {ring.id: ring for ring in registry.rings()}
    parts = registry.rings(inputs=True)
    queries = registry.queries()
    streams = registry.streams()
    return {
        "streams": {s.name: _stream(registry, running, s, parts) for s in streams},
        "rings": [{k: _plain(k, v) for k, v in ring.items()} for ring in running.describe()],
        "queries": {q.name: _query(q, rings[q.ring], running) for q in queries},
    }


def ring_disorder(
    registry: Registry, running: Running, stream: Stream, ring: RingRow
) -> dict[str, Any]:
    """How late a window ring's tuples come and what is done about it.

    Beside the figures of `Disorder.metrics`: per, the column that tells sources apart; apart,
    whether each source's windows close on their own. If so, the buffer is that of the slowest.
    """
    composition = composition_from(ring.composition)
    rules = rules_of(stream, composition)
    figures = running.disorder(ring.id)
    if not figures:
        disorder = Disorder(rules)
        if (saved := registry.progress(ring.id)) is not None:
            disorder.restore(saved[1])
            disorder.hold_at(saved[2])
        figures = disorder.metrics()
    sources = {
        name: {k: _plain(k, v) for k, v in source.items()}
        for name, source in figures["sources"].items()
    }
    figures = {k: _plain(k, v) for k, v in figures.items()}
    if rules.apart:
        lags = [s["lag_us"] for s in sources.values() if s["lag_us"] is not None]
        figures |= {"buffer_us": max(lags, default=None), "buffer_tuples": None}
    per = composition.per if rules.per else None
    return {"ring": ring.id, **figures, "per": per, "apart": rules.apart, "sources": sources}


def _stream(
    registry: Registry, running: Running, stream: Stream, rings: Iterable[RingRow]
) -> dict[str, Any]:
    own = stream.name.lower()
    rows, unplaced, late, lost = registry.stream_counts(stream.name)
    return {
        "queries": len(registry.readers_of(stream.name)),
        "rows": rows,
        "late": late,
        "lost": lost,
        "bad": registry.bad_count(stream.name),
        "unplaced": unplaced,
        "rings": [
            ring_disorder(registry, running, stream, r)
            for r in rings
            if r.stream.lower() == own and r.state != "retired" and _has_punctuation(r)
        ],
    }


def _has_punctuation(ring: RingRow) -> bool:
    composition = composition_from(ring.composition)
    feeds = ring.replay == ALONE and composition.join is None  # a derived stream
    return feeds or composition.kind != "select"


def _query(query: QueryRow, ring: RingRow, running: Running) -> dict[str, Any]:
    status = query_status(query, ring, running.is_open(ring.id), running.care(query))
    return {
        "state": status.state,
        "ring": status.ring,
        "rows": status.rows,
        "late": status.late,
        "lost": status.lost,
        "cut": status.cut,
    }


def _plain(key: str, value: Any) -> Any:
    """JSON knows neither infinity nor NaN; whole microseconds are exact enough."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return round(value) if key.endswith("_us") else value
