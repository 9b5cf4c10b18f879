"""`CREATE STREAM … AS SELECT …`: options to a stream definition, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa

from penstock.control.backup import MODES, TRIGGERS, Mode, Trigger
from penstock.errors import PenstockError
from penstock.exchange.spec import DEFAULT_CAPACITY, LARGEST_CAPACITY
from penstock.plan.bound import BoundQuery
from penstock.plan.catalog import OptionValue, Stream, check_stream
from penstock.plan.derived import derived_times
from penstock.runtime.settings import Settings
from penstock.runtime.sources.options import bytes_option, choice_option, normalise, text_option
from penstock.runtime.streams import DISORDER_OPTIONS, own_names, with_disorder
from penstock.schema import Schema, arrow_type

PUNCTUATION = "__punctuation_us"  # column of the queue that is NULL in tuples
_OPTIONS = ("mode", "trigger", "capacity", "backup", "node", "token_file")


_MAKER = " (stream)"


def maker_of(stream: str) -> str:
    """The name of the query that makes a derived stream; a query of the stream's name is another.

    >>> maker_of("Hot"), made_by("Hot (stream)"), made_by("Hot")
    ('Hot (stream)', 'Hot', None)
    """
    return stream + _MAKER


def made_by(query: str) -> str | None:
    """The derived stream that a query makes."""
    return query.removesuffix(_MAKER) if query.endswith(_MAKER) else None


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """node: empty for the engine's own; behind_us: see `plan.derived`.

    entry: tuples enter the network of queues here, so its load is always measured.
    """

    mode: Mode = "adaptive"
    trigger: Trigger = "overflow"
    capacity: int = DEFAULT_CAPACITY
    backup: str = ""
    node: str = ""
    token_file: str = ""
    behind_us: int | None = None
    entry: bool = False


def queue_options(stream: Stream) -> QueueOptions:
    return QueueOptions(**dict(stream.options))  # type: ignore[arg-type]


def define_derived(
    name: str,
    query: BoundQuery,
    outputs: Schema,
    options: Mapping[str, OptionValue],
    settings: Settings,
) -> Stream:
    """A stream with the columns of a query's results; nothing is made yet."""
    rest = {key: value for key, value in options.items() if key != "from"}
    event_time = rest.pop("event_time", None)
    disorder = {o: rest.pop(o, None) for o in DISORDER_OPTIONS}
    times = derived_times(query, None if event_time is None else str(event_time))
    queue = _queue(normalise(rest, _OPTIONS, "derived"), settings)
    if times.behind_us is not None:
        queue["behind_us"] = times.behind_us
    queue["entry"] = any(given.stream.source != "derived" for given in query.inputs)
    stream = Stream(
        name,
        outputs,
        "derived",
        times.event_time,
        times.arrival_time,
        options=tuple(sorted(queue.items())),
    )
    check_stream(stream)
    _check_types(outputs)
    return own_names(with_disorder(stream, **disorder))


def _queue(options: Mapping[str, OptionValue], settings: Settings) -> dict[str, OptionValue]:
    capacity = bytes_option(options, "capacity", DEFAULT_CAPACITY)
    if not 0 < capacity <= LARGEST_CAPACITY:
        raise PenstockError(f"capacity = {capacity} is out of range", "write capacity = '64 MB'")
    backup = text_option(options, "backup", "") or ""
    node = text_option(options, "node", settings.exchange_node) or ""
    if node and not node.startswith("grpc://"):
        raise PenstockError(
            f"node {node} is not an address", "write node = 'grpc://host:port', as a node prints it"
        )
    token_file = text_option(options, "token_file", settings.exchange_token_file) or ""
    if node and not token_file:
        raise PenstockError(
            f"the token of node {node} is not known",
            "add token_file = 'path', or SET exchange_token_file = 'path'",
        )
    mode = choice_option(options, "mode", MODES, "adaptive")
    if backup and mode != "adaptive":
        raise PenstockError(f"mode {mode} has no backup server", "leave backup out")
    return {
        "mode": mode,
        "trigger": choice_option(options, "trigger", TRIGGERS, "overflow"),
        "capacity": capacity,
        "backup": backup if not backup or "://" in backup else _absolute(backup),
        "node": node,
        "token_file": token_file and _absolute(token_file),
    }


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def _check_types(outputs: Schema) -> None:
    for field in outputs.fields:
        try:
            arrow_type(field.type)
        except KeyError:
            raise PenstockError(
                f"column {field.name} is of type {field.type}, which a stream cannot carry",
                "cast it, or select its parts",
            ) from None


def queue_schema(schema: Schema) -> pa.Schema:
    """What travels: the tuples' columns, and one for punctuations."""
    columns = [(f.name, cast(pa.DataType, arrow_type(f.type))) for f in schema.fields]
    return pa.schema([*columns, (PUNCTUATION, pa.int64())])
