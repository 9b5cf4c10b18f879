"""The engine: streams and queries in, running rings out.

A query's life is `register`: parse → bind → compose (`plan`) → allocate → publish (`start_query`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import EngineError, QueryError
from penstock.language.ast import CreateQuery, Select
from penstock.language.render import render
from penstock.plan.bind import bind
from penstock.plan.catalog import (
    Catalog,
    OptionValue,
    Stream,
    check_stream,
    did_you_mean,
)
from penstock.plan.codec import columns_from
from penstock.runtime.analyzer import Analyzer
from penstock.runtime.datasource import register_sources
from penstock.runtime.definitions import Definitions
from penstock.runtime.derived.definition import made_by
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.dispatch import Outlets
from penstock.runtime.explaining import explain_plan
from penstock.runtime.metrics import metrics_of
from penstock.runtime.planning import Plan, plan_query
from penstock.runtime.query import Query, QueryStatus, query_status
from penstock.runtime.registry import QueryRow, Registry
from penstock.runtime.rings.context import RingContext
from penstock.runtime.rings.manager import RingManager
from penstock.runtime.rings.opening import output_schema
from penstock.runtime.session import active_session, check_session, driver_host, start_spark
from penstock.runtime.settings import Settings
from penstock.runtime.sinks.delivery import Outlet
from penstock.runtime.sinks.live import Subscribers, Subscription
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import shown_rows
from penstock.runtime.sinks.outlets import QueryOutlets, Terminal
from penstock.runtime.sinks.pool import SinkPool
from penstock.runtime.sinks.rows import json_lines
from penstock.runtime.sinks.spec import Callback, SinkSpec, check_columns, sink_of
from penstock.runtime.slots import Slots
from penstock.runtime.statements import Answer, one_select, run_script, start_of, stored_select
from penstock.runtime.streams import own_names, with_disorder
from penstock.runtime.workspace import Workspace
from penstock.schema import Field, Schema


def _print_rows(query: str, rows: pa.Table) -> None:
    for line in json_lines(rows, {"query": query}):
        print(line, flush=True)


def _now_us() -> int:
    return time.time_ns() // 1000


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
        self._guard = threading.RLock()
        self._sinks = QueryOutlets(terminal or _print_rows, self._feed)
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
        context = RingContext(
            self.spark,
            self.workspace,
            self.registry,
            lambda: self.settings,
            lambda name: self.catalog.get(name),
            self._sinks.of,
            self._condition,
            self._forget_slot,
            self._outlets,
            self.exchange,
            clock_us,
            bounded,
        )
        self._manager = RingManager(context)
        self._rings = self._manager.running
        self.definitions = Definitions(
            self.registry,
            self.workspace,
            self.exchange,
            self._manager,
            self._guard,
            self.drop_query,
            lambda slot: self._slots.drop(slot),
        )
        self._slots = Slots(
            self.registry, self._sinks, self._manager, self._guard, self.definitions.check
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
        return self.registry.catalog()

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
        self._rings.hand_over(name, dataframe)  # outside the guard: rings may start
        return stream

    def drop_stream(self, name: str, cascade: bool = False) -> None:
        """Remove a stream that nobody reads, or (cascade) with all who do."""
        self.definitions.drop_stream(name, cascade)

    def drop_regions(self, name: str, cascade: bool = False) -> None:
        """Remove regions that nobody joins, or (cascade) with all who do."""
        self.definitions.drop_regions(name, cascade)

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

    @contextmanager
    def together(self) -> Iterator[None]:
        """Queries registered inside a `with` block start together: all see the first tuple.

        Those that Spark refuses a plan for are dropped; the error at the end names them.
        """
        with self._rings.together() as slots:
            yield
        if refused := self.registry.refused_among(slots):
            found = "; ".join(f"{query.name}: {query.error}" for query in refused)
            raise EngineError(f"Spark does not start {found}")

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
        return plan_query(select, catalog or self.catalog, self.analyzer, self.bounded)

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
        return Query(self, *self._slots.take(plan, text, name, spec, given, start))

    def _feed(self, stream: str, query: QueryRow) -> Outlet:
        """What fills a derived stream with the results of its query."""
        return self.exchange.feed(
            self.catalog.require(stream),
            partial(self._manager.punctuation_after, query.ring),
            self._manager.asked_by_tasks(query.ring),
        )

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
            self._slots.drop(query.slot)

    def _forget_slot(self, slot: int) -> None:
        self._sinks.forget(slot)
        self._outlets.subscribers.end(slot)

    def results(self, query: Query) -> pa.Table:
        """All rows kept for a query; see `Query.results`."""
        row = self.registry.query_by_slot(query.slot)
        ring = next(r for r in self.registry.rings() if r.id == row.ring)
        columns = columns_from(row.columns)
        rings = dict.fromkeys((*self.registry.origins(query.slot), row.ring))
        kept = [r for name in rings for r in ResultLog(self.workspace.results(name)).read(row.slot)]
        [first] = self._rings.quarantine.book.firsts([row.slot]).values()
        kept += ResultLog(self.workspace.waiting(row.ring)).read(row.slot, first)
        tables = [shown_rows(rows, columns) for rows in kept] + self._sinks.in_memory(query.slot)
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
        return explain_plan(plan, slot, self.registry, self._manager, self.workspace)

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


def _warm_up() -> None:
    from penstock.kernels.jit import warm_up

    warm_up()
