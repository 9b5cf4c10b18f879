"""The rings that are open: started one after the other, started again when they fail in passing,
stopped for good."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import count

from pyspark.sql import DataFrame

from penstock.control.rings import Limits, Waiting, next_starts
from penstock.errors import PenstockError
from penstock.plan.catalog import Stream
from penstock.plan.codec import columns_from, composition_from
from penstock.plan.specs import SlotSpec
from penstock.runtime.companions import Companions
from penstock.runtime.compile import is_chain, is_stateless
from penstock.runtime.derived.pipelines import Pipelines
from penstock.runtime.derived.replaying import as_noted
from penstock.runtime.derived.restoring import Restorer
from penstock.runtime.derived.source import QueuePlanner
from penstock.runtime.dispatch import Dispatcher
from penstock.runtime.epochs import EpochKeeper, Report, RingEpochs
from penstock.runtime.joining.monitor import JoinMonitor
from penstock.runtime.registry import QueryRow, RingRow
from penstock.runtime.rings.context import RingContext
from penstock.runtime.rings.failures import first_cause, lost_a_queue, may_pass
from penstock.runtime.rings.generations import Generations
from penstock.runtime.rings.launching import launch_settings
from penstock.runtime.rings.opening import Opener, output_schema, parts_of
from penstock.runtime.rings.quarantine import Quarantine
from penstock.runtime.rings.refusing import Group, refused_slots
from penstock.runtime.rings.ring import Launch, Ring
from penstock.runtime.rings.together import Blocks
from penstock.runtime.rings.tries import Tries
from penstock.runtime.rings.watch import RingWatch
from penstock.runtime.service import EpochServer
from penstock.runtime.session import driver_host
from penstock.runtime.sinks.delivery import is_delivering
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sources.decoded import forget_decoded

_LIMITS = Limits()


class RunningRings:
    """Knows queries only as slots with sinks."""

    def __init__(self, context: RingContext) -> None:
        self._context = context
        self._registry = context.registry
        self._workspace = context.workspace
        self.guard = threading.RLock()  # of the books; never held while Spark works
        self.starting = threading.RLock()  # one ring starts at a time
        self.stopped = threading.Event()
        self.open_rings: dict[str, Ring] = {}
        self.idle_since: dict[str, float] = {}
        self._frames: dict[str, DataFrame] = {}
        self._tries = Tries(self.stopped)
        self._beginning: set[str] = set()  # rings that Spark is starting
        self._blocks = Blocks()
        self._companions = Companions(
            self._workspace, self._registry, lambda slot: self._registry.query_by_slot(slot).name
        )
        self._restorer = Restorer(self._workspace, self._registry, context.exchange)
        self.pipelines = Pipelines(
            self._registry, context.exchange, self._restorer, context.find_stream
        )
        self.epochs = EpochKeeper(
            self._registry, self._keep_rows, context.parallelism, context.clock_us
        )
        self.generations = Generations(
            self._registry,
            self.epochs,
            context.settings,
            context.condition_of,
            self._is_stateless,
        )
        self.quarantine = Quarantine(
            self._registry,
            lambda: context.settings().retries,
            lambda: context.settings().sink_patience_s,
            context.clock_us,
            context.outlets.pool.is_stuck,
        )
        self.joins = JoinMonitor()
        self.watch = RingWatch(self.epochs)
        calls = self.epochs.calls() | self.joins.calls() | context.exchange.calls()
        calls = as_noted(calls, self._workspace.checkpoint)
        self.server = EpochServer(calls, driver_host(context.spark))
        self._opener = Opener(
            context, self.epochs, self.joins, self.pipelines, self._frames, self.server.address
        )

    def snapshot(self) -> list[Ring]:
        with self.guard:
            return list(self.open_rings.values())

    def is_open(self, ring: str) -> bool:
        return ring in self.open_rings

    # opening

    def open(self, row: RingRow) -> None:
        """Make a ring ready to start; one whose DataFrame is not here yet has to wait."""
        self._blocks.hold(row.id)
        if row.id in self.open_rings:
            return
        taken = {ring.pool for ring in self.open_rings.values()}
        pool = next(n for n in count() if n not in taken)  # Spark never forgets the name of one
        ring = self._opener.open(row, pool, self._dispatcher)
        if ring is not None:
            self.open_rings[row.id] = ring
            if not self._registry.count_queries(row.id):
                self.idle_since[row.id] = time.monotonic()

    def _dispatcher(self, row: RingRow) -> Dispatcher:
        limit = None if self._context.bounded else self._context.settings().results_bytes
        dispatcher = Dispatcher(
            row.id,
            tuple(output_schema(row).names),
            ResultLog(self._workspace.results(row.id), limit),
            ResultLog(self._workspace.waiting(row.id), limit),
            self.quarantine,
            lambda batch, rows: self._finish_batch(row.id, batch, rows),
            self._context.outlets,
        )
        waits = bool(dispatcher.waiting.batches())
        before = self._registry.delivered_before(row.id)
        self._attach(dispatcher, self._registry.queries(row.id), waits, before)
        return dispatcher

    def take_up(self, row: RingRow) -> None:
        """Open a ring of the workspace; one that failed is tried again."""
        if row.state == "failed":
            self._registry.set_ring_state(row.id, "running")
        elif row.state != "running":
            return
        try:
            self.open(row)
        except PenstockError as error:  # of a node that cannot be had any more
            self._registry.set_ring_state(row.id, "failed", error.message)

    def hand_over(self, stream: str, frame: DataFrame) -> None:
        """Take a user's DataFrame; rings that waited for it can start."""
        with self.guard:
            self._frames[stream.lower()] = frame
            for row in self._registry.rings():
                names = composition_from(row.composition).streams
                if stream.lower() in map(str.lower, names) and row.state == "running":
                    self.open(row)
        self.start_pending()

    def forget_frame(self, stream: str) -> None:
        with self.guard:
            self._frames.pop(stream.lower(), None)

    def _is_stateless(self, stream: Stream) -> bool:
        frame = self._frames.get(stream.name.lower())
        return frame is None or is_stateless(frame)

    # slots

    def attach(self, ring: str, query: QueryRow, behind: bool = False) -> None:
        """Give a query's results a way out of a ring that is open; `behind` what is kept for it."""
        with self.guard:
            self.idle_since.pop(ring, None)
            if ring in self.open_rings:
                self._attach(self.open_rings[ring].dispatcher, [query], behind, {})
                self.open_rings[ring].pace.stir()

    def _attach(
        self, ring: Dispatcher, queries: list[QueryRow], behind: bool, before: Mapping[int, int]
    ) -> None:
        later = []
        for query in queries:
            last, after = behind or query.state == "quarantined", before.get(query.slot)
            columns = columns_from(query.columns)
            key = ring.attach(query.slot, self._context.sink_of(query), columns, last, after)
            later += [(query.slot, key)] if last else []
        for slot, key in later:  # all are there: what nobody waits for is forgotten
            self.quarantine.take_up(ring, slot, key)

    def expect(self, ring: str, slot: SlotSpec) -> None:
        """A slot is about to be published: `start_pending` makes sure that its ring serves it."""
        if (running := self.open_rings.get(ring)) is not None:
            self._blocks.hold(ring)
            self.generations.expect(running, slot)

    def forget_slot(self, ring: str, slot: int) -> None:
        """A query is dropped or refused: nothing that was kept for it is needed any more."""
        with self.guard:
            self._context.forget_slot(slot)
            self.detach(ring, slot)
            self.quarantine.forget(slot)

    def detach(self, ring: str, slot: int) -> None:
        with self.guard:
            if ring in self.open_rings:
                self.open_rings[ring].dispatcher.detach(slot)
                self.open_rings[ring].pace.stir()
                if not self._registry.count_queries(ring):
                    self.idle_since[ring] = time.monotonic()

    def retire_failed(self, ring: str) -> None:
        """Retire a ring that has failed and has no queries: it will not be started for nobody."""
        if not self.is_open(ring) and self._registry.has_failed(ring):
            self.retire(ring, if_idle=True)

    def refusal(self, ring: str, slot: int) -> str | None:
        """Why a query that was just started is not running, as far as is known.

        Of one that starts together with others it is known at the end of the block; of one that
        the caller must not wait for, its state will tell.
        """
        if self._blocks.add(slot):
            return None
        if refused := self._registry.refused_among([slot]):
            return refused[0].error
        rows = {r.id: r for r in self._registry.rings()}
        return rows[ring].error if rows[ring].state == "failed" else None

    # starting

    @contextmanager
    def together(self) -> Iterator[list[int]]:
        """Rings opened inside start when the outermost block ends; the slots that came in it."""
        try:
            with self._blocks.block() as slots:
                yield slots
        finally:
            self.start_pending()

    def start_pending(self, force: bool = False, of: str | None = None) -> None:
        """Start the rings that are open; those of a bounded engine only when asked to (force).

        of: the only ring that the caller waits for; if it runs, others are left to whoever waits
        for them. Rings that queries wait for go on with another plan. A ring that Spark refuses to
        start is marked failed and does not keep others from starting.
        """
        if not self._is_awaited(of):  # not even for the lock: who has it may be long about it
            return
        # a sink must not wait here: whoever has the lock may wait for the sink's micro-batch
        if not self.starting.acquire(blocking=not is_delivering()):
            return  # the supervisor sees to it
        try:
            if (self._context.bounded and not force) or self.stopped.is_set():
                return
            starting: deque[Ring] = deque()
            had: Counter[str] = Counter()
            while not self.stopped.is_set() and (pending := self._pending()):
                self._register_consumers(pending)
                if len(starting) >= _LIMITS.starting:
                    starting.popleft().await_start()
                waiting = [Waiting(ring.id, ring.composition_text) for ring in pending]
                chosen = next_starts(waiting, len(starting), _LIMITS, had)
                for ring in [ring for ring in pending if ring.id in chosen]:
                    had[ring.composition_text] += 1
                    try:
                        self.start(ring)
                        starting.append(ring)
                    except Exception as error:  # whatever Spark says, it concerns this ring only
                        self.fail(ring, first_cause(str(error)))
        finally:
            self.starting.release()

    def _is_awaited(self, ring: str | None) -> bool:
        """Whether a ring, or any, is still to be started, or just being."""
        with self.guard:
            if ring is None:
                return bool(self._beginning or self._pending())
            running = self.open_rings.get(ring)
            return running is not None and (ring in self._beginning or self._is_pending(running))

    def _pending(self) -> list[Ring]:
        rings = self.snapshot()
        if not any(map(self._is_pending, rings)):
            return []
        # who waits for the end of a block does not read yet: nothing is made for it alone
        known = [ring for ring in rings if ring.started or not self._blocks.holds(ring.id)]
        return [ring for ring in self.pipelines.wanted(known) if self._is_pending(ring)]

    def _is_pending(self, ring: Ring) -> bool:
        is_due = not ring.started or (self.generations.is_due(ring) and not is_delivering())
        return is_due and not self._blocks.holds(ring.id)

    def _register_consumers(self, rings: list[Ring]) -> None:
        """Before any of them starts: what one makes must be kept for the others."""
        for ring in rings:
            planners = [self.epochs.planner(part) for part in ring.parts]
            try:
                for planner in planners:
                    if isinstance(planner, QueuePlanner):
                        self.pipelines.prepare(ring, planner, self._restore_queues)
            except PenstockError as error:
                self.fail(ring, f"{type(error).__name__}: {error.message}")

    def start(self, ring: Ring) -> None:
        """Start a ring, or let it go on with the plan that its slots of now need."""
        with self.guard:
            if not self.is_open(ring.id):
                return
            generation = self.generations.plan(ring)
            self._beginning.add(ring.id)
            frames = dict(self._frames)
        trigger_ms = self._context.settings().trigger_ms
        settings = launch_settings(self._context, ring.composition)
        launch = Launch(self._context.spark, frames, trigger_ms, settings, generation)
        if ring.started:
            begin = partial(ring.renew, launch, lambda: self.forget_reports(ring))
        else:
            begin = partial(ring.start, launch)
        try:
            self._tries.begin(ring, begin)
            with self.guard:
                self.generations.started(ring)
        except Exception as error:
            if not ring.active:
                raise
            self._sort_out(ring, launch, first_cause(str(error)))
        finally:
            with self.guard:
                self._beginning.discard(ring.id)

    def forget_reports(self, ring: Ring) -> None:
        """What tasks told of a micro-batch that was cut short: it is done again."""
        for part in ring.parts:
            self.epochs.forget_reports(part)

    def _sort_out(self, ring: Ring, launch: Launch, error: str) -> None:
        """Spark refused a plan, the ring goes on as it was: drop the queries that it is due to."""

        def attempt(groups: Sequence[Group]) -> str | None:
            with self.guard:
                wanted = replace(launch, generation=self.generations.plan_with(ring, groups))
            try:
                renew = partial(ring.renew, wanted, partial(self.forget_reports, ring))
                self._tries.begin(ring, renew)
            except Exception as refusal:
                if not ring.active:
                    raise
                return first_cause(str(refusal))
            return None

        with self.guard:
            groups = self.generations.refused(ring) if self.is_open(ring.id) else []
        refused = refused_slots(groups, error, attempt)
        with self.guard:
            if not self.is_open(ring.id):
                return
            with self._registry.change():
                for slot, why in refused.items():
                    self._registry.drop_query(slot, why)
            for slot in refused:
                self.forget_slot(ring.id, slot)
            self.generations.sorted_out(ring)

    # failures

    def recover(self, ring: Ring) -> str | None:
        """Start a ring again that failed in passing, or that nobody started again after a stop; why
        it has to be given up, None if it goes on. If it is not time yet, ask again: nobody waits in
        here, since all other rings would have to."""
        with self.starting:  # whoever stops a ring to start it again does both in here
            if self.open_rings.get(ring.id) is not ring:  # another of that name may be by now
                return "it is closed"
            if ring.stranded:
                return self._restart(ring)
            failure, error = ring.failure(), ring.error()
            if failure is None:
                return None
            if not (may_pass(error) or lost_a_queue(error)):
                return self._restart(ring) if ring.guard() else failure
            if ring.retry_at_s is None:
                ring.retry_at_s = self._tries.after_failure(ring, error)
            if ring.retry_at_s is None or self.stopped.is_set():
                return failure
            return self._restart(ring) if time.monotonic() >= ring.retry_at_s else None

    def _restart(self, ring: Ring) -> str | None:
        """Why a ring cannot be started again; None if it was."""
        try:
            if lost_a_queue(ring.error()):
                self._restore_queues(ring)
            self.start(ring)
        except Exception as error:  # whatever Spark or a node says, it concerns this ring only
            return first_cause(str(error))
        return None

    def _restore_queues(self, ring: Ring) -> None:
        """Have the queues that a ring reads and feeds made again where they are lost."""
        rings, streams = {r.id: r for r in self.snapshot()}, self.pipelines.streams_of(ring)
        for maker in self._restorer.restore(streams, rings):
            self.forget_reports(maker)
            if maker.composition.join is not None and not is_chain(maker.composition):
                self.joins.open(maker.id, resumed=True)  # what waited then is not what waits now
            if maker.started and maker is not ring:
                self.start(maker)

    def fail(self, ring: Ring, error: str) -> None:
        """Give a ring up, with the error for its queries."""
        if self.stopped.is_set():  # it was not waited for
            return
        with self.guard:
            if self.open_rings.get(ring.id) is not ring:
                return
            self._registry.set_ring_state(ring.id, "failed", error)
            self._take(ring.id)
        ring.close()

    def retire(self, ring: str, if_idle: bool = False) -> None:
        """Stop a ring for good; its checkpoint goes, its results with the last of its queries."""
        row = next((row for row in self._registry.rings() if row.id == ring), None)
        if row is None:  # it is gone already
            return
        with self.guard:
            if if_idle and self._registry.count_queries(ring):
                return
            self._registry.retire_ring(ring)
            running = self._take(ring)
        if running is not None:
            running.close()
        for name, part in parts_of(ring, composition_from(row.composition)):
            self.pipelines.unregister(part.stream, name)
        self._workspace.forget_checkpoint(ring)
        for gone in self._registry.forget_rings():
            self._workspace.forget_results(gone)

    def _take(self, ring: str) -> Ring | None:
        """Strike a ring off the books; the caller stops it, outside the guard."""
        self.idle_since.pop(ring, None)
        self.generations.forget(ring)
        self.watch.forget(ring)
        self._tries.forget(ring)
        taken = self.open_rings.pop(ring, None)
        for part in [] if taken is None else taken.parts:
            self.epochs.close(part)
        self.joins.close(ring)
        return taken

    def stop(self) -> None:
        """Stop everything, whatever state Spark is in."""
        self.quarantine.stop()
        for ring in self.snapshot():
            with suppress(Exception):  # Spark may be gone already; the checkpoint is what counts
                ring.close()
        self.server.close()
        forget_decoded(self.server.address.token)

    # what happens in micro-batches

    def _finish_batch(self, ring: str, batch: int, rows: dict[int, int]) -> None:
        self._registry.count_results(batch, rows)
        self.watch.count(ring, rows)
        if (running := self.open_rings.get(ring)) is not None:
            for part in running.parts:
                self.epochs.absorb(part)
            running.pace.ran()
            if running.feeds is not None:
                self._stir_readers(running.feeds)

    def _stir_readers(self, stream: Stream) -> None:
        for ring in self.snapshot():
            if any(i.stream.name.lower() == stream.name.lower() for i in ring.inputs):
                ring.pace.stir()

    def _keep_rows(self, state: RingEpochs, epoch: int, reports: list[Report]) -> None:
        stream = state.composition.stream
        if "." not in stream:  # companions have no companions
            self._companions.keep(stream, state.ring, epoch, reports)
