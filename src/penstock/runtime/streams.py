"""CREATE STREAM options to a stream definition, and a stream to the planner that reads it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from penstock.control.disorder import Rules
from penstock.errors import PenstockError
from penstock.plan.catalog import OptionValue, Stream, check_stream, did_you_mean
from penstock.plan.disorder import ESTIMATORS, chosen_estimator
from penstock.plan.specs import Composition
from penstock.runtime.sources.files import FileOptions, check_columns
from penstock.runtime.sources.generator import GeneratorOptions, check_generator
from penstock.runtime.sources.options import parse_duration_us
from penstock.runtime.sources.planner import FilePlanner, GeneratorPlanner, Planner
from penstock.runtime.workspace import Workspace
from penstock.schema import Schema

SOURCES = ("file", "generator")
DISORDER_OPTIONS = ("estimator", "slack", "idle", "trust")
MOST_SLACK_TUPLES = 10_000
_LONGEST_US = 365_000 * 86_400_000_000
_TUPLES = re.compile(r"\s*([+-]?\d+)\s*tuples?\s*", re.IGNORECASE)
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
    stream = with_disorder(stream, **{o: rest.pop(o, None) for o in DISORDER_OPTIONS})
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
    stream: Stream,
    estimator: OptionValue | None = None,
    slack: OptionValue | None = None,
    idle: OptionValue | None = None,
    trust: OptionValue | None = None,
) -> Stream:
    """The stream with other settings of disorder; what is None stays as it is.

    `slack` alone means `fixed`; an estimator other than `fixed` ends a slack.
    """
    if idle is not None:
        stream = replace(stream, idle_us=_duration_us(idle, "idle"))
    if trust is not None:
        stream = replace(stream, trust_us=_duration_us(trust, "trust"))
        if stream.trust_us == 0:
            raise PenstockError("trust must be longer than zero", "write trust = '1 day'")
    if estimator is None and slack is None:
        return stream
    return _with_estimator(stream, "fixed" if estimator is None else str(estimator), slack)


def _with_estimator(stream: Stream, name: str, slack: OptionValue | None) -> Stream:
    if name not in ESTIMATORS:
        hint = did_you_mean(name, ESTIMATORS, "estimators")
        raise PenstockError(f"estimator {name} is not known", hint)
    hint = "write estimator = 'fixed', slack = '5 seconds'"
    if name != "fixed":
        if slack is not None:
            raise PenstockError(f"estimator {name} takes no slack", hint)
        return replace(stream, estimator=name, slack_us=None, slack_tuples=None)
    if slack is None:
        if stream.slack_us is None and stream.slack_tuples is None:
            raise PenstockError(f"estimator {name} needs a slack", hint)
        return replace(stream, estimator=name)
    slack_us, slack_tuples = _slack(slack)
    return replace(stream, estimator=name, slack_us=slack_us, slack_tuples=slack_tuples)


def _slack(slack: OptionValue) -> tuple[int | None, int | None]:
    """A slack as microseconds or as a number of tuples: one of them."""
    plain_number = isinstance(slack, int) and not isinstance(slack, bool)
    counted = _TUPLES.fullmatch(f"{slack} tuples" if plain_number else str(slack))
    if counted is None:
        hint = "write a number and a unit of time, or tuples: '5 seconds', '1000 tuples'"
        return _duration_us(slack, "slack", hint), None
    tuples = int(counted[1])
    if not 0 <= tuples <= MOST_SLACK_TUPLES:
        hint = f"write 0 to {MOST_SLACK_TUPLES} tuples, or a length of time: slack = '5 seconds'"
        raise PenstockError(f"a slack of {tuples} tuples is out of range", hint)
    return None, tuples


def _duration_us(value: OptionValue, option: str, hint: str | None = None) -> int:
    try:
        micros = parse_duration_us(str(value), option)
    except PenstockError as error:
        raise PenstockError(error.message, hint or error.hint) from None
    if micros > _LONGEST_US:
        raise PenstockError(f"{option} = '{value}' is too long", "write at most 365000 days")
    return micros


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


def rules_of(stream: Stream, composition: Composition) -> Rules:
    """How the disorder of a ring's stream is judged."""
    estimator = chosen_estimator(stream.estimator, composition.drop_ratio, stream.punctuated)
    return Rules(
        estimator,
        composition.drop_ratio,
        stream.slack_us or 0,
        stream.slack_tuples if estimator == "fixed" else None,
        stream.idle_us,
        stream.arrival_time is not None,
        composition.per is not None,
        composition.apart,
    )


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
