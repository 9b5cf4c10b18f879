"""SHOW and DESCRIBE as tables: columns and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.plan.catalog import GEOMETRY, RegionSet, Stream
from penstock.runtime.figures import instant, odd_times, share, span, target
from penstock.runtime.query import Query
from penstock.runtime.sinks.spec import SinkSpec

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

Table = tuple[tuple[str, ...], list[tuple[Any, ...]]]


def show_streams(engine: Engine) -> Table:
    return streams_table(engine.registry.streams(), engine.metrics())


def streams_table(streams: Iterable[Stream], metrics: Mapping[str, Any]) -> Table:
    """A line per stream; where several window rings judge it, a line for each of them."""
    columns = (
        "stream", "source", "queries", "rows", "late", "bad", "estimator", "target", "ratio",
        "recent", "delay_p50", "delay_p99", "delay_max", "buffer", "waiting", "punctuation", "odd",
        "unplaced",
    )  # fmt: skip
    rows = []
    for stream in streams:
        known = metrics["streams"][stream.name]
        counts = tuple(known[c] for c in ("queries", "rows", "late", "bad"))
        for ring in known["rings"] or [None]:
            disorder = (None,) * 11 if ring is None else _disorder(ring)
            rows.append((stream.name, stream.source, *counts, *disorder, known["unplaced"]))
    return columns, rows


def _disorder(ring: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        ring["estimator"],
        target(ring["target"]),
        share(ring["ratio"]),
        share(ring["recent_ratio"]),
        span(ring["delay_p50_us"]),
        span(ring["delay_p99_us"]),
        span(ring["delay_max_us"]),
        span(ring["buffer_us"]),
        ring["buffer_tuples"],
        instant(ring["punctuation_us"]),
        odd_times(ring),
    )


def show_queries(engine: Engine) -> Table:
    columns = ("query", "state", "ring", "rows", "late", "lost", "sink", "error")
    rows = []
    refused = [Query(engine, row.slot, row.name) for row in engine.registry.refused()]
    for query in engine.queries() + refused:
        status = query.status
        sink = SinkSpec.loads(engine.registry.query_by_slot(query.slot).sink)
        rows.append(
            (
                query.name,
                status.state,
                status.ring,
                status.rows,
                status.late,
                status.lost,
                str(sink),
                status.error,
            )
        )
    return columns, rows


def show_regions(engine: Engine) -> Table:
    columns = ("regions", "count", "attributes", "coordinates", "queries", "file")
    rows = []
    for regions in engine.registry.regions():
        rings = engine.registry.rings_of_regions(regions.name)
        queries = sum(map(engine.registry.count_queries, rings))
        attributes = ", ".join(n for n in regions.schema.names if n != GEOMETRY)
        kind = "planar" if regions.planar else "degrees"
        rows.append((regions.name, regions.count, attributes, kind, queries, regions.path))
    return columns, rows


def show_rings(engine: Engine) -> Table:
    columns = (
        "ring", "kind", "stream", "queries", "selection", "state", "capacity", "batch", "batch_ms",
        "rows_per_s", "backlog", "state_rows", "state_bytes", "note", "error",
    )  # fmt: skip
    rows = [tuple(_short(c, ring.get(c)) for c in columns) for ring in engine.rings()]
    return columns, rows


def _short(column: str, value: Any) -> Any:
    if column == "capacity":
        return share(value)
    return round(value) if isinstance(value, float) else value


def describe_stream(stream: Stream) -> Table:
    roles = {stream.event_time: "event time", stream.arrival_time: "arrival time"}
    rows = [(f.name, f.type, roles.get(f.name, "")) for f in stream.schema.fields]
    return ("column", "type", "role"), rows


def describe_regions(regions: RegionSet) -> Table:
    rows = [(f.name, f.type, "area" if f.name == GEOMETRY else "") for f in regions.schema.fields]
    return ("column", "type", "role"), rows
