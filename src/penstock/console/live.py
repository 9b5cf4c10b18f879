"""The demo's screen: what an engine is doing now, as a live view or as one line."""

from __future__ import annotations

import datetime as dt
import statistics
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from penstock.console.tables import rich_table
from penstock.runtime.figures import instant, share, span, target

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_QUERY_COLUMNS = ("queries", "state", "rows", "latency s")


@dataclass(slots=True)
class Tally:
    """What a query has given so far; the sink of a demo query.

    Latency: from the moment a result could be known (a window's end, a tuple's event time) to its
    delivery, of the newest row of each delivery.
    """

    rows: int = 0
    deliveries: int = 0
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=10))
    last: pa.Table | None = None

    def __call__(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self.deliveries += 1
        self.last = rows
        column = next((c for c in ("window_end", "ts") if c in rows.schema.names), None)
        if column is not None and (newest := pc.max(rows.column(column)).as_py()) is not None:
            now = dt.datetime.now(newest.tzinfo)
            self.latencies_s.append((now - newest).total_seconds())

    @property
    def latency_s(self) -> float | None:
        """The median of the last deliveries."""
        known = list(self.latencies_s)
        return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class Figures:
    """One look at the engine."""

    seconds: float
    rows: int
    rows_per_s: float
    late: int
    disorder: Mapping[str, Any] | None  # of the stream's first window ring
    queries: dict[str, str]  # name -> state
    rings: tuple[dict[str, Any], ...]


class Watch:
    """Looks at one stream of an engine; rates are those between two looks."""

    def __init__(self, engine: Engine, stream: str) -> None:
        self._engine = engine
        self._stream = stream
        self._began = time.monotonic()
        self._looks: deque[tuple[float, int]] = deque(maxlen=10)
        self.restarted: set[str] = set()
        self._batches: dict[str, int] = {}

    def look(self) -> Figures:
        metrics = self._engine.metrics()
        stream = metrics["streams"][self._stream]
        now, rows = time.monotonic(), int(stream["rows"])
        self._looks.append((now, rows))
        then, before = self._looks[0]
        rings = tuple(metrics["rings"])
        self._note_restarts(rings)
        return Figures(
            now - self._began,
            rows,
            (rows - before) / (now - then) if now > then else 0.0,
            int(stream["late"]),
            next(iter(stream["rings"]), None),
            {name: query["state"] for name, query in metrics["queries"].items()},
            rings,
        )

    def _note_restarts(self, rings: Sequence[dict[str, Any]]) -> None:
        """A ring that stopped, or whose batches began to count anew, has restarted."""
        for ring in rings:
            name, batch = str(ring["ring"]), int(ring.get("batch") or 0)
            if ring["state"] == "failed" or batch < self._batches.get(name, 0):
                self.restarted.add(name)
            self._batches[name] = batch


class Screen:
    """A renderable that a live display may draw at any time, from another thread, too."""

    def __init__(self, tallies: dict[str, Tally]) -> None:
        self._tallies = tallies
        self._guard = threading.Lock()
        self._figures: Figures | None = None
        self._events: deque[str] = deque(maxlen=6)

    def update(self, figures: Figures) -> None:
        with self._guard:
            self._figures = figures

    def tell(self, event: str) -> None:
        with self._guard:
            self._events.append(event)

    def __rich__(self) -> Group:
        with self._guard:
            figures, events = self._figures, list(self._events)
        if figures is None:
            return Group(Text("…"))
        return Group(
            Text(headline(figures), style="bold"),
            Text("       " + promise(figures.disorder)),
            rich_table(_QUERY_COLUMNS, query_rows(figures.queries, self._tallies)),
            rich_table(
                ("ring", "slots", "batch", "batch ms", "state"),
                [(r["ring"], r["queries"], r.get("batch"), r.get("batch_ms"), r["state"])
                 for r in figures.rings],
            ),
            Panel(Text("\n".join(events)), title="what happened", title_align="left"),
        )  # fmt: skip


def headline(figures: Figures) -> str:
    """The stream in one line."""
    latest = figures.disorder and span(figures.disorder["delay_max_us"])
    return (
        f"{figures.seconds:3.0f} s  {figures.rows:,} tuples ({figures.rows_per_s:,.0f}/s), out of"
        f" order by up to {latest or '…'}, {figures.late:,} too late"
    )


def promise(disorder: Mapping[str, Any] | None) -> str:
    """What share of tuples may come too late, what share does, and what that costs in time."""
    if disorder is None or disorder["buffer_us"] is None:
        return "no window can close yet"
    waiting = disorder["buffer_tuples"]
    tuples = "" if waiting is None else f" ({waiting:,} tuples)"
    allowed = target(disorder["target"])
    return (
        f"too late: {share(disorder['ratio']) or '…'}{f' of {allowed} allowed' if allowed else ''};"
        f" windows wait {span(disorder['buffer_us'])}{tuples},"
        f" complete up to {str(instant(disorder['punctuation_us']))[-12:]}"
    )


def status_line(figures: Figures, tallies: dict[str, Tally]) -> str:
    """Everything in one line, where there is no terminal."""
    results = sum(tally.rows for tally in tallies.values())
    busiest = max((int(r.get("batch_ms") or 0) for r in figures.rings), default=0)
    return (
        f"{headline(figures)}; {promise(figures.disorder)}; {len(figures.queries)} queries on"
        f" {len(figures.rings)} rings, batches of {busiest} ms, {results:,} results"
    )


def query_rows(queries: dict[str, str], tallies: dict[str, Tally]) -> list[tuple[Any, ...]]:
    """A line per query; queries that differ in a number at the end share one."""
    families: dict[str, list[str]] = {}
    for name in queries:
        families.setdefault(name.rstrip("0123456789").rstrip("_"), []).append(name)
    rows = []
    for names in families.values():
        own = [tallies[n] for n in names if n in tallies]
        latencies = [s for t in own if (s := t.latency_s) is not None]
        label = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"
        states = ", ".join(sorted({queries[n] for n in names}))
        latency = round(statistics.median(latencies), 1) if latencies else None
        rows.append((label, states, sum(t.rows for t in own), latency))
    return rows
