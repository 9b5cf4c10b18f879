"""Where the results of each query go, by what is kept of its sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.runtime.registry import QueryRow
from penstock.runtime.sinks.delivery import CallbackSink, Missing, Outlet, Share
from penstock.runtime.sinks.files import FileSink
from penstock.runtime.sinks.memory import MemorySink
from penstock.runtime.sinks.spec import STREAM, Callback, SinkSpec

Terminal = Callable[[str, pa.Table], None]


@dataclass(slots=True)
class QueryOutlets:
    """terminal: takes (query name, rows). feed: what fills the derived stream of a name for a
    query. functions, memory: by slot; they end with this process."""

    terminal: Terminal
    feed: Callable[[str, QueryRow], Outlet]
    functions: dict[int, Callback] = field(default_factory=dict)
    memory: dict[int, MemorySink] = field(default_factory=dict)

    def of(self, query: QueryRow) -> Outlet:
        """Where a query's results go; None is the workspace's result log."""
        spec = SinkSpec.loads(query.sink)
        match spec.kind:
            case "memory":
                return self.memory.setdefault(query.slot, MemorySink(spec.limit))
            case "terminal":
                return CallbackSink(lambda rows: self.terminal(query.name, rows), pooled=False)
            case "callback":
                function = self.functions.get(query.slot)
                return Missing() if function is None else CallbackSink(function)
            case "results":
                return None
            case kind if kind == STREAM:
                return self.feed(str(spec.path), query)
            case _ if spec.layout == "batch":
                return Share(FileSink(str(spec.path), spec.kind), query.name)
            case _:
                return FileSink(str(spec.path), spec.kind, f"{query.name}-{query.slot}")

    def in_memory(self, slot: int) -> list[pa.Table]:
        """What a query's sink in memory holds."""
        sink = self.memory.get(slot)
        return [] if sink is None else sink.rows()

    def forget(self, slot: int) -> None:
        self.functions.pop(slot, None)
        self.memory.pop(slot, None)
