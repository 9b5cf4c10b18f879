"""Statements to actions on an engine: the whole script is checked first, then it takes effect.

Checking runs against a copy of the catalog that earlier statements of the script have changed, so
an error in the last line leaves nothing of the first behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from penstock.errors import EngineError, PenstockError, QueryError, Span
from penstock.language import parse
from penstock.language.ast import (
    BareSelect,
    CreateQuery,
    CreateRegions,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Option,
    Resume,
    Select,
    SetOption,
    Show,
    Statement,
)
from penstock.plan.catalog import Catalog, RegionSet, Stream, did_you_mean
from penstock.plan.codec import composition_from
from penstock.plan.specs import Composition
from penstock.runtime.analyze import analyze
from penstock.runtime.definitions import in_use
from penstock.runtime.derived.definition import define_derived, made_by, maker_of
from penstock.runtime.derived.show import show_exchange
from penstock.runtime.query import Query
from penstock.runtime.region_tables import load_regions
from penstock.runtime.show import (
    describe_regions,
    describe_stream,
    show_queries,
    show_regions,
    show_rings,
    show_streams,
)
from penstock.runtime.sinks.spec import STREAM, SinkSpec, sink_of
from penstock.runtime.streams import DISORDER_OPTIONS, define_stream, with_disorder
from penstock.schema import Field, Schema

if TYPE_CHECKING:
    from penstock.runtime.engine import Engine

_QUERY_OPTIONS = ("from",)
_TABLES = {
    "streams": show_streams,
    "regions": show_regions,
    "queries": show_queries,
    "rings": show_rings,
    "exchange": show_exchange,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gave: a line, a table, a text (EXPLAIN) or a running query."""

    message: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    text: str | None = None
    query: Query | None = None


Action = Callable[[], Answer]


@dataclass(slots=True)
class _Draft:
    """The catalog and the query names as the script has left them so far."""

    streams: dict[str, Stream]
    regions: dict[str, RegionSet]
    queries: dict[str, tuple[str, ...]]  # name in lower case -> streams and regions it reads
    unnamed: int = 0

    @property
    def catalog(self) -> Catalog:
        return Catalog(self.streams, self.regions)


@dataclass(frozen=True, slots=True)
class _Script:
    engine: Engine
    text: str
    draft: _Draft = field(repr=False)


def run_script(engine: Engine, text: str) -> list[Answer]:
    """Check every statement, then carry all of them out in order."""
    statements = parse(text)
    script = _Script(engine, text, _draft_of(engine))
    actions = []
    for statement in statements:
        try:
            actions.append(_check(script, statement))
        except QueryError as error:
            if error.span is None:
                error.span = statement.span
            raise error.at(text) from None
        except PenstockError as error:
            placed = QueryError(error.message, error.hint, statement.span)
            raise placed.at(text) from None
    return [action() for action in actions]


def _draft_of(engine: Engine) -> _Draft:
    rings = {r.id: _read_by(composition_from(r.composition)) for r in engine.registry.rings()}
    queries = {q.name.lower(): rings[q.ring] for q in engine.registry.queries()}
    catalog = engine.catalog
    return _Draft(dict(catalog.streams), dict(catalog.regions), queries)


def _read_by(composition: Composition) -> tuple[str, ...]:
    """The streams, companions as their owners, and regions that a composition reads."""
    streams = tuple(name.lower().split(".")[0] for name in composition.streams)
    join = composition.region_join
    return streams if join is None else (*streams, join.regions.lower())


def _folded(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def _check(script: _Script, statement: Statement) -> Action:
    engine, draft = script.engine, script.draft
    match statement:
        case CreateStream():
            return _create_stream(script, statement)
        case CreateRegions():
            return _create_regions(script, statement)
        case CreateQuery():
            start = start_of(statement.options) or "latest"
            if statement.name.lower() in draft.queries:
                hint = f"DROP QUERY {statement.name} first, or choose another name"
                raise QueryError(f"query {statement.name} exists already", hint, statement.span)
            sink = _sink(statement.sink, SinkSpec())
            return _start_query(script, statement.select, statement, statement.name, sink, start)
        case BareSelect():
            sink = _sink(statement.sink, SinkSpec("terminal"))
            return _start_query(script, statement.select, statement, None, sink, "latest")
        case Resume(name):
            _require_query(draft, name, statement.span)
            return partial(_resume, engine, name)
        case Drop(what="query", name=name):
            _require_query(draft, name, statement.span)
            if (made := made_by(name)) is not None:
                raise QueryError(
                    f"{name} makes stream {made}", f"DROP STREAM {made}", statement.span
                )
            del draft.queries[name.lower()]
            return _then(lambda: engine.drop_query(name), f"query {name} dropped")
        case Drop():
            return _drop(script, statement)
        case Show(what):
            return lambda: _table(*_TABLES[what](engine))
        case Describe(name):
            if name.lower() in draft.regions:
                return lambda: _table(*describe_regions(engine.catalog.require_regions(name)))
            draft.catalog.require(name, statement.span)
            return lambda: _table(*describe_stream(engine.catalog.require(name)))
        case Explain():
            return _explain(script, statement)
        case SetOption():
            return _set(script, statement)
        case _:
            assert_never(statement)


def _require_query(draft: _Draft, name: str, span: Span) -> None:
    if name.lower() not in draft.queries:
        raise QueryError(
            f"query {name} not found", did_you_mean(name, draft.queries, "queries"), span
        )


def _then(act: Callable[[], None], message: str) -> Action:
    def action() -> Answer:
        act()
        return Answer(message)

    return action


def _resume(engine: Engine, name: str) -> Answer:
    if engine.query(name).status.state == "running":
        return Answer(f"query {name} is running")
    engine.resume_query(name)
    return Answer(f"query {name} is tried again")


def _table(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> Answer:
    return Answer(columns=columns, rows=tuple(rows))


def _sink(options: tuple[Option, ...] | None, default: SinkSpec) -> SinkSpec:
    if options is None:
        return default
    try:
        return sink_of({o.key: o.value for o in options})
    except PenstockError as error:
        span = options[0].span if options else None
        raise QueryError(error.message, error.hint, span) from None


def start_of(options: tuple[Option, ...]) -> str | None:
    """Where a query starts, from its WITH options; None if they do not say."""
    start = None
    for option in options:
        if option.key not in _QUERY_OPTIONS:
            hint = did_you_mean(option.key, _QUERY_OPTIONS, "options of a query")
            raise QueryError(f"a query has no option {option.key}", hint, option.span)
        start = str(option.value)
        if start not in ("latest", "earliest"):
            hint = "write from = 'earliest' or 'latest'"
            raise QueryError(f"from = {start} is not known", hint, option.span)
    return start


def _create_stream(script: _Script, statement: CreateStream) -> Action:
    engine, draft = script.engine, script.draft
    draft.catalog.refuse_taken(statement.name, statement.span)
    if statement.query is not None:
        return _derive_stream(script, statement, statement.query)
    schema = Schema(tuple(Field(c.name, c.type) for c in statement.columns))
    options = {o.key: o.value for o in statement.options}
    try:
        stream = define_stream(statement.name, schema, options, engine.clock_us())
    except PenstockError as error:
        raise _at_option(error, statement) from None
    draft.streams[stream.name.lower()] = stream
    return _then(lambda: engine.definitions.create_stream(stream), f"stream {stream.name} created")


def _create_regions(script: _Script, statement: CreateRegions) -> Action:
    engine, draft = script.engine, script.draft
    draft.catalog.refuse_taken(statement.name, statement.span)
    options = {o.key: o.value for o in statement.options}
    regions, body = load_regions(statement.name, statement.path, options)
    draft.regions[regions.name.lower()] = regions
    message = f"regions {regions.name} created: {regions.count}"
    return _then(lambda: engine.definitions.create_regions(regions, body), message)


def _at_option(error: PenstockError, statement: CreateStream) -> QueryError:
    """The error at the option that it is about."""
    words = error.message.replace(":", " ").split()
    named = next((o for o in statement.options if o.key in words), None)
    return QueryError(error.message, error.hint, statement.span if named is None else named.span)


def _derive_stream(script: _Script, statement: CreateStream, select: Select) -> Action:
    engine, draft = script.engine, script.draft
    plan = engine.plan(select, draft.catalog).of_stream()
    options = {o.key: o.value for o in statement.options}
    start = start_of(tuple(o for o in statement.options if o.key in _QUERY_OPTIONS)) or "latest"
    try:
        stream = define_derived(statement.name, plan.bound, plan.outputs, options, engine.settings)
    except PenstockError as error:
        raise _at_option(error, statement) from None
    text = script.text[statement.span.start : statement.span.end]
    draft.streams[stream.name.lower()] = stream
    draft.queries[maker_of(stream.name.lower())] = _read_by(plan.composed.composition)

    def make() -> Query:
        sink = SinkSpec(STREAM, stream.name)
        return engine.start_query(plan, text, maker_of(stream.name), sink, None, start)

    def act() -> Answer:
        query = engine.definitions.derive_stream(stream, make)
        times = f"event time {stream.event_time}" if stream.event_time else "no event time"
        notes = "".join(f"; note: {note}" for note in query.notes)
        return Answer(f"stream {stream.name} created, {times}{notes}")

    return act


def _start_query(
    script: _Script,
    select: Select,
    statement: CreateQuery | BareSelect,
    name: str | None,
    sink: SinkSpec,
    start: str,
) -> Action:
    engine, draft = script.engine, script.draft
    plan = engine.plan(select, draft.catalog)
    text = script.text[statement.span.start : statement.span.end]
    draft.unnamed += 1
    draft.queries[(name or f" {draft.unnamed}").lower()] = _read_by(plan.composed.composition)

    def act() -> Answer:
        query = engine.start_query(plan, text, name, sink, None, start)
        notes = "".join(f"; note: {note}" for note in query.notes)
        return Answer(f"query {query.name} registered{notes}", query=query)

    return act


def _drop(script: _Script, statement: Drop) -> Action:
    """Drop a stream or regions."""
    engine, draft, what, cascade = script.engine, script.draft, statement.what, statement.cascade
    if what == "stream":
        name = draft.catalog.require(statement.name, statement.span).name
    else:
        name = draft.catalog.require_regions(statement.name, statement.span).name
    readers = _readers(draft, name)
    if readers and not cascade:
        raise QueryError(*in_use(what, name, readers), statement.span)
    drop = engine.drop_stream if what == "stream" else engine.drop_regions
    _forget(draft, name)
    return _then(lambda: drop(name, cascade), f"{what} {name} dropped")


def _readers(draft: _Draft, stream: str) -> list[str]:
    """Queries on a stream or its companions, or on regions."""
    return [query for query, read in draft.queries.items() if stream.lower() in read]


def _forget(draft: _Draft, stream: str) -> None:
    """Take out a stream, or regions, and all that hangs on it."""
    known = draft.streams if stream.lower() in draft.streams else draft.regions
    if known.pop(stream.lower(), None) is None:
        return
    draft.queries.pop(maker_of(stream.lower()), None)
    for reader in _readers(draft, stream):
        draft.queries.pop(reader, None)
        if (made := made_by(reader)) is not None:
            _forget(draft, made)


def _explain(script: _Script, statement: Explain) -> Action:
    engine = script.engine
    if statement.select is None:
        name = str(statement.name)
        queries = script.draft.queries
        if name.lower() not in queries and maker_of(name.lower()) in queries:
            name = maker_of(name)
        _require_query(script.draft, name, statement.span)
        if statement.analyze:
            return lambda: Answer(text=analyze(engine, name))
        return lambda: Answer(text=engine.query(name).explain())
    if statement.analyze:
        raise QueryError(
            "EXPLAIN ANALYZE is for a running query",
            "register it, then EXPLAIN ANALYZE its name; EXPLAIN alone takes any SELECT",
            statement.span,
        )
    plan = engine.plan(statement.select, script.draft.catalog)
    return lambda: Answer(text=engine.explain_plan(plan))


def _set(script: _Script, statement: SetOption) -> Action:
    engine, draft, option = script.engine, script.draft, statement.option
    if statement.stream is None:
        change = {option.key: option.value}
        engine.settings.changed(change)  # refused before anything is done

        def act() -> Answer:
            engine.settings = engine.settings.changed(change)
            return Answer(f"{option.key} = {option.value}")

        return act
    stream = draft.catalog.require(statement.stream, statement.span)
    if option.key not in DISORDER_OPTIONS:
        hint = did_you_mean(option.key, DISORDER_OPTIONS, "settings of a stream")
        raise QueryError(f"a stream has no setting {option.key}", hint, statement.span)
    new = with_disorder(stream, **{option.key: option.value})
    draft.streams[new.name.lower()] = new
    message = f"{new.name}.{option.key} = {option.value}"
    return _then(lambda: engine.definitions.change_stream(new), message)


def stored_select(text: str) -> Select:
    """The SELECT of a query or of a derived stream."""
    statements = parse(text)
    if len(statements) == 1 and isinstance(statements[0], CreateStream) and statements[0].query:
        return statements[0].query
    return one_select(text).select


def one_select(text: str) -> CreateQuery | BareSelect:
    statements = parse(text)
    if len(statements) != 1 or not isinstance(statements[0], (CreateQuery, BareSelect)):
        raise EngineError("register takes one SELECT", "use execute for other statements")
    return statements[0]


def same_statement(one: str, other: str) -> bool:
    """Whether two texts say the same, however they are written."""
    return one_select(one).select == one_select(other).select
