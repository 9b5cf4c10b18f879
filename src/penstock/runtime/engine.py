"""The engine: streams and queries in, running rings out. One screen per query's life: see `register`."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import EngineError, PenstockError, QueryError
from penstock.language import parse
from penstock.language.ast import BareSelect, CreateQuery, Select
from penstock.plan.bind import BoundQuery, bind
from penstock.plan.catalog import Catalog, OptionValue, Stream, check_stream, did_you_mean
from penstock.plan.codec import composition_from, dumps
from penstock.plan.compose import Composed, compose
from penstock.plan.explain import Sharing, explain_query
from penstock.plan.specs import SlotSpec
from penstock.runtime.analyzer import Analyzer
from penstock.runtime.companions import Companions
from penstock.runtime.compile import runs_in_reader
from penstock.runtime.datasource import PunctuationSource, RowSource
from penstock.runtime.dispatch import CallbackSink, Dispatcher, Sink
from penstock.runtime.epochs import EpochKeeper, Report, RingEpochs
from penstock.runtime.query import Query, QueryStatus
from penstock.runtime.registry import QueryRow, Registry, RingRow
from penstock.runtime.ring import Ring
from penstock.runtime.service import EpochServer
from penstock.runtime.session import start_spark
from penstock.runtime.settings import Settings
from penstock.runtime.sinks.files import FileSink
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.memory import MemorySink
from penstock.runtime.sinks.rows import json_lines
from penstock.runtime.sinks.spec import Callback, SinkSpec, sink_of
from penstock.runtime.stage import StageConfig
from penstock.runtime.statements import Answer, run_script
from penstock.runtime.streams import estimator_of, planner_of, readable, with_disorder
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
    outputs: Schema


class Engine:
    """Runs continuous queries on Spark.

    >>> from penstock import Engine
    >>> with Engine() as engine:                                             # doctest: +SKIP
    ...     engine.execute("CREATE STREAM S (id INT, ts TIMESTAMP) WITH (source='file', …)")
    ...     query = engine.register("SELECT id FROM S WHERE id > 5")
    ...     engine.await_idle()
    ...     query.results().to_pylist()

    spark: a session you already have; without one, Spark is started here and stopped with the engine.
    workspace: a directory for all that lasts; without one, a temporary directory.
    bounded: read what the sources hold, exactly, then flush: `finish()`.
    terminal: takes (query name, rows) of queries whose sink is the terminal.
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
        try:
            self.registry = Registry(self.workspace.catalog)
            self._owns_spark = spark is None
            self.spark = start_spark(self.settings.cores, self.settings.memory) if spark is None else spark
        except BaseException:
            self.workspace.close()
            raise
        self.bounded = bounded
        self.clock_us = clock_us
        self._terminal = terminal or _print_rows
        self._guard = threading.RLock()
        self._rings: dict[str, Ring] = {}
        self._frames: dict[str, DataFrame] = {}
        self._functions: dict[int, Callback] = {}
        self._memory: dict[int, MemorySink] = {}
        self._idle_since: dict[str, float] = {}
        self._together = 0
        self._stopped = threading.Event()
        self.spark.dataSource.register(RowSource)
        self.spark.dataSource.register(PunctuationSource)
        self.analyzer = Analyzer(self.spark)
        self._companions = Companions(
            self.workspace, self.registry, lambda slot: self.registry.query_by_slot(slot).name
        )
        parallelism = self.settings.parallelism or self.spark.sparkContext.defaultParallelism
        self.epochs = EpochKeeper(self.registry, self._keep_rows, parallelism)
        self._server = EpochServer(self.epochs.calls(), self._service_host())
        self._resume()
        self._supervisor = threading.Thread(
            target=self._supervise, name="penstock-supervisor", daemon=True
        )
        self._supervisor.start()

    def _service_host(self) -> str:
        """Loopback, unless Spark's executors run elsewhere and must reach the driver."""
        if self.spark.sparkContext.master.startswith("local"):
            return "127.0.0.1"
        return self.spark.conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # streams

    @property
    def catalog(self) -> Catalog:
        return Catalog.of(self.registry.streams())

    def stream(
        self,
        name: str,
        dataframe: DataFrame,
        *,
        event_time: str | None = None,
        arrival_time: str | None = None,
        estimator: str | None = None,
        slack: str | None = None,
    ) -> Stream:
        """Make any streaming DataFrame a stream; after a restart, hand it over again."""
        if not dataframe.isStreaming:
            hint = "make it with spark.readStream, or write its rows to files for CREATE STREAM"
            raise EngineError(f"the DataFrame for {name} is not streaming", hint)
        fields = tuple(Field(f.name, f.dataType.simpleString()) for f in dataframe.schema.fields)
        stream = Stream(name, Schema(fields), "dataframe", event_time, arrival_time)
        stream = with_disorder(stream, estimator, slack)
        check_stream(stream)
        with self._guard:
            if (known := self.catalog.get(name)) is not None and known != stream:
                hint = "drop it first, or use another name"
                raise EngineError(f"stream {name} exists with another definition", hint)
            self.registry.put_stream(stream)
            self._frames[name.lower()] = dataframe
            for ring in self.registry.rings():
                if ring.stream.lower() == name.lower() and ring.state == "running":
                    self._open_ring(ring)
        self._start_pending()
        return stream

    def create_stream(self, stream: Stream) -> None:
        with self._guard:
            if self.catalog.get(stream.name) is not None:
                raise EngineError(f"stream {stream.name} exists already", "drop it first")
            self.registry.put_stream(stream)

    def change_stream(self, stream: Stream) -> None:
        """Take over another definition of disorder; running rings follow at their next epoch."""
        with self._guard:
            self.registry.put_stream(stream)
            for ring in self._rings.values():
                if ring.stream.name.lower() == stream.name.lower():
                    state = self.epochs.state(ring.id)
                    state.estimator = estimator_of(stream)
                    state.hold = self._holds(stream, state.composition.drop_ratio)

    def readers_of(self, stream: str) -> list[str]:
        """Names of the running queries on a stream or on its companions."""
        rings = {r.id: r.stream.lower() for r in self.registry.rings()}
        prefix = stream.lower()
        return [
            q.name
            for q in self.registry.queries()
            if rings[q.ring] == prefix or rings[q.ring].startswith(prefix + ".")
        ]

    def drop_stream(self, name: str, cascade: bool = False) -> None:
        with self._guard:
            stream = self.catalog.require(name)
            readers = self.readers_of(stream.name)
            if readers and not cascade:
                names = ", ".join(readers[:5]) + (" …" if len(readers) > 5 else "")
                raise EngineError(
                    f"stream {stream.name} is read by {len(readers)} queries: {names}",
                    f"drop them first, or DROP STREAM {stream.name} CASCADE",
                )
            for reader in readers:
                self.drop_query(reader)
            for ring in self.registry.rings():
                base = ring.stream.lower()
                if base == name.lower() or base.startswith(name.lower() + "."):
                    self._retire(ring.id)
            self._frames.pop(name.lower(), None)
            self.registry.drop_stream(stream.name)

    # queries

    def execute(self, text: str) -> list[Answer]:
        """Run a script; all of it is checked before any of it takes effect."""
        with self.together():
            return run_script(self, text)

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
        statement = self._one_select(text)
        if isinstance(statement, CreateQuery):
            name = name or statement.name
            if sink is None and statement.sink is not None:
                sink = {o.key: o.value for o in statement.sink}
        try:
            plan = self.plan(statement.select)
        except QueryError as error:
            raise error.at(text) from None
        return self.start_query(plan, text, name, sink_of(sink), sink, start)

    def _one_select(self, text: str) -> CreateQuery | BareSelect:
        statements = parse(text)
        if len(statements) != 1 or not isinstance(statements[0], (CreateQuery, BareSelect)):
            raise EngineError("register takes one SELECT", "use execute for other statements")
        return statements[0]

    def plan(self, select: Select, catalog: Catalog | None = None) -> Plan:
        """parse → bind → compose, checked by Spark; changes nothing."""
        bound = bind(select, catalog or self.catalog)
        stream = bound.source.stream
        composed = compose(bound, lambda sql: self.analyzer.type_of(sql, stream.schema))
        outputs = self.analyzer.output_schema(composed.composition, stream)
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
        with self._guard:
            name = name or self._free_name()
            if (known := self.registry.query(name)) is not None:
                if callable(given) and _normal(known.text) == _normal(text):
                    return self._reattach(known, given)
                raise EngineError(f"query {name} exists already", f"DROP QUERY {name} first")
            ring = self._allocate(plan, replay=start == "earliest")
            with self.registry.change():
                slot = self.registry.add_query(name, text, ring.id, spec.dumps())
                body = SlotSpec(slot, plan.composed.terms, plan.composed.window)
                self.registry.publish(slot, dumps(body))
            if callable(given):
                self._functions[slot] = given
            if ring.id in self._rings:
                self._rings[ring.id].dispatcher.attach(slot, self._sink(slot, name, spec))
            else:
                self._open_ring(ring)
            self._idle_since.pop(ring.id, None)
        self._start_pending()
        return Query(self, slot, name, plan.bound.notes)

    def _reattach(self, known: QueryRow, function: Callback) -> Query:
        self._functions[known.slot] = function
        self.registry.set_query_state(known.slot, "running", None)
        if known.ring in self._rings:
            self._rings[known.ring].dispatcher.attach(known.slot, CallbackSink(function))
        return Query(self, known.slot, known.name)

    def _free_name(self) -> str:
        taken = {q.name.lower() for q in self.registry.queries(dropped=True)}
        return next(n for i in range(1, len(taken) + 2) if (n := f"query_{i}") not in taken)

    def _allocate(self, plan: Plan, replay: bool) -> RingRow:
        """A running ring of the same composition, or a new one."""
        composition = plan.composed.composition
        text = dumps(composition)
        for ring in self.registry.rings():
            if ring.composition == text and ring.state == "running" and not (ring.replay or replay):
                return ring
        id_ = f"{composition.kind}-{secrets.token_hex(3)}"
        outputs = dumps(plan.outputs)
        ring = RingRow(id_, composition.stream, text, outputs, "running", None, replay)
        with self.registry.change():
            self.registry.add_ring(ring)
            if not replay:
                self.registry.inherit_position(id_, composition.stream)
        return ring

    def query(self, name: str) -> Query:
        """The running query of that name."""
        row = self.registry.query(name)
        if row is None:
            names = [q.name for q in self.registry.queries()]
            raise EngineError(f"query {name} not found", did_you_mean(name, names, "queries"))
        return Query(self, row.slot, row.name)

    def queries(self) -> list[Query]:
        return [Query(self, q.slot, q.name) for q in self.registry.queries()]

    def drop_query(self, name: str) -> None:
        with self._guard:
            query = self.query(name)
            row = self.registry.query_by_slot(query.slot)
            self.registry.drop_query(query.slot)
            if row.ring in self._rings:
                self._rings[row.ring].dispatcher.detach(query.slot)
                if not self.registry.queries(row.ring):
                    self._idle_since[row.ring] = time.monotonic()

    def results(self, query: Query) -> pa.Table:
        row = self.registry.query_by_slot(query.slot)
        ring = next(r for r in self.registry.rings() if r.id == row.ring)
        names = [f["name"] for f in _fields(ring.outputs)]
        tables = ResultLog(self.workspace.results(row.ring)).read(query.slot)
        if (memory := self._memory.get(query.slot)) is not None:
            tables += memory.rows()
        if tables:
            return pa.concat_tables(tables)
        return pa.table({n: pa.array([], pa.null()) for n in names})

    def status_of(self, query: Query) -> QueryStatus:
        row = self.registry.query_by_slot(query.slot)
        ring = next(r for r in self.registry.rings() if r.id == row.ring)
        state, error = row.state, row.error
        if state == "running" and ring.state == "failed":
            state, error = "failed", ring.error
        elif state == "running" and ring.id not in self._rings:
            state, error = "waiting", f"hand the stream over: engine.stream('{ring.stream}', …)"
        return QueryStatus(state, row.ring, row.rows, row.late, error)

    def explain(self, text: str) -> str:
        """How a SELECT would be run (or is run)."""
        statement = self._one_select(text)
        try:
            return self.explain_plan(self.plan(statement.select))
        except QueryError as error:
            raise error.at(text) from None

    def explain_plan(self, plan: Plan) -> str:
        composition = plan.composed.composition
        stream = readable(plan.bound.source.stream, self.workspace)
        text = dumps(composition)
        ring = next(
            (r for r in self.registry.rings() if r.composition == text and r.state == "running"), None
        )
        sharing = None
        if ring is not None:
            sharing = Sharing(ring.id, len(self.registry.queries(ring.id)))
        return explain_query(
            plan.bound, plan.composed, plan.outputs, runs_in_reader(composition, stream), sharing
        )

    # rings

    @contextmanager
    def together(self) -> Iterator[None]:
        """Queries registered inside start together: all see the first tuple."""
        with self._guard:
            self._together += 1
        try:
            yield
        finally:
            with self._guard:
                self._together -= 1
        self._start_pending()

    def _resume(self) -> None:
        for ring in self.registry.rings():
            if ring.state == "failed":
                self.registry.set_ring_state(ring.id, "running")
                ring = replace(ring, state="running", error=None)
            if ring.state == "running":
                self._open_ring(ring)
        self._start_pending()

    def _open_ring(self, row: RingRow) -> None:
        """Make a ring ready to start; one whose DataFrame is not here yet has to wait."""
        stream = self.catalog.get(row.stream)
        if stream is None or row.id in self._rings:
            return
        stream = readable(stream, self.workspace)
        if stream.source == "dataframe" and stream.name.lower() not in self._frames:
            return
        composition = composition_from(row.composition)
        address = self._server.address
        config = StageConfig(row.id, row.composition, dumps(stream), *asdict(address).values())
        self.epochs.open(
            RingEpochs(
                row.id,
                composition,
                planner_of(stream, self.clock_us),
                estimator_of(stream),
                self._holds(stream, composition.drop_ratio),
            )
        )
        dispatcher = Dispatcher(
            row.id,
            tuple(f["name"] for f in _fields(row.outputs)),
            ResultLog(self.workspace.results(row.id), self.settings.results_bytes),
            self._quarantine,
            lambda batch, rows: self._finish_batch(row.id, batch, rows),
        )
        for q in self.registry.queries(row.id):
            dispatcher.attach(q.slot, self._sink(q.slot, q.name, SinkSpec.loads(q.sink)))
        checkpoint = str(self.workspace.checkpoint(row.id))
        self._rings[row.id] = Ring(row.id, composition, stream, config, dispatcher, checkpoint)

    def _holds(self, stream: Stream, drop_ratio: float | None) -> bool:
        return self.bounded and stream.estimator is None and drop_ratio is None

    def _sink(self, slot: int, name: str, spec: SinkSpec) -> Sink | None:
        match spec.kind:
            case "memory":
                return self._memory.setdefault(slot, MemorySink(spec.limit))
            case "terminal":
                return CallbackSink(lambda rows: self._terminal(name, rows))
            case "callback":
                function = self._functions.get(slot)
                return None if function is None else CallbackSink(function)
            case "results":
                return None
            case _:
                return FileSink(str(spec.path), spec.kind, name)

    def _start_pending(self, force: bool = False) -> None:
        with self._guard:
            if self._together or (self.bounded and not force) or self._stopped.is_set():
                return
            pending = [r for r in self._rings.values() if not r.started]
            shuffle = self.settings.parallelism or self.spark.sparkContext.defaultParallelism
            extra = {"spark.sql.shuffle.partitions": str(shuffle)}
            for ring in pending:
                frame = self._frames.get(ring.stream.name.lower())
                ring.start(self.spark, frame, self.settings.trigger_ms, extra)

    def _finish_batch(self, ring: str, batch: int, rows: dict[int, int]) -> None:
        self.registry.count_results(batch, rows)
        self.epochs.absorb(ring)

    def _keep_rows(self, state: RingEpochs, epoch: int, reports: list[Report]) -> None:
        stream = state.composition.stream
        if "." not in stream:
            self._companions.keep(stream, state.ring, epoch, reports)

    def _quarantine(self, slot: int, error: BaseException) -> None:
        message = f"{type(error).__name__}: {error}".split("\n")[0]
        self.registry.set_query_state(slot, "quarantined", message)
        ring = self.registry.query_by_slot(slot).ring
        self._rings[ring].dispatcher.attach(slot, None)

    def _supervise(self) -> None:
        while not self._stopped.wait(0.5):
            with self._guard:
                for ring in list(self._rings.values()):
                    if (failure := ring.failure()) is not None:
                        self._fail(ring.id, failure)
                    elif time.monotonic() - self._idle_since.get(ring.id, float("inf")) > (
                        self.settings.idle_ring_s
                    ):
                        self._retire(ring.id)

    def _fail(self, ring: str, error: str) -> None:
        self.registry.set_ring_state(ring, "failed", error)
        self._rings.pop(ring).stop()
        self.epochs.close(ring)

    def _retire(self, ring: str) -> None:
        self.registry.set_ring_state(ring, "retired")
        self._idle_since.pop(ring, None)
        if ring in self._rings:
            self._rings.pop(ring).stop()
            self.epochs.close(ring)

    def rings(self) -> list[dict[str, Any]]:
        """Running and failed rings with their figures."""
        found = []
        for row in self.registry.rings():
            if row.state == "retired":
                continue
            ring = self._rings.get(row.id)
            found.append(
                {
                    "ring": row.id,
                    "kind": composition_from(row.composition).kind,
                    "stream": row.stream,
                    "queries": len(self.registry.queries(row.id)),
                    "state": row.state if ring is not None or row.state == "failed" else "waiting",
                    **({} if ring is None else ring.progress()),
                    "error": row.error,
                }
            )
        return found

    def await_idle(self, timeout: float = 120.0) -> None:
        """Wait until every ring has processed all that its source holds now."""
        self._start_pending(force=True)
        deadline = time.monotonic() + timeout
        for ring in list(self._rings.values()):
            try:
                ring.await_idle(deadline)
            except EngineError:
                if (failure := ring.failure()) is not None:
                    with self._guard:
                        if ring.id in self._rings:
                            self._fail(ring.id, failure)
                raise

    def finish(self, timeout: float = 86_400.0) -> None:
        """Read all that the sources hold, close every window, deliver everything.

        Companions (`S.late`, `S.bad`) come after the streams that fill them.
        """
        self._start_pending(force=True)
        deadline = time.monotonic() + timeout
        for companions in (False, True):
            rings = [r for r in self._rings.values() if ("." in r.stream.name) == companions]
            for flush in (False, True):
                for ring in rings:
                    self.epochs.state(ring.id).flushing = flush
                for ring in rings:
                    ring.await_idle(deadline)
        for ring in self._rings.values():
            self.epochs.state(ring.id).flushing = False

    def stop(self) -> None:
        """Stop all rings and, if it was started here, Spark; everything resumes from the workspace."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._supervisor.join(timeout=5)
        for ring in self._rings.values():
            ring.stop()
        self._server.close()
        self.registry.close()
        if self._owns_spark:
            self.spark.stop()
        self.workspace.close()


def _normal(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().rstrip(";").lower()


def _fields(schema_text: str) -> list[dict[str, str]]:
    return list(json.loads(schema_text)["fields"])


__all__ = ["Answer", "Engine", "Plan", "PenstockError"]
