"""SHOW EXCHANGE: the queues of derived streams and who reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.exchange.failures import ExchangeError
from penstock.plan.catalog import Stream
from penstock.runtime.derived.definition import queue_options

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

COLUMNS = (
    "stream", "node", "mode", "acting", "changes", "length", "used", "capacity", "in_per_s",
    "out_per_s", "backup", "lost", "queue", "consumer", "lag", "unsafe", "error",
)  # fmt: skip


def show_exchange(engine: Engine) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """A line per stream and consumer: length, lag and unsafe are numbers of record batches."""
    rows: list[tuple[Any, ...]] = []
    for stream in engine.registry.streams():
        if stream.source == "derived":
            rows += _lines(engine, stream)
    return COLUMNS, rows


def _lines(engine: Engine, stream: Stream) -> list[tuple[Any, ...]]:
    options = queue_options(stream)
    where = options.node or "engine"
    try:
        seen = engine.exchange.describe(stream)
    except ExchangeError as error:
        unknown = (None,) * (len(COLUMNS) - 4)
        return [(stream.name, where, options.mode, *unknown, error.message)]
    queue = (
        stream.name,
        where,
        options.mode,
        seen["acting"],
        seen["mode_changes"],
        seen["end"] - seen["first"],
        seen["used_bytes"],
        seen["capacity"],
        round(seen["inflow_bytes_per_s"]),
        round(seen["trimmed_bytes_per_s"]),
        seen["backup_bytes"],
        seen["lost_rows"],
        engine.exchange.queue_name(stream),
    )
    consumers = [
        (name, seen["end"] - levels["delivered"], seen["end"] - levels["safe"], None)
        for name, levels in sorted(seen["consumers"].items())
    ]
    return [(*queue, *consumer) for consumer in consumers or [(None,) * 4]]
