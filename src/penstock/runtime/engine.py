"""The engine: streams and queries in, running rings out.

A query's life is `register`: parse → bind → compose (`plan`) → allocate → publish (`start_query`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import EngineError, QueryError
from penstock.language.ast import CreateQuery, Select
from penstock.language.render import render
from penstock.plan.bind import bind
from penstock.plan.bound import BoundQuery
from penstock.plan.catalog import (
    Catalog,
    OptionValue,
    RegionSet,
    Stream,
    check_stream,
    did_you_mean,
)
from penstock.plan.codec import columns_from, dump_columns, dumps
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.explain import explain_query
from penstock.plan.input_order import with_ordered_inputs
from penstock.plan.result_columns import shown_schema
from penstock.plan.specs import SlotSpec
from penstock.runtime.analyzer import Analyzer
from penstock.runtime.datasource import register_sources
from penstock.runtime.derived.definition import made_by, maker_of
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.dispatch import Outlets
from penstock.runtime.joining.explain import explain_join_plan
from penstock.runtime.manager import RingManager, output_schema
from penstock.runtime.metrics import metrics_of
from penstock.runtime.query import Query, QueryStatus, query_status
from penstock.runtime.registry import ALONE, REPLAY, QueryRow, Registry
from penstock.runtime.session import active_session, check_session, driver_host, start_spark
from penstock.runtime.settings import Settings
from penstock.runtime.sharing import joint, sharing_of
from penstock.runtime.sinks.delivery import CallbackSink, Missing, Outlet, Share
from penstock.runtime.sinks.files import FileSink
from penstock.runtime.sinks.live import Subscribers, Subscription
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import shown_rows
from penstock.runtime.sinks.memory import MemorySink
from penstock.runtime.sinks.pool import SinkPool
from penstock.runtime.sinks.rows import json_lines
from penstock.runtime.sinks.spec import STREAM, Callback, SinkSpec, check_columns, sink_of
from penstock.runtime.statements import (
    Answer,
    in_use,
    one_select,
    run_script,
    same_statement,
    start_of,
    stored_select,
)
from penstock.runtime.streams import is_endless, own_names, readable, with_disorder
from penstock.runtime.workspace import Workspace
from penstock.schema import Field, Schema

Terminal = Callable[[str, pa.Table], None]


def _print_rows(query: str, rows: pa.Table) -> None:
    for line in json_lines(rows, {"query": query}):
        print(line, flush=True)


def _now_us() -> int:
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Plan:
    """A query that is understood and checked, not yet running."""

    select: Select
    bound: BoundQuery
    composed: Composed
    ring_outputs: Schema

    @property
    def outputs(self) -> Schema:
        """The query's own results: of those of its ring, in its own order and by its names."""
        return shown_schema(self.composed.columns, self.ring_outputs)

    def of_stream(self) -> Plan:
        """The plan as that of a derived stream: a DRATIO means something for selections, too."""
        if len(self.bound.inputs) > 1:
            return self
        composition = self.composed.composition
        composition = replace(composition, drop_ratio=self.bound.source.drop_ratio)
        bound = self.bound
        if composition.drop_ratio is not None and not bound.aggregated:
            bound = replace(bound, notes=())  # that it means nothing
        return replace(self, bound=bound, composed=replace(self.composed, composition=composition))


class Engine:
    """Runs continuous queries on Spark.

    spark: a session you already have; without one, Spark is started here and stopped with the
    engine. workspace: a directory for all that lasts; without one, a temporary directory. bounded:
    read what the sources hold, exactly, then flush: `finish()`. terminal: takes (query name, rows)
    of queries whose sink is the terminal.

    >>> from penstock import Engine
    >>> from penstock.testing import ScriptedStream
    >>> engine = Engine(spark)
    >>> readings = ScriptedStream(engine, "Readings", "id INT, ts TIMESTAMP", event_time="ts")
    >>> query = engine.register("SELECT id FROM Readings WHERE id > 1")
    >>> readings.push([{"id": 1, "ts": 0}, {"id": 2, "ts": 0}])
    >>> engine.await_idle()
    >>> query.results().to_pylist()
    [{'id': 2}]
    >>> engine.stop()
    """

    def __init__(
        self,
        spark: SparkSession | None = None,
        workspace: str | os.PathLike[str] | None = None,
        *,
        bounded: bool = False,
        terminal: Terminal | None = None,
        clock_us: Callable[[], int] = _now_us,
        settings: Mapping[str, OptionValue] | None = None,
    ) -> None:
        self.settings = Settings().changed(settings or {})
        self.workspace = Workspace(workspace)
        self._owns_spark = spark is None and SparkContext._active_spark_context is None
        try:
            self.registry = Registry(self.workspace.catalog)
            if spark is not None:
                check_session(spark)
            self.spark = spark or self._start_spark()
        except BaseException:
            self.workspace.close()
            raise
        self.bounded = bounded
        self.clock_us = clock_us
        self._terminal = terminal or _print_rows
        self._guard = threading.RLock()
        self._functions: dict[int, Callback] = {}
        self._memory: dict[int, MemorySink] = {}
        self._outlets = Outlets(SinkPool(lambda: self.settings.sink_patience_s), Subscribers())
        self._stopped = False
        with active_session(self.spark):
            register_sources(self.spark)
        if spark is not None:  # its workers compile the kernels one by one: let them find a cache
            threading.Thread(target=_warm_up, name="penstock-warm-up", daemon=True).start()
        self.analyzer = Analyzer(self.spark)
        self.exchange = Exchange(
            self.workspace,
            self.registry,
            driver_host(self.spark),
            lambda: self.settings.exchange_token_file,
        )
        self._manager = RingManager(
            self.spark,
            self.workspace,
            self.registry,
            lambda: self.settings,
            lambda name: self.catalog.get(name),
            self._sink,
            self._condition,
            self._outlets,
            self.exchange,
            clock_us,
            bounded,
        )
        try:
            self._manager.resume()
        except BaseException:
            self.stop()
            raise

    def _start_spark(self) -> SparkSession:
        log = None if self.workspace.temporary else self.workspace.path / "spark.log"
        return start_spark(self.settings.cores, self.settings.memory, log)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # streams

    @property
    def catalog(self) -> Catalog:
        return Catalog.of(self.registry.streams(), self.registry.regions())

    def stream(
        self,
        name: str,
        dataframe: DataFrame,
        *,
        event_time: str | None = None,
        arrival_time: str | None = None,
        estimator: str | None = None,
        slack: str | int | None = None,
        idle: str | None = None,
        trust: str | None = None,
    ) -> Stream:
        """Make any streaming DataFrame a stream; after a restart, hand it over again.

        estimator, slack, idle, trust: its disorder, as in CREATE STREAM.

        >>> engine = Engine(spark)
        >>> ticks = spark.readStream.format("rate").load()
        >>> engine.stream("Ticks", ticks, event_time="timestamp").schema.names
        ('timestamp', 'value')
        >>> engine.stop()
        """
        if not dataframe.isStreaming:
            hint = "make it with spark.readStream, or write its rows to files for CREATE STREAM"
            raise EngineError(f"the DataFrame for {name} is not streaming", hint)
        fields = tuple(Field(f.name, f.dataType.simpleString()) for f in dataframe.schema.fields)
        stream = Stream(name, Schema(fields), "dataframe", event_time, arrival_time)
        stream = with_disorder(stream, estimator, slack, idle, trust)
        check_stream(stream)
        stream = own_names(stream)
        with self._guard:
            if name.lower() in self.catalog.regions:
                raise EngineError(f"regions {name} exist already", "use another name")
            if (known := self.catalog.get(name)) is not None and known != stream:
                hint = "drop it first, or use another name"
                raise EngineError(f"stream {name} exists with another definition", hint)
            with active_session(dataframe.sparkSession):
                register_sources(dataframe.sparkSession)
            self.registry.put_stream(stream)
            self._manager.hand_over(name, dataframe)
        return stream

    def create_stream(self, stream: Stream) -> None:
        """Take a stream into the catalog (CREATE STREAM)."""
        with self._guard:
            self.catalog.refuse_taken(stream.name)
            self.registry.put_stream(stream)

    def derive_stream(self, stream: Stream, plan: Plan, text: str, start: str = "latest") -> Query:
        """Take in a stream that a query's results make (CREATE STREAM … AS); it flows as soon as
        somebody reads it."""
        self.create_stream(stream)
        try:
            self.exchange.create(stream)
            sink = SinkSpec(STREAM, stream.name)
            return self.start_query(plan, text, maker_of(stream.name), sink, None, start)
        except BaseException:
            self._forget_stream(stream, cascade=True)
            raise

    def change_stream(self, stream: Stream) -> None:
        """Take over another definition of disorder; running rings follow at their next epoch."""
        with self._guard:
            self.registry.put_stream(stream)
            self._manager.follow(stream)

    def drop_stream(self, name: str, cascade: bool = False) -> None:
        """Remove a stream that nobody reads, or (cascade) with all who do."""
        with self._guard:
            stream = self.catalog.require(name)
            readers = self.registry.readers_of(stream.name)
            if readers and not cascade:
                raise EngineError(*in_use("stream", stream.name, readers))
        self._drop_readers(readers)
        self._manager.forget(stream.name)  # outside the guard: a sink's function may want it
        self._forget_stream(stream, cascade)

    def _drop_readers(self, readers: Sequence[str]) -> None:
        """Drop queries, and with those that make streams whatever hangs on them."""
        for reader in readers:
            if self.registry.query(reader) is None:
                continue  # gone with another one
            if (made := made_by(reader)) is None:
                self.drop_query(reader)
            else:
                self.drop_stream(made, cascade=True)

    def _forget_stream(self, stream: Stream, cascade: bool) -> None:
        """Remove a stream that no ring reads any more, and what makes it if it is derived."""
        if stream.source == "derived":
            if (query := self.registry.query(maker_of(stream.name))) is not None:
                self._drop_slot(query)
                self._manager.retire(query.ring)
            self.exchange.drop(stream, cascade)
        self.registry.drop_stream(stream.name)
        self.workspace.forget_companions(stream.name)

    def create_regions(self, regions: RegionSet, body: bytes) -> None:
        """Take regions into the catalog (CREATE REGIONS); the workspace keeps what they are."""
        with self._guard:
            self.catalog.refuse_taken(regions.name)
            self.registry.put_regions(regions, body)

    def drop_regions(self, name: str, cascade: bool = False) -> None:
        """Remove regions that nobody joins, or (cascade) with all who do."""
        with self._guard:
            regions = self.catalog.require_regions(name)
            rings = self.registry.rings_of_regions(regions.name)
            readers = [q.name for ring in rings for q in self.registry.queries(ring)]
            if readers and not cascade:
                raise EngineError(*in_use("regions", regions.name, readers))
        self._drop_readers(readers)
        self._manager.forget_regions(regions.name)  # outside the guard, as for streams
        self.registry.drop_regions(regions.name)

    # queries

    def execute(self, text: str) -> list[Answer]:
        """Run a script; all of it is checked before any of it takes effect.

        >>> engine = Engine(spark)
        >>> answers = engine.execute('''
        ...     CREATE STREAM Rooms (room STRING, ts TIMESTAMP)
        ...       WITH (source = 'generator', rows = 10, event_time = 'ts');
        ...     DESCRIBE Rooms;
        ... ''')
        >>> answers[0].message, answers[1].rows[1]
        ('stream Rooms created', ('ts', 'timestamp', 'event time'))
        >>> engine.stop()
        """
        with self.together():
            return run_script(self, text)

    def together(self) -> AbstractContextManager[None]:
        """Queries registered inside a `with` block start together: all see the first tuple."""
        return self._manager.together()

    def register(
        self,
        text: str,
        name: str | None = None,
        sink: str | Mapping[str, OptionValue] | Callback | None = None,
        start: str = "latest",
    ) -> Query:
        """Register a continuous query; it is live from the next micro-batch on.

        It sees tuples from then on, and reports windows that lie wholly after them; with
        `start='earliest'` it gets a ring of its own that reads the source from its beginning.
        A function as sink is called with each Arrow table of results; registering the same text
        under the same name again attaches a new function to the running query.
        """
        statement = one_select(text)
        if sink is None and statement.sink is not None:
            sink = {o.key: o.value for o in statement.sink}
        try:
            if isinstance(statement, CreateQuery):
                name = name or statement.name
                start = start_of(statement.options) or start
            plan = self.plan(statement.select)
        except QueryError as error:
            raise error.at(text) from None
        return self.start_query(plan, text, name, sink_of(sink), sink, start)

    def plan(self, select: Select, catalog: Catalog | None = None) -> Plan:
        """bind → compose, checked by Spark; changes nothing."""
        bound = bind(select, catalog or self.catalog)
        spans = {ref.alias or ref.name: ref.span for ref in select.streams}
        for given in bound.inputs:
            if self.bounded and is_endless(given.stream):
                hint = "give its generator an end: rows = 100000"
                what = f"stream {given.stream.name} never ends"
                raise QueryError(what, hint, spans[given.alias])
        bound = with_ordered_inputs(bound)
        streams = [given.stream for given in bound.inputs]
        composed = compose(bound, self.analyzer.type_of, self.analyzer.fold)
        outputs = self.analyzer.output_schema(composed.composition, *streams)
        return Plan(select, bound, composed, outputs)

    def start_query(
        self,
        plan: Plan,
        text: str,
        name: str | None,
        spec: SinkSpec,
        given: object = None,
        start: str = "latest",
    ) -> Query:
        """allocate → publish: take a slot in a ring of the query's composition."""
        if start not in ("latest", "earliest"):
            raise EngineError(f"start {start} is not known", "use 'latest' or 'earliest'")
        check_columns(spec, plan.outputs.names)
        with self._guard, self._manager.guard:
            name = name or self._free_name()
            if made_by(name) is not None and spec.kind != STREAM:
                raise EngineError(f"{name!r} is the name of a stream's own query", "choose another")
            if (known := self.registry.query(name)) is not None:
                if callable(given) and same_statement(known.text, text):
                    return self._reattach(known, given)
                raise EngineError(f"query {name} exists already", f"DROP QUERY {name} first")
            with self.registry.change():
                own = REPLAY if start == "earliest" else ALONE if spec.kind == STREAM else 0
                ring = self._manager.allocate(plan.composed.composition, plan.ring_outputs, own)
                columns = dump_columns(plan.composed.columns)
                slot = self.registry.add_query(name, text, ring.id, spec.dumps(), columns)
                if callable(given):
                    self._functions[slot] = given
                # before the commit: no epoch may carry a slot whose results have no way out
                self._manager.attach(ring.id, self.registry.query_by_slot(slot))
                body = _slot(slot, plan.composed)
                self._manager.expect(ring.id, body)
                self.registry.publish(slot, dumps(body))
            seen = self._manager.has_seen_tuples(ring.id)
            self._manager.open(ring)
        self._manager.start_pending()
        if (refusal := self._manager.refusal(ring.id, slot)) is not None:
            if self.registry.query(name) is not None:
                self._drop_slot(self.registry.query_by_slot(slot))
            raise EngineError(f"Spark does not start this query: {refusal}")
        return Query(self, slot, name, _notes(plan, seen and start == "latest"))

    def _reattach(self, known: QueryRow, function: Callback) -> Query:
        self._functions[known.slot] = function
        self._manager.attach(known.ring, known, behind=True)
        return Query(self, known.slot, known.name)

    def _free_name(self) -> str:
        number = self.registry.next_slot()
        while self.registry.query(f"query_{number}") is not None:
            number += 1
        return f"query_{number}"

    def _sink(self, query: QueryRow) -> Outlet:
        """Where a query's results go; None is the workspace's result log."""
        spec = SinkSpec.loads(query.sink)
        match spec.kind:
            case "memory":
                return self._memory.setdefault(query.slot, MemorySink(spec.limit))
            case "terminal":
                return CallbackSink(lambda rows: self._terminal(query.name, rows), pooled=False)
            case "callback":
                function = self._functions.get(query.slot)
                return Missing() if function is None else CallbackSink(function)
            case "results":
                return None
            case kind if kind == STREAM:
                stream = self.catalog.require(str(spec.path))
                return self.exchange.feed(
                    stream,
                    partial(self._manager.punctuation_after, query.ring),
                    self._manager.asked_by_tasks(query.ring),
                )
            case _ if spec.layout == "batch":
                return Share(FileSink(str(spec.path), spec.kind), query.name)
            case _:
                return FileSink(str(spec.path), spec.kind, f"{query.name}-{query.slot}")

    def _condition(self, query: QueryRow) -> str | None:
        """A query's WHERE as Spark SQL."""
        where = bind(stored_select(query.text), self.catalog).where
        return None if where is None else render(where)

    def query(self, name: str) -> Query:
        """The running query of that name."""
        row = self.registry.query(name)
        if row is None:
            names = [q.name for q in self.registry.queries()]
            raise EngineError(f"query {name} not found", did_you_mean(name, names, "queries"))
        return Query(self, row.slot, row.name)

    def queries(self) -> list[Query]:
        """All queries that are not dropped, in order of registration."""
        return [Query(self, q.slot, q.name) for q in self.registry.queries()]

    def resume_query(self, name: str) -> None:
        """Try a quarantined query's sink now, or a failed query's ring (RESUME QUERY)."""
        self._manager.resume_query(self.registry.query_by_slot(self.query(name).slot))

    def drop_query(self, name: str) -> None:
        """Take a query out at the next micro-batch; its ring stays warm for a while."""
        with self._guard:
            query = self.query(name)
            if (made := made_by(query.name)) is not None:
                raise EngineError(f"{query.name} makes stream {made}", f"DROP STREAM {made}")
            self._drop_slot(self.registry.query_by_slot(query.slot))

    def _drop_slot(self, query: QueryRow) -> None:
        with self._guard:
            self.registry.drop_query(query.slot)
            self._functions.pop(query.slot, None)
            self._memory.pop(query.slot, None)
            self._manager.detach(query.ring, query.slot)
            self._manager.quarantine.forget(query.slot)
            self._outlets.subscribers.end(query.slot)

    def results(self, query: Query) -> pa.Table:
        """All rows kept for a query; see `Query.results`."""
        row = self.registry.query_by_slot(query.slot)
        ring = next(r for r in self.registry.rings() if r.id == row.ring)
        columns = columns_from(row.columns)
        rings = dict.fromkeys((*self.registry.origins(query.slot), row.ring))
        kept = [r for name in rings for r in ResultLog(self.workspace.results(name)).read(row.slot)]
        [first] = self._manager.quarantine.book.firsts([row.slot]).values()
        kept += ResultLog(self.workspace.waiting(row.ring)).read(row.slot, first)
        tables = [shown_rows(rows, columns) for rows in kept]
        if (memory := self._memory.get(query.slot)) is not None:
            tables += memory.rows()
        if tables:
            return pa.concat_tables(tables)
        return shown_rows(output_schema(ring).empty_table(), columns)

    def subscribe(self, query: Query, limit: int = 10_000) -> Subscription:
        """Results of a query as they come; see `Query.subscribe`."""
        with self._guard:
            if self.registry.query_by_slot(query.slot).dropped is not None:
                raise EngineError(f"query {query.name} is dropped")
            return self._outlets.subscribers.subscribe(query.slot, limit)

    def status_of(self, query: Query) -> QueryStatus:
        """State and counters of a query; see `Query.status`."""
        row = self.registry.query_by_slot(query.slot)
        ring = next(r for r in self.registry.rings() if r.id == row.ring)
        return query_status(row, ring, self._manager.is_open(ring.id), self._manager.care(row))

    def explain(self, text: str, slot: int | None = None) -> str:
        """How a SELECT would be run, or is run in a slot."""
        try:
            return self.explain_plan(self.plan(stored_select(text)), slot)
        except QueryError as error:
            raise error.at(text) from None

    def explain_plan(self, plan: Plan, slot: int | None = None) -> str:
        """The text of EXPLAIN for a checked query."""
        composition = plan.composed.composition
        ring = self._manager.find(composition)
        if slot is not None:
            own = self.registry.query_by_slot(slot).ring
            ring = next(r for r in self.registry.rings() if r.id == own)
        if composition.join is not None:
            figures = None if ring is None else self._manager.join_figures(ring.id)
            sharing = None if ring is None else joint(self.registry, ring.id, slot)
            return explain_join_plan(plan.bound, plan.composed, plan.outputs, sharing, figures)
        stream = readable(plan.bound.source.stream, self.workspace)
        terms = plan.composed.terms
        sharing = None if ring is None else sharing_of(self.registry, ring.id, terms, slot)
        place = self._manager.place(composition, stream)
        return explain_query(plan.bound, plan.composed, plan.outputs, place, sharing)

    def disorder_of(self, query: Query) -> dict[str, Any]:
        """How the disorder of a query's stream is judged; see `Query.disorder`."""
        return self._manager.disorder(self.registry.query_by_slot(query.slot).ring)

    # running

    def rings(self) -> list[dict[str, Any]]:
        """Running, waiting and failed rings with their figures."""
        return self._manager.describe()

    def metrics(self) -> dict[str, Any]:
        """Figures of streams (with their disorder), rings and queries, as plain data.

        >>> import json
        >>> from penstock.testing import ScriptedStream
        >>> engine = Engine(spark)
        >>> readings = ScriptedStream(engine, "Readings", "id INT, ts TIMESTAMP", event_time="ts")
        >>> text = "SELECT count(*) AS n FROM Readings [RANGE 1 SECOND DRATIO 1%]"
        >>> query = engine.register(text, name="counts")
        >>> readings.push([{"id": n, "ts": n} for n in range(3)])
        >>> engine.await_idle()
        >>> seen = json.loads(json.dumps(engine.metrics()))
        >>> seen["queries"]["counts"]["state"], seen["streams"]["Readings"]["rows"]
        ('running', 3)
        >>> [ring] = seen["streams"]["Readings"]["rings"]
        >>> ring["estimator"], ring["target"], ring["below"], ring["delay_max_us"]
        ('quantile', 0.01, 0, 0)
        >>> engine.stop()
        """
        return metrics_of(self.registry, self._manager)

    def await_idle(self, timeout: float = 120.0) -> None:
        """Wait until every ring has processed all that its source holds now."""
        self._manager.await_idle(timeout)

    def finish(self, timeout: float = 86_400.0) -> None:
        """Read all that the sources hold, close every window, deliver everything.

        Companions (`S.late`, `S.bad`) come after the streams that fill them.
        """
        self._manager.finish(timeout)

    def stop(self) -> None:
        """Stop all rings and a Spark that was started here; the workspace resumes everything."""
        if self._stopped:
            return
        self._stopped = True
        with ExitStack() as last:  # whatever fails on the way, the workspace is let go
            last.callback(self.workspace.close)
            last.callback(self.registry.close)
            if self._owns_spark:
                last.callback(self.spark.stop)
            last.callback(self._outlets.subscribers.end_all)
            last.callback(self.exchange.close)
            self._manager.stop()


def _slot(number: int, composed: Composed) -> SlotSpec:
    inputs = tuple(_slot(number, given) for given in composed.inputs)
    terms, window = composed.terms, composed.window
    return SlotSpec(number, terms, window, derived=composed.derived, inputs=inputs)


def _warm_up() -> None:
    from penstock.kernels.jit import warm_up

    warm_up()


def _notes(plan: Plan, behind: bool) -> tuple[str, ...]:
    if not behind or plan.composed.window is None:
        return plan.bound.notes
    note = "its first window is the first that begins after all tuples seen so far"
    return (*plan.bound.notes, note)
