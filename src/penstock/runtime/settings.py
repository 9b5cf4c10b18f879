"""Settings of an engine: `SET key = value`, `--set key=value`, `Engine(settings={…})`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from penstock.control.quarantine import Patience
from penstock.errors import PenstockError
from penstock.plan.catalog import OptionValue, did_you_mean
from penstock.runtime.sources.options import bytes_option, parse_duration_us

STATE_STORES = ("rocksdb", "memory")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine may be told.

    trigger_ms: pause between micro-batches. idle_pause_s: the longest time between two looks for
    new tuples, of a ring that has had none for long. parallelism: tasks per micro-batch (None: all
    cores). idle_ring_s: how long a ring without queries is kept warm; ring_pool: how many of them.
    ring_maximum: share of the time up to which tuples keep a ring busy before it takes no more
    queries and is split; far below it two rings become one. ring_copies: rings of one composition
    at most (None: as many as tasks). ring_settle_s: how long rings are left alone after queries
    have moved. results_bytes: per ring, for queries without a sink. sink_patience_s: how long a
    micro-batch waits for a sink before it quarantines the query. sink_retry_s,
    sink_retry_longest_s, sink_tries: the pause before a quarantined sink is called again, which
    doubles up to the longest, and how often. state_store: where windows are kept, rocksdb (any
    size) or memory (quicker, on the heap; both are in the checkpoint). native_queries: up to so
    many selections of tuples that Spark reads or computes are evaluated in Spark's own code (0:
    never). join_memory: bytes of a worker for the tables of joins, for rings that start from then
    on; what is more waits in the state until the inputs pause. join_tasks: of a join's operator
    (None: one per executor). exchange_node: the node that holds derived streams made from then on,
    as grpc://host:port (empty: one in the engine); exchange_token_file: the token of nodes. cores,
    memory: of a Spark that the engine starts itself.
    """

    trigger_ms: int = 200
    idle_pause_s: float = 2.0
    parallelism: int | None = None
    idle_ring_s: float = 300.0
    ring_pool: int = 8
    ring_maximum: float = 0.8
    ring_copies: int | None = None
    ring_settle_s: float = 30.0
    results_bytes: int = 1024**3
    sink_patience_s: float = 30.0
    sink_retry_s: float = 10.0
    sink_retry_longest_s: float = 600.0
    sink_tries: int = 100
    state_store: str = "rocksdb"
    native_queries: int = 12
    join_memory: int = 1024**3
    join_tasks: int | None = None
    exchange_node: str = ""
    exchange_token_file: str = ""
    cores: int | None = None
    memory: str = "4g"

    @property
    def retries(self) -> Patience:
        """How quarantined sinks are tried again."""
        longest_s = max(self.sink_retry_s, self.sink_retry_longest_s)
        return Patience(self.sink_retry_s, longest_s, self.sink_tries)

    def changed(self, options: Mapping[str, OptionValue]) -> Settings:
        """The settings with some of them changed; unknown names are errors."""
        result = self
        for key, value in options.items():
            changes: dict[str, Any] = {_field(key): _value(key, value)}
            result = replace(result, **changes)
        return result


_USER_NAMES = {
    "trigger": "trigger_ms",
    "idle_pause": "idle_pause_s",
    "sink_patience": "sink_patience_s",
    "sink_retry": "sink_retry_s",
    "sink_retry_longest": "sink_retry_longest_s",
    "ring_settle": "ring_settle_s",
}
_SECONDS = (
    "idle_pause_s",
    "idle_ring_s",
    "sink_patience_s",
    "sink_retry_s",
    "sink_retry_longest_s",
    "ring_settle_s",
)
_NUMBERS = (*_SECONDS, "ring_maximum")  # with a fraction
_MAY_BE_ZERO = ("native_queries", "ring_pool", "sink_tries")


def _field(key: str) -> str:
    names = [f.name for f in fields(Settings)]
    name = _USER_NAMES.get(key.lower(), key.lower())
    if name not in names:
        known = [*_USER_NAMES, *(n for n in names if n not in _USER_NAMES.values())]
        raise PenstockError(f"setting {key} is not known", did_you_mean(key, known, "settings"))
    return name


def _value(key: str, value: OptionValue) -> OptionValue:
    name = _field(key)
    if name in _USER_NAMES.values() and isinstance(value, str) and not value.isdigit():
        value_us = parse_duration_us(value, key)
        value = value_us / 1_000_000 if name in _SECONDS else max(1, value_us // 1000)
    if name in ("memory", "exchange_node", "exchange_token_file"):
        return str(value)
    if name in ("join_memory", "results_bytes"):
        return bytes_option({key: value}, key, 0)
    if name == "state_store":
        if value not in STATE_STORES:
            hint = did_you_mean(str(value), STATE_STORES, "state stores")
            raise PenstockError(f"state store {value} is not known", hint)
        return value
    try:
        number = float(value) if name in _NUMBERS else int(value)
    except ValueError:
        raise PenstockError(f"{key} = {value} is not a number", f"write {key} = 10") from None
    if number < 0 or (number == 0 and name not in _MAY_BE_ZERO):
        raise PenstockError(f"{key} = {value} is not positive", f"write {key} = 10")
    return number
