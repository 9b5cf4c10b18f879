"""A registered query as its owner holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine
    from penstock.runtime.registry import QueryRow, RingRow
    from penstock.runtime.rings.quarantine import Care
    from penstock.runtime.sinks.live import Subscription


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """State, and counts that go on over restarts. `waiting`: its stream is not attached yet.

    cut: rows that were kept for the sink but had to go (`results_bytes`). ended: it failed, or is
    quarantined, and is not tried again by itself.
    """

    state: str  # running, waiting, quarantined, failed, refused, dropped
    ring: str
    rows: int
    late: int
    lost: int
    error: str | None = None
    cut: int = 0
    ended: bool = False

    def __str__(self) -> str:
        return self.state


def query_status(query: QueryRow, ring: RingRow, is_open: bool, care: Care) -> QueryStatus:
    """A query's own state, unless its ring has failed or waits for a DataFrame."""
    state, error = query.state, query.error
    if state == "running" and ring.state == "failed":
        state, error = "failed", ring.error
    elif state == "running" and not is_open:
        state, error = "waiting", f"hand the stream over: engine.stream('{ring.stream}', …)"
    cut = f"{care.cut:,} kept rows were cut (results_bytes)" if care.cut else ""
    told = "; ".join(part for part in (error, care.told, cut) if part) or None
    ended = state == "failed" or care.given_up
    counts = query.rows, query.late, query.lost
    return QueryStatus(state, query.ring, *counts, told, care.cut, ended)


@dataclass(frozen=True, slots=True)
class Query:
    """A query: `results()`, `subscribe()`, `status`, `disorder`, `explain()`,
    `resume()`, `drop()`."""

    engine: Engine
    slot: int
    name: str
    notes: tuple[str, ...] = ()

    def results(self) -> pa.Table:
        """All rows kept for this query, oldest first, as an Arrow table.

        Rows are kept in the workspace for queries without a sink of their own, in memory for
        `sink='memory'`; results that went to a file sink, a function or the terminal are there.
        """
        return self.engine.results(self)

    def subscribe(self, limit: int = 10_000) -> Subscription:
        """Results from now on, as they come, besides those that the sink gets.

        An iterator of Arrow tables that ends with the query or the engine. At most `limit` rows
        wait to be taken: of a slow reader the oldest are dropped and counted in `missed`, and the
        query goes on.

        >>> from penstock import Engine
        >>> from penstock.testing import ScriptedStream
        >>> engine = Engine(spark)
        >>> readings = ScriptedStream(engine, "Readings", "id INT, ts TIMESTAMP", event_time="ts")
        >>> query = engine.register("SELECT id FROM Readings WHERE id > 1")
        >>> with query.subscribe() as results:
        ...     readings.push([{"id": 1, "ts": 0}, {"id": 2, "ts": 0}])
        ...     results.get(timeout=60).to_pylist(), results.missed
        ([{'id': 2}], 0)
        >>> engine.stop()
        """
        return self.engine.subscribe(self, limit)

    @property
    def text(self) -> str:
        return self.engine.registry.query_by_slot(self.slot).text

    @property
    def status(self) -> QueryStatus:
        return self.engine.status_of(self)

    @property
    def disorder(self) -> dict[str, Any]:
        """How late its stream's tuples come and how the promised ratio is kept; plain data."""
        return self.engine.disorder_of(self)

    def explain(self) -> str:
        """How the query is run: selection, windows, ring, with whom it shares."""
        return self.engine.explain(self.text, self.slot)

    def resume(self) -> None:
        """Try a quarantined query's sink now, or a failed query's ring (RESUME QUERY)."""
        self.engine.resume_query(self.name)

    def drop(self) -> None:
        """Take the query out at the next micro-batch; nothing else notices."""
        self.engine.drop_query(self.name)
