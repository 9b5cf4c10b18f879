"""penstock: continuous queries in a stream SQL, over disordered streams, on Apache Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import EngineError, PenstockError, QueryError, WorkspaceError
    from penstock.runtime.derived.connector import QueueSource
    from penstock.runtime.engine import Engine
    from penstock.runtime.query import Query, QueryStatus
    from penstock.runtime.sinks.live import Subscription
    from penstock.runtime.statements import Answer
    from penstock.schema import Schema

# loaded when first used, so that the pure parts never pull in Spark
_HOMES = {
    "Engine": "penstock.runtime.engine",
    "Query": "penstock.runtime.query",
    "QueueSource": "penstock.runtime.derived.connector",
    "QueryStatus": "penstock.runtime.query",
    "Subscription": "penstock.runtime.sinks.live",
    "Answer": "penstock.runtime.statements",
    "Schema": "penstock.schema",
    "PenstockError": "penstock.errors",
    "QueryError": "penstock.errors",
    "EngineError": "penstock.errors",
    "WorkspaceError": "penstock.errors",
}

__all__ = [
    "Answer",
    "Engine",
    "EngineError",
    "PenstockError",
    "Query",
    "QueryError",
    "QueryStatus",
    "QueueSource",
    "Schema",
    "Subscription",
    "WorkspaceError",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("penstock")
        except PackageNotFoundError:  # a source tree that is not installed
            return "0+unknown"
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module penstock has no attribute {name}")
