"""The rings of an engine: allocated, opened, started, watched, kept warm, retired."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.control.disorder import Disorder, has_begun
from penstock.control.ring_balance import KeepWarm, Merge, Retire, RingDecision, Split
from penstock.errors import EngineError, PenstockError
from penstock.plan.catalog import Stream
from penstock.plan.codec import columns_from, composition_from, dumps
from penstock.plan.explain import Place
from penstock.plan.specs import FENCE_PREFIX, Composition, SlotSpec
from penstock.runtime.balance import Balance
from penstock.runtime.companions import Companions
from penstock.runtime.compile import Input, is_chain, is_stateless, plan_settings
from penstock.runtime.config import StageConfig, input_ring, owner_of
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.derived.pipelines import Pipelines
from penstock.runtime.derived.progress import told_punctuation
from penstock.runtime.derived.restoring import Restorer
from penstock.runtime.derived.source import QueuePlanner
from penstock.runtime.dispatch import Dispatcher, Outlet, Outlets, is_delivering
from penstock.runtime.epochs import EpochKeeper, Report, RingEpochs
from penstock.runtime.generations import ConditionOf, Generations
from penstock.runtime.joining.monitor import JoinFigures, JoinMonitor
from penstock.runtime.moves import copy_checkpoint, merge_slots, split_slots
from penstock.runtime.registry import INPUT, REPLAY, QueryRow, Registry, RingRow
from penstock.runtime.ring import Ring, first_cause
from penstock.runtime.ring_watch import RingWatch
from penstock.runtime.service import EpochServer
from penstock.runtime.session import STATE_STORES, driver_host, executors_of
from penstock.runtime.settings import Settings
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sources.decoded import forget_decoded
from penstock.runtime.sources.planner import Planner
from penstock.runtime.streams import planner_of, readable, rules_of
from penstock.runtime.workspace import Workspace
from penstock.schema import Schema, arrow_type

MAX_RESTARTS = 5  # in a row, for failures that may pass; with growing pauses, 15 s in all

_ALIGN_S = 20.0  # in which two rings must have read the same, if slots are to go across

SinkOf = Callable[[QueryRow], Outlet]
FindStream = Callable[[str], Stream | None]


class RingManager:
    """Owns every running ring; knows queries only as slots with sinks."""

    def __init__(
        self,
        spark: SparkSession,
        workspace: Workspace,
        registry: Registry,
        settings: Callable[[], Settings],
        find_stream: FindStream,
        sink_of: SinkOf,
        condition_of: ConditionOf,
        outlets: Outlets,
        exchange: Exchange,
        clock_us: Callable[[], int],
        bounded: bool,
    ) -> None:
        self._spark = spark
        self._workspace = workspace
        self._registry = registry
        self._settings = settings
        self._find_stream = find_stream
        self._sink_of = sink_of
        self._outlets = outlets
        self._exchange = exchange
        restorer = Restorer(workspace, registry, exchange)
        self._restorer = restorer
        self._pipelines = Pipelines(registry, exchange, restorer, find_stream)
        self._clock_us = clock_us
        self._bounded = bounded
        self.guard = threading.RLock()  # of the books; never held while Spark works
        self._starting = threading.RLock()  # one ring starts at a time
        self._rings: dict[str, Ring] = {}
        self._frames: dict[str, DataFrame] = {}
        self._idle_since: dict[str, float] = {}
        self._restarts: dict[str, tuple[int, int]] = {}  # in a row, after so many batches
        self._waiting = 0
        self._stopped = threading.Event()
        self._companions = Companions(
            workspace, registry, lambda slot: registry.query_by_slot(slot).name
        )
        self._epochs = EpochKeeper(registry, self._keep_rows, self._parallelism, clock_us)
        self._generations = Generations(
            registry, self._epochs, settings, condition_of, self._is_stateless
        )
        self._refused: dict[int, str] = {}  # slots whose plan Spark would not start
        self._joins = JoinMonitor()
        self._watch = RingWatch(self._epochs)
        self._balance = Balance(
            registry,
            self._watch,
            self._rings,
            self._idle_since,
            settings,
            lambda: self._parallelism,
        )
        calls = self._epochs.calls() | self._joins.calls()
        self._server = EpochServer(calls, driver_host(spark))
        self._supervisor = threading.Thread(
            target=self._supervise, name="penstock-supervisor", daemon=True
        )

    @property
    def _parallelism(self) -> int:
        return self._settings().parallelism or int(self._spark.sparkContext.defaultParallelism)

    def _partitions(self, composition: Composition) -> int:
        """Tasks after a shuffle. A join's tables live in the one worker that its executor uses
        again and again: with two tasks, each worker would have to keep the tables of both."""
        if composition.join is None or is_chain(composition):
            return self._parallelism
        return self._settings().join_tasks or executors_of(self._spark)

    # life of a ring

    def resume(self) -> None:
        """Take up all rings of the workspace; one that failed is tried again."""
        self._workspace.forget_checkpoints_but({row.id for row in self._registry.rings()})
        for row in self._registry.rings():
            if row.state == "failed":
                self._registry.set_ring_state(row.id, "running")
                row = replace(row, state="running", error=None)
            if row.state == "running":
                try:
                    self.open(row)
                except PenstockError as error:  # of a node that cannot be had any more
                    self._registry.set_ring_state(row.id, "failed", error.message)
        self._supervisor.start()
        self.start_pending()

    def allocate(self, composition: Composition, outputs: Schema, own: int = 0) -> RingRow:
        """A running ring of the same composition, or a new one; REPLAY and ALONE get their own."""
        text = dumps(composition)
        if not own and (ring := self.find(composition)) is not None:
            return ring
        id_ = _new_id(composition)
        ring = RingRow(id_, composition.stream, text, dumps(outputs), "running", None, own)
        with self._registry.change():
            self._registry.add_ring(ring)
            for name, part in _parts(id_, composition):
                if part is not composition:
                    row = RingRow(name, part.stream, dumps(part), "", INPUT, None, own)
                    self._registry.add_ring(row)
                if not (own == REPLAY or self._reads_itself(part.stream)):
                    self._registry.inherit_position(name, part.stream, part.event_time)
        return ring

    def _reads_itself(self, stream: str) -> bool:
        """Whether Spark reads the stream, from wherever the user's DataFrame begins."""
        found = self._find_stream(stream)
        return found is not None and found.source == "dataframe"

    def find(self, composition: Composition) -> RingRow | None:
        """The running ring that a query of this composition would share."""
        alike = {
            row.id: row
            for row in self._registry.rings()
            if row.state == "running"
            and not row.replay
            and composition_from(row.composition) == composition
        }
        for row in alike.values():
            if row.id not in self._rings:  # it waits for its DataFrame
                return row
        return None if (ring := self._balance.place(alike.values())) is None else alike[ring]

    def place(self, composition: Composition, stream: Stream) -> Place:
        """Where a query's predicates are evaluated, or would be in a ring of its own."""
        row = self.find(composition)
        if row is not None and row.id in self._rings:
            return self._rings[row.id].place
        return self._generations.first_place(composition, stream)

    def open(self, row: RingRow) -> None:
        """Make a ring ready to start; one whose DataFrame is not here yet has to wait."""
        composition = composition_from(row.composition)
        found = [self._find_stream(name) for name in composition.streams]
        streams = [
            self._exchange.readable(readable(stream, self._workspace))
            for stream in found
            if stream is not None
        ]
        if row.id in self._rings or len(streams) < len(found):
            return
        if any(s.source == "dataframe" and s.name.lower() not in self._frames for s in streams):
            return
        address = asdict(self._server.address)
        feeds = self._pipelines.fed_by(row)
        inputs = tuple(
            Input(
                part,
                stream,
                StageConfig(name, dumps(part), dumps(stream), **address, watches=feeds is not None),
            )
            for (name, part), stream in zip(_parts(row.id, composition), streams, strict=True)
        )
        states = [self._epochs_of(given, row, feeds) for given in inputs]
        for state in states:
            state.feeds = feeds is not None
            if composition.join is not None:
                state.siblings = states
                state.eager = composition.kind == "select" and not state.feeds
            self._epochs.open(state)
        config = inputs[0].config
        if composition.join is not None:
            texts = json.dumps([dumps(stream) for stream in streams])
            memory = self._settings().join_memory
            config = StageConfig(row.id, row.composition, texts, **address, join_memory=memory)
            begun = any(state.through >= 0 for state in states)
            self._joins.open(row.id, resumed=begun and not is_chain(composition))
        dispatcher = Dispatcher(
            row.id,
            tuple(output_schema(row).names),
            ResultLog(
                self._workspace.results(row.id),
                None if self._bounded else self._settings().results_bytes,
            ),
            self._quarantine,
            lambda batch, rows: self._finish_batch(row.id, batch, rows),
            self._outlets,
        )
        before = self._registry.delivered_before(row.id)
        for query in self._registry.queries(row.id):
            columns = columns_from(query.columns)
            dispatcher.attach(query.slot, self._sink_of(query), columns, before.get(query.slot))
        checkpoint = str(self._workspace.checkpoint(row.id))
        ring = Ring(row.id, composition, inputs, config, dispatcher, checkpoint, feeds)
        self._rings[row.id] = ring

    def _epochs_of(self, given: Input, row: RingRow, feeds: Stream | None) -> RingEpochs:
        stream, composition = given.stream, given.composition
        if stream.source == "derived":
            planner: Planner | None = self._pipelines.planner(given, row, feeds)
        else:
            planner = planner_of(stream, self._clock_us)
        return RingEpochs(
            given.config.ring,
            composition,
            planner,
            Disorder(rules_of(stream, composition)),
            stream.trust_us,
            self._holds(stream, composition.drop_ratio),
        )

    def _holds(self, stream: Stream, drop_ratio: float | None) -> bool:
        """A bounded run is exact unless the user allowed a loss: nothing is late until the end."""
        return self._bounded and stream.estimator is None and drop_ratio is None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Rings opened inside start when the outermost block ends."""
        with self.guard:
            self._waiting += 1
        try:
            yield
        finally:
            with self.guard:
                self._waiting -= 1
            self.start_pending()

    def start_pending(self, force: bool = False) -> None:
        """Start the rings that are open; those of a bounded engine only when asked to (force).

        Rings that queries wait for go on with another plan. A ring that Spark refuses to start is
        marked failed and does not keep others from starting.
        """
        # a sink must not wait here: whoever has the lock may wait for the sink's micro-batch
        if not self._starting.acquire(blocking=not is_delivering()):
            return  # the supervisor sees to it
        try:
            if self._waiting or (self._bounded and not force) or self._stopped.is_set():
                return
            before: Ring | None = None
            while pending := self._pending():
                self._register_consumers(pending)
                for ring in pending:
                    if before is not None:
                        before.await_start()
                    try:
                        self._start(ring)
                        before = ring
                    except Exception as error:  # whatever Spark says, it concerns this ring only
                        self._fail(ring, first_cause(str(error)))
        finally:
            self._starting.release()

    def _pending(self) -> list[Ring]:
        rings = self._snapshot()
        if not any(map(self._is_pending, rings)):
            return []
        return [ring for ring in self._pipelines.wanted(rings) if self._is_pending(ring)]

    def _is_pending(self, ring: Ring) -> bool:
        return not ring.started or (self._generations.is_due(ring) and not is_delivering())

    def _register_consumers(self, rings: list[Ring]) -> None:
        """Before any of them starts: what one makes must be kept for the others."""
        for ring in rings:
            planners = [self._epochs.planner(part) for part in ring.parts]
            try:
                for planner in planners:
                    if isinstance(planner, QueuePlanner):
                        self._pipelines.prepare(ring, planner, self._restore_queues)
            except PenstockError as error:
                self._fail(ring, f"{type(error).__name__}: {error.message}")

    def _snapshot(self) -> list[Ring]:
        with self.guard:
            return list(self._rings.values())

    def _start(self, ring: Ring) -> None:
        own = ring.composition.join is not None or ring.composition.following is not None
        store = "rocksdb" if own else self._settings().state_store
        extra = {
            "spark.sql.shuffle.partitions": str(self._partitions(ring.composition)),
            "spark.sql.streaming.stateStore.providerClass": STATE_STORES[store],
            **plan_settings(ring.composition),
        }
        with self.guard:
            if not self.is_open(ring.id):
                return
            generation = self._generations.plan(ring)
            frames = dict(self._frames)
        start = self._spark, frames, self._settings().trigger_ms, extra, generation
        if not ring.started:
            ring.start(*start)
        else:
            try:
                ring.renew(*start, lambda: self._forget_reports(ring))
            except Exception as error:
                if not ring.active:
                    raise
                self._refuse_waiting(ring, first_cause(str(error)))
                return
        with self.guard:
            self._generations.started(ring)

    def _forget_reports(self, ring: Ring) -> None:
        for part in ring.parts:
            self._epochs.forget_reports(part)

    def _refuse_waiting(self, ring: Ring, error: str) -> None:
        """The ring goes on as it was; queries that waited for another plan are told why not."""
        with self.guard:
            for slot in self._generations.refuse_waiting(ring):
                self._refused[slot] = error
                ring.dispatcher.detach(slot)

    def _recover(self, ring: Ring) -> bool:
        """Start a ring again that failed in passing; False if it has to be given up."""
        with self._starting:
            passing = ring.failed_in_passing() or ring.lost_a_queue()
            if not self.is_open(ring.id) or not passing:
                return self.is_open(ring.id) and ring.failure() is None
            tried, batches = self._restarts.get(ring.id, (0, -1))
            if ring.dispatcher.batches > batches:  # it worked since the last time
                tried = 0
            if tried >= MAX_RESTARTS:
                return False
            self._restarts[ring.id] = (tried + 1, ring.dispatcher.batches)
            self._stopped.wait(0.5 * 2**tried)
            try:
                if ring.lost_a_queue():
                    self._restore_queues(ring)
                self._start(ring)
            except Exception:  # the caller tells why the ring had failed
                return False
            return True

    def _restore_queues(self, ring: Ring) -> None:
        """Have the queues that a ring reads and feeds made again where they are lost."""
        rings, streams = {r.id: r for r in self._snapshot()}, self._pipelines.streams_of(ring)
        for maker in self._restorer.restore(streams, rings):
            self._forget_reports(maker)
            if maker.started and maker is not ring:
                self._start(maker)

    def retire(self, ring: str, if_idle: bool = False) -> None:
        """Stop a ring for good; its results stay, its checkpoint goes."""
        with self.guard:
            if if_idle and self._registry.count_queries(ring):
                return
            self._registry.retire_ring(ring)
            running = self._take(ring)
        if running is not None:
            running.close()
        row = next(row for row in self._registry.rings() if row.id == ring)
        for name, part in _parts(ring, composition_from(row.composition)):
            self._pipelines.unregister(part.stream, name)
        self._workspace.forget_checkpoint(ring)

    def _fail(self, ring: Ring, error: str) -> None:
        with self.guard:
            if self._take(ring.id) is None:
                return
            self._registry.set_ring_state(ring.id, "failed", error)
        ring.close()

    def _take(self, ring: str) -> Ring | None:
        """Strike a ring off the books; the caller stops it, outside the guard."""
        self._idle_since.pop(ring, None)
        self._generations.forget(ring)
        self._watch.forget(ring)
        taken = self._rings.pop(ring, None)
        for part in [] if taken is None else taken.parts:
            self._epochs.close(part)
        self._joins.close(ring)
        return taken

    def _supervise(self) -> None:
        while not self._stopped.wait(0.5):
            for ring in self._snapshot():
                try:
                    self._look_after(ring)
                except Exception as error:  # the supervisor must outlive whatever it sees
                    if not self._stopped.is_set():
                        self._fail(ring, f"{type(error).__name__}: {error}".split("\n")[0])
            for decision in self._balance.decide():
                try:
                    self._carry_out(decision)
                except Exception as error:  # the rings are as before, or fail by themselves
                    self._balance.note(decision.ring, first_cause(str(error)))
                    self._watch.moved(decision.ring)

    def _carry_out(self, decision: RingDecision) -> None:
        match decision:
            case Retire(ring):
                self.retire(ring, if_idle=True)
            case Split() | Merge() if self._bounded:
                pass  # its rings read what there is as fast as they can
            case Split(ring, slots, None):
                self.split(ring, slots)
            case Split(ring, slots, str(to)) | Merge(ring, to, slots):
                self.hand_slots(ring, to, slots)
            case KeepWarm():
                pass

    def _count(self, ring: Ring) -> None:
        """Of tuples that Spark reads and selects alone, Spark alone knows how many there were."""
        if ring.place == "spark" and ring.stream.source == "dataframe":
            self._epochs.count(ring.id, ring.take_count())

    def _look_after(self, ring: Ring) -> None:
        if (failure := ring.failure()) is not None:
            if not self._recover(ring):
                self._fail(ring, failure)
            return
        self._count(ring)
        if not ring.started or self._generations.is_due(ring):
            self.start_pending()
        elif not self._bounded and self._generations.may_settle(ring):
            with self._starting:
                self._start(ring)
        if ring.started and not self._bounded:
            self._watch.look(ring)

    def split(self, ring: str, slots: Sequence[int]) -> str:
        """Move slots to a copy of their ring, which has all the state; the copy's id.

        Nothing is lost and nothing comes twice: both go on after the same micro-batch.
        """
        with self._starting:
            running = self._rings[ring]
            delivered = running.dispatcher.delivered
            if delivered < 0 or self._generations.is_due(running) or running.feeds is not None:
                raise EngineError(f"ring {ring} cannot be split now")
            copy = _new_id(running.composition)
            with running.standing_still():
                try:
                    copy_checkpoint(
                        self._workspace.checkpoint(ring), self._workspace.checkpoint(copy)
                    )
                    self._forget_reports(running)
                    self._move_to_copy(running, copy, slots)
                finally:
                    self._start(running)
            self.start_pending()
            return copy

    def _move_to_copy(self, ring: Ring, copy: str, slots: Sequence[int]) -> None:
        known = {row.id: row for row in self._registry.rings(inputs=True)}
        parts = [p for p in ring.parts if p != ring.id]
        rows = [(known[p], replace(known[p], id=_of_copy(p, copy))) for p in (ring.id, *parts)]
        for part in ring.parts:
            if isinstance(planner := self._epochs.planner(part), QueuePlanner):
                planner.keep_for(_of_copy(part, copy))
        with self.guard:
            split_slots(self._registry, rows, slots, ring.dispatcher.delivered)
            for slot in slots:
                ring.dispatcher.detach(slot)
            self.open(rows[0][1])
            self._watch.moved(ring.id, copy)
            self._balance.note(ring.id, f"{len(slots)} queries went to {copy}")
            self._balance.note(copy, f"split from {ring.id}")

    def hand_slots(self, ring: str, to: str, slots: Sequence[int]) -> bool:
        """Move slots to a ring that exists, as soon as both have read the same; False: they have
        not in time, and all is as before."""
        with self._starting:
            pair = (ring, to)
            deadline = time.monotonic() + _ALIGN_S
            self._epochs.align(pair)
            try:
                while not self._stopped.wait(0.05) and time.monotonic() < deadline:
                    with self.guard:
                        if not (self.is_open(ring) and self.is_open(to)):
                            return False
                        if self._epochs.if_aligned(pair, lambda: self._hand(ring, to, slots)):
                            return True
            finally:
                self._epochs.release(pair)
                self._watch.moved(*pair)
        return False

    def _hand(self, ring: str, to: str, slots: Sequence[int]) -> None:
        for query in self._registry.queries(ring):
            if query.slot in slots:
                self.attach(to, query)
        merge_slots(self._registry, ring, to, slots)
        for slot in slots:
            self.detach(ring, slot)
        self._balance.note(to, f"took {len(slots)} queries of {ring}")

    # queries and streams of rings

    def attach(self, ring: str, query: QueryRow) -> None:
        """Give a query's results a way out of a ring that is open."""
        with self.guard:
            self._idle_since.pop(ring, None)
            if ring in self._rings:
                columns = columns_from(query.columns)
                self._rings[ring].dispatcher.attach(query.slot, self._sink_of(query), columns)

    def expect(self, ring: str, slot: SlotSpec) -> None:
        """A slot is about to be published: `start_pending` makes sure that its ring serves it."""
        if (running := self._rings.get(ring)) is not None:
            self._generations.expect(running, slot)

    def detach(self, ring: str, slot: int) -> None:
        with self.guard:
            if ring in self._rings:
                self._rings[ring].dispatcher.detach(slot)
                if not self._registry.count_queries(ring):
                    self._idle_since[ring] = time.monotonic()
                return
        if self._registry.has_failed(ring):  # it will not be started for nobody
            self.retire(ring, if_idle=True)

    def hand_over(self, stream: str, frame: DataFrame) -> None:
        """Take a user's DataFrame; rings that waited for it can start."""
        with self.guard:
            self._frames[stream.lower()] = frame
            for row in self._registry.rings():
                names = composition_from(row.composition).streams
                if stream.lower() in map(str.lower, names) and row.state == "running":
                    self.open(row)
        self.start_pending()

    def forget(self, stream: str) -> None:
        """Retire all rings of a stream and of its companions."""
        own = stream.lower()
        for row in self._registry.rings():
            names = [name.lower() for name in composition_from(row.composition).streams]
            if any(name == own or name.startswith(own + ".") for name in names):
                self.retire(row.id)
        with self.guard:
            self._frames.pop(own, None)

    def forget_regions(self, name: str) -> None:
        """Retire all rings that join a stream with these regions."""
        for ring in self._registry.rings_of_regions(name):
            self.retire(ring)

    def follow(self, stream: Stream) -> None:
        """Use a stream's changed estimator from the next epoch on."""
        with self.guard:
            for given in (i for ring in self._rings.values() for i in ring.inputs):
                if given.stream.name.lower() == stream.name.lower():
                    hold = self._holds(stream, given.composition.drop_ratio)
                    rules = rules_of(stream, given.composition)
                    self._epochs.judge(given.config.ring, rules, stream.trust_us, hold)

    def refusal(self, ring: str, slot: int) -> str | None:
        """Why a query that was just started is not running."""
        if slot in self._refused:
            return self._refused.pop(slot)
        rows = {r.id: r for r in self._registry.rings()}
        return rows[ring].error if rows[ring].state == "failed" else None

    def has_seen_tuples(self, ring: str) -> bool:
        """Whether a ring, or those it took its position from, has read anything yet."""
        names = [ring] if (running := self._rings.get(ring)) is None else running.parts
        known = [self._registry.progress(name) for name in names]
        return any(found is not None and has_begun(found[1]) for found in known)

    def disorder(self, ring: str) -> dict[str, Any]:
        """What is known of the disorder of a ring's stream; empty if the ring is not open."""
        return self._epochs.metrics(ring) or {}

    def join_figures(self, ring: str) -> JoinFigures | None:
        """What a JOIN ring keeps; None if it is not one, or before its first micro-batch."""
        return self._joins.figures(ring)

    def _is_stateless(self, stream: Stream) -> bool:
        frame = self._frames.get(stream.name.lower())
        return frame is None or is_stateless(frame)

    def is_open(self, ring: str) -> bool:
        return ring in self._rings

    # what happens in micro-batches

    def punctuation_after(self, ring: str, batch: int) -> int | None:
        """Up to where the inputs of all results that are still to come are punctuated."""
        if (running := self._rings.get(ring)) is None:
            return None
        if running.composition.kind == "window":
            told_us = told_punctuation(self._workspace.checkpoint(ring), batch - 1)
            return None if told_us is None else self._epochs.closed_us(running.parts[0], told_us)
        if running.composition.join is not None and not self._joins.nothing_waits(ring):
            return None
        return self._epochs.told_us(running.parts[0])

    def _finish_batch(self, ring: str, batch: int, rows: dict[int, int]) -> None:
        self._registry.count_results(batch, rows)
        self._watch.count(ring, rows)
        if (running := self._rings.get(ring)) is not None:
            for part in running.parts:
                self._epochs.absorb(part)

    def _keep_rows(self, state: RingEpochs, epoch: int, reports: list[Report]) -> None:
        stream = state.composition.stream
        if "." not in stream:  # companions have no companions
            self._companions.keep(stream, state.ring, epoch, reports)

    def _quarantine(self, slot: int, error: BaseException) -> None:
        message = f"{type(error).__name__}: {error}".split("\n")[0]
        self._registry.set_query_state(slot, "quarantined", message)

    # waiting and stopping

    def await_idle(self, timeout: float) -> None:
        """Wait until every ring has processed all that its source holds now."""
        self.start_pending(force=True)
        deadline = time.monotonic() + timeout
        known: set[str] = set()
        while not known.issuperset(now := {ring.id for ring in self._snapshot()}):
            known = now  # those that came by a split while others were waited for are waited for
            for rings in self._pipelines.waves(self._snapshot()):
                self._await(rings, deadline)
        self._raise_failures()

    def finish(self, timeout: float) -> None:
        """Read all that the sources hold, then close every window; who reads what others fill
        comes after them."""
        self.start_pending(force=True)
        deadline = time.monotonic() + timeout
        for rings in self._pipelines.waves(self._snapshot()):
            parts = [part for ring in rings for part in ring.parts]
            for flush in (False, True):
                self._epochs.flush(parts, flush)
                self._await(rings, deadline)
            self._epochs.flush(parts, False)
        self._raise_failures()

    def _await(self, rings: list[Ring], deadline: float) -> None:
        for ring in rings:
            while True:
                try:
                    ring.await_idle(deadline)
                    self._count(ring)
                    break
                except EngineError:
                    failure = ring.failure()
                    if self._recover(ring) and time.monotonic() < deadline:
                        continue
                    if failure is not None:
                        self._fail(ring, failure)
                    raise

    def _raise_failures(self) -> None:
        """A ring that has stopped is not idle: say so to whoever waited for its queries."""
        for row in self._registry.rings():
            if row.state == "failed" and self._registry.count_queries(row.id):
                raise EngineError(f"ring {row.id} failed: {row.error}")

    def describe(self) -> list[dict[str, Any]]:
        """Rings that run, wait or failed, with the figures of their last micro-batch."""
        found = []
        for row in self._registry.rings():
            if row.state == "retired":
                continue
            ring = self._rings.get(row.id)
            unread = ring is not None and ring.feeds is not None and not ring.started
            waiting = (ring is None or unread) and row.state == "running"
            found.append(
                {
                    "ring": row.id,
                    "kind": kind_of(composition_from(row.composition)),
                    "stream": row.stream,
                    "queries": self._registry.count_queries(row.id),
                    "state": "waiting" if waiting else row.state,
                    **({} if ring is None else self._progress(ring) | self._selection(ring)),
                    **({} if ring is None else self._balance.figures(ring)),
                    "error": row.error,
                }
            )
        return found

    def _progress(self, ring: Ring) -> dict[str, Any]:
        counted = sum(map(self._epochs.last_tuples, ring.parts))
        unplaced = sum(map(self._epochs.unplaced, ring.parts))
        progress = ring.progress(None if ring.place == "spark" else counted)
        return {**progress, "unplaced": unplaced}

    def _selection(self, ring: Ring) -> dict[str, Any]:
        """Who evaluates predicates, and in which order; derived attributes by their SQL."""
        if ring.composition.join is not None:
            figures = self._joins.figures(ring.id)
            found: dict[str, Any] = {"selection": ring.place, "ordering": None, "join": None}
            if figures is not None:
                found |= {"join": asdict(figures), "state_rows": figures.state_tuples}
            return found
        if ring.generation.native is not None:
            return {"selection": ring.place, "ordering": None}
        ordering = self._epochs.ordering(ring.id)
        derived = (*ring.composition.derived, *ring.generation.derived)
        texts = {a.name: a.sql for a in derived}
        named = {k: [_shown(texts.get(n, n)) for n in ordering[k]] for k in ("order", "cover")}
        return {"selection": ring.place, "ordering": ordering | named}

    def stop(self) -> None:
        """Stop everything, whatever state Spark is in."""
        self._stopped.set()
        if self._supervisor.is_alive():
            self._supervisor.join(timeout=10)
        for ring in self._snapshot():
            with suppress(Exception):  # Spark may be gone already; the checkpoint is what counts
                ring.close()
        self._server.close()
        forget_decoded(self._server.address.token)


def _new_id(composition: Composition) -> str:
    return f"{kind_of(composition)}-{secrets.token_hex(3)}"


def _of_copy(part: str, copy: str) -> str:
    """What a ring, or an input of one, is called in a copy of it."""
    _, number = owner_of(part)
    return copy if number is None else input_ring(copy, number)


def kind_of(composition: Composition) -> str:
    """What a ring is called: select, window, join or join_window."""
    if composition.join is None:
        return composition.kind
    return "join" if composition.kind == "select" else "join_window"


def _shown(attribute: str) -> str:
    return "a geofence" if attribute.startswith(FENCE_PREFIX) else attribute


def _parts(ring: str, composition: Composition) -> list[tuple[str, Composition]]:
    """What has epochs of its own in a ring: the ring itself, or the inputs of its join."""
    if composition.join is None:
        return [(ring, composition)]
    return [(input_ring(ring, n), given) for n, given in enumerate(composition.join.inputs)]


def output_schema(row: RingRow) -> pa.Schema:
    """A ring's result columns; null stands for types that only Spark knows."""
    fields = [(f["name"], f["type"]) for f in json.loads(row.outputs)["fields"]]
    return pa.schema([(name, _arrow_or_null(type_)) for name, type_ in fields])


def _arrow_or_null(type_: str) -> pa.DataType:
    try:
        return arrow_type(type_)
    except KeyError:
        return pa.null()
