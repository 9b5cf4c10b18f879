"""The rings of an engine: who takes a query, who is split, merged, kept warm or retired."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.control.ring_balance import KeepWarm, Merge, Retire, RingDecision, Split
from penstock.errors import EngineError
from penstock.plan.catalog import Stream
from penstock.plan.codec import composition_from, dumps
from penstock.plan.explain import Place
from penstock.plan.specs import Composition
from penstock.runtime.config import owner_of
from penstock.runtime.derived.progress import epoch_of, told_punctuation
from penstock.runtime.joining.monitor import JoinFigures
from penstock.runtime.registry import INPUT, REPLAY, QueryRow, RingRow
from penstock.runtime.rings.balance import Balance
from penstock.runtime.rings.context import RingContext
from penstock.runtime.rings.failures import cause_of
from penstock.runtime.rings.moving import Mover
from penstock.runtime.rings.opening import parts_of
from penstock.runtime.rings.quarantine import Care
from penstock.runtime.rings.ring import Ring
from penstock.runtime.rings.running import RunningRings
from penstock.runtime.rings.showing import kind_of, shown_rings
from penstock.runtime.service import Address
from penstock.runtime.streams import rules_of
from penstock.schema import Schema

_LOOK_S = 0.1


class RingManager:
    """Decides on the rings that run, and has it done."""

    def __init__(self, context: RingContext) -> None:
        self._context = context
        self._registry = context.registry
        self.running = RunningRings(context)
        self._balance = Balance(
            context.registry,
            self.running.watch,
            self.running.open_rings,
            self.running.idle_since,
            context.settings,
            lambda: context.parallelism,
        )
        self._mover = Mover(self.running, context.registry, context.workspace, self._balance.note)
        self._supervisor = threading.Thread(
            target=self._supervise, name="penstock-supervisor", daemon=True
        )

    def resume(self) -> None:
        """Take up all rings of the workspace."""
        known = self._registry.rings()
        here = {row.id for row in known if row.state != "retired"}
        self._context.workspace.forget_unknown(here, {row.id for row in known})
        for row in known:
            self.running.take_up(row)
        self._supervisor.start()
        self.running.start_pending()

    # who takes a query

    def allocate(self, composition: Composition, outputs: Schema, own: int = 0) -> RingRow:
        """A running ring of the same composition, or a new one; REPLAY and ALONE get their own."""
        if not own and (ring := self.find(composition)) is not None:
            return ring
        text = dumps(composition)
        id_ = _new_id(composition)
        ring = RingRow(id_, composition.stream, text, dumps(outputs), "running", None, own)
        with self._registry.change():
            self._registry.add_ring(ring)
            for name, part in parts_of(id_, composition):
                if part is not composition:
                    row = RingRow(name, part.stream, dumps(part), "", INPUT, None, own)
                    self._registry.add_ring(row)
                if not (own == REPLAY or self._reads_itself(part.stream)):
                    self._registry.inherit_position(name, part.stream, part.event_time)
        return ring

    def _reads_itself(self, stream: str) -> bool:
        """Whether Spark reads the stream, from wherever the user's DataFrame begins."""
        found = self._context.find_stream(stream)
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
            if not self.running.is_open(row.id):  # it waits for its DataFrame
                return row
        return None if (ring := self._balance.place(alike.values())) is None else alike[ring]

    def place(self, ring: RingRow | None, composition: Composition, stream: Stream) -> Place:
        """Where a query's predicates are evaluated in its ring; or would be, in a new one."""
        running = None if ring is None else self.running.open_rings.get(ring.id)
        if running is not None and running.started:
            return running.place
        return self.running.generations.first_place(composition, stream)

    # what goes on by itself

    def _supervise(self) -> None:
        stopped = self.running.stopped
        while not stopped.wait(0.5):
            for ring in self.running.snapshot():
                with self._outliving(partial(self.running.fail, ring)):
                    self._look_after(ring)
            decisions: list[RingDecision] = []
            with self._outliving():
                decisions = self._balance.decide()
            for decision in decisions:
                with self._outliving(partial(self._put_off, decision)):
                    self._carry_out(decision)

    @contextmanager
    def _outliving(self, told: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """The supervisor must outlive whatever it sees, and whatever telling of it leads to."""
        try:
            yield
        except Exception as error:
            if not self.running.stopped.is_set():
                with suppress(Exception):
                    told(cause_of(error))

    def _put_off(self, decision: RingDecision, error: str) -> None:
        """The rings are as before, or fail by themselves."""
        self._balance.note(decision.ring, error)
        self.running.watch.moved(decision.ring)

    def _look_after(self, ring: Ring) -> None:
        if ring.stranded or ring.failure() is not None:
            if (error := self.running.recover(ring)) is not None:
                self.running.fail(ring, error)
            return
        self._count(ring)
        generations, bounded = self.running.generations, self._context.bounded
        if not ring.started or generations.is_due(ring):
            self.running.start_pending()
        elif not bounded and generations.may_settle(ring):
            with self.running.starting:
                self.running.start(ring)
        if ring.started and not bounded:
            self.running.watch.look(ring, self._registry.count_queries(ring.id))

    def _count(self, ring: Ring) -> None:
        """Of tuples that Spark reads and selects alone, Spark alone knows how many there were."""
        if ring.place == "spark" and ring.stream.source == "dataframe":
            self.running.epochs.count(ring.id, ring.take_count())

    def _carry_out(self, decision: RingDecision) -> None:
        match decision:
            case Retire(ring):
                self.running.retire(ring, if_idle=True)
            case Split() | Merge() if self._context.bounded:
                pass  # its rings read what there is as fast as they can
            case Split(ring, slots, None):
                self.split(ring, slots)
            case Split(ring, slots, str(to)) | Merge(ring, to, slots):
                if not self._mover.hand_slots(ring, to, slots):
                    self._balance.copy_next(ring)
            case KeepWarm():
                pass

    def split(self, ring: str, slots: Sequence[int]) -> str:
        """Move slots to a copy of their ring; the copy's id."""
        copy = _new_id(self.running.open_rings[ring].composition)
        self._mover.split(ring, slots, copy)
        return copy

    def hand_slots(self, ring: str, to: str, slots: Sequence[int]) -> bool:
        """Move slots to a ring that exists; False if that could not be."""
        return self._mover.hand_slots(ring, to, slots)

    # queries

    def resume_query(self, query: QueryRow) -> None:
        """Try a query's sink now, or its ring if that has failed."""
        with self.running.guard:
            ring = self.running.open_rings.get(query.ring)
            if ring is None:
                row = next(r for r in self._registry.rings() if r.id == query.ring)
                self.running.take_up(row)
        if ring is None:
            self.running.start_pending()
        else:
            self.running.quarantine.resume(ring.dispatcher, query.slot)

    def care(self, query: QueryRow) -> Care:
        """What is done about a quarantined query."""
        quarantine, ring = self.running.quarantine, self.running.open_rings.get(query.ring)
        if query.state != "quarantined" or ring is None:
            return Care(quarantine.book.cut(query.slot))
        return quarantine.care(ring.dispatcher, query.slot)

    def has_seen_tuples(self, ring: str) -> bool:
        """Whether a ring, or those it took its position from, has read anything yet."""
        found = self.running.open_rings.get(ring)
        return any(map(self.running.epochs.has_begun, [ring] if found is None else found.parts))

    def asked_by_tasks(self, ring: str) -> Address | None:
        """Whom tasks of a ring ask; None if Spark cuts its micro-batches into tasks by itself."""
        row = next(row for row in self._registry.rings() if row.id == ring)
        streams = composition_from(row.composition).streams
        return None if any(map(self._reads_itself, streams)) else self.running.server.address

    def punctuation_after(self, ring: str, batch: int) -> int | None:
        """Up to where the inputs of all results that are still to come are punctuated."""
        running, epochs = self.running.open_rings.get(ring), self.running.epochs
        if running is None:
            return None
        checkpoint = self._context.workspace.checkpoint(ring)
        if running.composition.kind == "window":
            told_us = self._told_us(running, checkpoint, batch - 1)
            return None if told_us is None else epochs.closed_us(running.parts[0], told_us)
        if running.composition.join is not None and not self.running.joins.nothing_waits(ring):
            return None
        through = {}  # of users' DataFrames, epochs have the numbers of micro-batches
        for part in running.parts:
            epoch = epoch_of(checkpoint, batch, owner_of(part)[1])
            through[part] = batch if epoch is None else epoch
        return epochs.told_us(running.parts[0], through)

    def _told_us(self, ring: Ring, checkpoint: Path, batch: int) -> int | None:
        """The punctuation of a micro-batch: from a source of its own, or with the epoch."""
        if (told_us := told_punctuation(checkpoint, batch)) is not None:
            return told_us
        if (epoch := epoch_of(checkpoint, batch, None)) is None:
            return None
        return self.running.epochs.told_us(ring.parts[0], {ring.parts[0]: epoch})

    # streams

    def forget(self, stream: str) -> None:
        """Retire all rings of a stream and of its companions."""
        own = stream.lower()
        for row in (row for row in self._registry.rings() if row.state != "retired"):
            names = [name.lower() for name in composition_from(row.composition).streams]
            if any(name == own or name.startswith(own + ".") for name in names):
                self.running.retire(row.id)
        self.running.forget_frame(stream)

    def forget_regions(self, name: str) -> None:
        """Retire all rings that join a stream with these regions."""
        for ring in self._registry.rings_of_regions(name):
            self.running.retire(ring)

    def follow(self, stream: Stream) -> None:
        """Use a stream's changed estimator from the next epoch on."""
        with self.running.guard:
            for ring, given in ((r, i) for r in self.running.snapshot() for i in r.inputs):
                if given.stream.name.lower() == stream.name.lower():
                    ring.pace.stir()
                    hold = self._context.holds(stream, given.composition.drop_ratio)
                    rules = rules_of(stream, given.composition)
                    self.running.epochs.judge(given.config.ring, rules, stream.trust_us, hold)

    # figures

    def is_open(self, ring: str) -> bool:
        return self.running.is_open(ring)

    def disorder(self, ring: str) -> dict[str, Any]:
        """What is known of the disorder of a ring's stream; empty if the ring is not open."""
        return self.running.epochs.metrics(ring) or {}

    def join_figures(self, ring: str) -> JoinFigures | None:
        """What a JOIN ring keeps; None if it is not one, or before its first micro-batch."""
        return self.running.joins.figures(ring)

    def describe(self) -> list[dict[str, Any]]:
        """Rings that run, wait or failed, with the figures of their last micro-batch."""
        return shown_rings(self._registry, self.running, self._balance)

    # waiting and stopping

    def await_idle(self, timeout: float) -> None:
        """Wait until every ring has processed all that its source holds now."""
        self.running.start_pending(force=True)
        deadline = time.monotonic() + timeout
        known: set[str] = set()
        while not known.issuperset(now := {ring.id for ring in self.running.snapshot()}):
            known = now  # those that came by a split while others were waited for are waited for
            for rings in self.running.pipelines.waves(self.running.snapshot()):
                self._await(rings, deadline)
        self.running.quarantine.settle(deadline)
        self._raise_failures()

    def finish(self, timeout: float) -> None:
        """Read all that the sources hold, then close every window; who reads what others fill
        comes after them."""
        self.running.start_pending(force=True)
        deadline = time.monotonic() + timeout
        for rings in self.running.pipelines.waves(self.running.snapshot()):
            parts = [part for ring in rings for part in ring.parts]
            for flush in (False, True):
                self.running.epochs.flush(parts, flush)
                self._await(rings, deadline)
            self.running.epochs.flush(parts, False)
        self.running.quarantine.try_all()
        self.running.quarantine.settle(deadline)
        self._raise_failures()

    def _await(self, rings: list[Ring], deadline: float) -> None:
        for ring in rings:
            ring.pace.stir()
        for ring in rings:
            while True:
                try:
                    ring.await_idle(deadline)
                    self._count(ring)
                    break
                except EngineError:
                    if not ring.started:
                        raise
                    if (error := self.running.recover(ring)) is not None:
                        self.running.fail(ring, error)
                        raise
                    if time.monotonic() >= deadline:
                        raise
                    self.running.stopped.wait(_LOOK_S)  # it may be started again later

    def _raise_failures(self) -> None:
        """A ring that has stopped is not idle: say so to whoever waited for its queries."""
        for row in self._registry.rings():
            if row.state == "failed" and self._registry.count_queries(row.id):
                raise EngineError(f"ring {row.id} failed: {row.error}")

    def stop(self) -> None:
        """Stop everything, whatever state Spark is in."""
        self.running.stopped.set()
        if self._supervisor.is_alive():
            self._supervisor.join(timeout=10)
        self.running.stop()


def _new_id(composition: Composition) -> str:
    return f"{kind_of(composition)}-{secrets.token_hex(3)}"
