"""SHOW and DESCRIBE as tables: columns and rows."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from penstock.control.punctuation import NEVER_US
from penstock.plan.catalog import Stream
from penstock.runtime.sinks.spec import SinkSpec

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

Table = tuple[tuple[str, ...], list[tuple[Any, ...]]]


def show_streams(engine: Engine) -> Table:
    columns = (
        "stream", "source", "columns", "event_time", "queries", "rows", "late", "bad",
        "delay_ms", "punctuation",
    )  # fmt: skip
    rings = engine.registry.rings()
    rows = []
    for stream in engine.registry.streams():
        own = [r.id for r in rings if r.stream.lower() == stream.name.lower()]
        known = [p for r in own if (p := engine.registry.progress(r)) is not None]
        reached = max((p[2] for p in known), default=NEVER_US)
        delays = [p[1]["max_delay_us"] for p in known if p[1]["max_delay_us"] is not None]
        late = [q.late for r in own for q in engine.registry.queries(r, dropped=True)]
        rows.append(
            (
                stream.name,
                stream.source,
                len(stream.schema.fields),
                stream.event_time,
                len(engine.readers_of(stream.name)),
                max((p[1]["rows"] for p in known), default=0),
                sum(late),
                engine.registry.bad_count(stream.name),
                max(delays) // 1000 if delays else None,
                instant(reached),
            )
        )
    return columns, rows


def show_queries(engine: Engine) -> Table:
    columns = ("query", "state", "ring", "rows", "late", "lost", "sink", "error")
    rows = []
    for query in engine.queries():
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


def show_rings(engine: Engine) -> Table:
    columns = (
        "ring", "kind", "stream", "queries", "state", "batch", "batch_ms", "rows_per_s",
        "state_rows", "error",
    )  # fmt: skip
    rows = [tuple(_short(ring.get(c)) for c in columns) for ring in engine.rings()]
    return columns, rows


def _short(value: Any) -> Any:
    return round(value) if isinstance(value, float) else value


def describe_stream(stream: Stream) -> Table:
    roles = {stream.event_time: "event time", stream.arrival_time: "arrival time"}
    rows = [(f.name, f.type, roles.get(f.name, "")) for f in stream.schema.fields]
    return ("column", "type", "role"), rows


def instant(micros: int) -> str | None:
    """An event time as text; None before the first punctuation."""
    if micros == NEVER_US:
        return None
    try:
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us"
    return moment.isoformat(sep=" ", timespec="milliseconds")
