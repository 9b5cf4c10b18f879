"""CREATE STREAM options to a stream definition, and a stream to the planner that reads it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.control.punctuation import Estimator, Fixed, Max
from penstock.errors import PenstockError
from penstock.plan.catalog import OptionValue, Stream, check_stream, did_you_mean
from penstock.runtime.sources.files import FileOptions, check_columns
from penstock.runtime.sources.generator import GeneratorOptions, check_generator
from penstock.runtime.sources.options import parse_duration_us
from penstock.runtime.sources.planner import FilePlanner, GeneratorPlanner, Planner
from penstock.runtime.workspace import Workspace
from penstock.schema import Schema

SOURCES = ("file", "generator")
ESTIMATORS = ("fixed", "max")
_BATCH_ROWS = 2_000_000


def define_stream(
    name: str, schema: Schema, options: Mapping[str, OptionValue], now_us: int
) -> Stream:
    """A stream from CREATE STREAM; every option is checked here, nothing is read yet."""
    rest = dict(options)
    source = str(rest.pop("source", ""))
    if source not in SOURCES:
        what = f"source {source} is not known" if source else "the stream has no source"
        hint = did_you_mean(source, SOURCES, "sources") if source else "add source = 'file'"
        raise PenstockError(what, hint)
    event_time = rest.pop("event_time", None)
    arrival_time = rest.pop("arrival_time", None)
    stream = Stream(
        name,
        schema,
        source,
        None if event_time is None else str(event_time),
        None if arrival_time is None else str(arrival_time),
    )
    stream = with_disorder(stream, rest.pop("estimator", None), rest.pop("slack", None))
    check_stream(stream)
    stream = own_names(stream)
    if source == "generator":
        if str(rest.get("start", "")).lower() == "now":  # a restart must generate the same
            now = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=now_us)
            rest["start"] = now.isoformat() + "Z"
        if stream.event_time is None:
            raise PenstockError(
                "a generated stream needs an event time", "add event_time = 'column'"
            )
        generator = GeneratorOptions.from_options(rest)
        check_generator(generator, schema, stream.event_time, stream.arrival_time)
    else:
        if "://" not in str(rest.get("path", "")) and rest.get("path"):
            rest["path"] = str(Path(str(rest["path"])).expanduser().absolute())
        check_columns(FileOptions.from_options(rest), schema)
    return replace(stream, options=tuple(sorted(rest.items())))


def with_disorder(
    stream: Stream, estimator: OptionValue | None, slack: OptionValue | None
) -> Stream:
    """The stream with an estimator; `slack` alone means `fixed`."""
    if estimator is None and slack is None:
        return stream
    name = str(estimator if estimator is not None else "fixed")
    if name not in ESTIMATORS:
        hint = did_you_mean(name, ESTIMATORS, "estimators")
        raise PenstockError(f"estimator {name} is not known", hint)
    if (name == "fixed") != (slack is not None):
        what = "needs a slack" if name == "fixed" else "takes no slack"
        hint = "write estimator = 'fixed', slack = '5 seconds'"
        raise PenstockError(f"estimator {name} {what}", hint)
    slack_us = None if slack is None else parse_duration_us(str(slack), "slack")
    return replace(stream, estimator=name, slack_us=slack_us)


def own_names(stream: Stream) -> Stream:
    """Time columns spelled as the schema spells them."""
    event = stream.event_time and stream.schema.field(stream.event_time)
    arrival = stream.arrival_time and stream.schema.field(stream.arrival_time)
    return replace(
        stream,
        event_time=event.name if event else None,
        arrival_time=arrival.name if arrival else None,
    )


def is_endless(stream: Stream) -> bool:
    """Whether a bounded run over the stream would never be done."""
    return stream.source == "generator" and "rows" not in dict(stream.options)


def estimator_of(stream: Stream) -> Estimator:
    return Max() if stream.slack_us is None else Fixed(stream.slack_us)


def readable(stream: Stream, workspace: Workspace) -> Stream:
    """A companion as the file stream it is; any other stream as it stands."""
    if stream.source != "companion":
        return stream
    owner, _, kind = stream.name.rpartition(".")
    path = str(workspace.companion(owner, kind))
    return replace(stream, source="file", options=(("format", "arrow"), ("path", path)))


def planner_of(stream: Stream, clock_us: Callable[[], int]) -> Planner | None:
    """What decides the next piece to read; None where Spark itself reads."""
    if stream.source == "dataframe":
        return None
    if stream.source == "generator":
        options = GeneratorOptions.from_options(dict(stream.options))
        return GeneratorPlanner(options, clock_us, _BATCH_ROWS)
    return FilePlanner(FileOptions.from_options(dict(stream.options)))
