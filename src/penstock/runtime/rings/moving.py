"""Slots that go from one running ring to another: to a copy of theirs, or to one that exists."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.errors import EngineError
from penstock.runtime.config import input_ring, owner_of
from penstock.runtime.derived.source import QueuePlanner
from penstock.runtime.registry import Registry
from penstock.runtime.rings.checkpoints import copy_checkpoint, is_committed
from penstock.runtime.rings.moves import merge_slots, split_slots
from penstock.runtime.rings.ring import Ring
from penstock.runtime.rings.running import RunningRings
from penstock.runtime.sources.planner import Horizon
from penstock.runtime.workspace import Workspace

_ALIGN_S = 10.0  # in which two rings must have read the same: the one that is ahead waits for it
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Mover:
    """note: told of each ring what happened to it, for SHOW RINGS."""

    running: RunningRings
    registry: Registry
    workspace: Workspace
    note: Callable[[str, str], None]

    def split(self, ring: str, slots: Sequence[int], copy: str) -> None:
        """Move slots to a copy of their ring, which has all the state.

        Nothing is lost and nothing comes twice: both go on after the same micro-batch.
        """
        rings = self.running
        with rings.starting:
            running = rings.open_rings[ring]
            delivered = running.dispatcher.delivered
            if delivered < 0 or rings.generations.is_due(running) or running.feeds is not None:
                raise EngineError(f"ring {ring} cannot be split now")
            slots = self._movable(ring, slots)
            with running.standing_still():
                try:
                    copy_checkpoint(
                        self.workspace.checkpoint(ring), self.workspace.checkpoint(copy)
                    )
                    self._move_to_copy(running, copy, slots)
                except BaseException:
                    self._forget_copy(running, copy)
                    raise
                finally:
                    rings.start(running)
            rings.start_pending()

    def _forget_copy(self, ring: Ring, copy: str) -> None:
        """Leave nothing of a copy that did not come to be."""
        if all(row.id != copy for row in self.registry.rings()):
            for given in ring.inputs:
                consumer = _of_copy(given.config.ring, copy)
                self.running.pipelines.unregister(given.stream.name, consumer)
            self.workspace.forget_checkpoint(copy)

    def _move_to_copy(self, ring: Ring, copy: str, slots: Sequence[int]) -> None:
        rings = self.running
        known = {row.id: row for row in self.registry.rings(inputs=True)}
        parts = [p for p in ring.parts if p != ring.id]
        rows = [(known[p], replace(known[p], id=_of_copy(p, copy))) for p in (ring.id, *parts)]
        for part in ring.parts:
            if isinstance(planner := rings.epochs.planner(part), QueuePlanner):
                planner.keep_for(_of_copy(part, copy))
        with rings.guard:
            slots = self._movable(ring.id, slots)
            split_slots(self.registry, rows, slots, ring.dispatcher.delivered)
            for slot in slots:
                ring.dispatcher.detach(slot)
            rings.take_up(rows[0][1])
            rings.watch.moved(ring.id, copy)
            self.note(ring.id, f"{len(slots)} queries went to {copy}")
            self.note(copy, f"split from {ring.id}")

    def hand_slots(self, ring: str, to: str, slots: Sequence[int]) -> bool:
        """Move slots to a ring that exists, as soon as both have read the same; False: they are too
        far apart, or have not in time, and all is as before."""
        rings, pair = self.running, (ring, to)
        with rings.guard:
            horizon = rings.epochs.align(pair) if self._are_running(pair) else None
        if horizon is None:
            return self._stay(ring, to, "the one has read too much that the other has not")
        try:
            self._stir(pair)
            if self._hand_at(horizon, ring, to, slots):
                return True
        finally:
            rings.epochs.release(pair, horizon)
            rings.watch.moved(*filter(rings.is_open, pair))
            self._stir(pair)
        return self._stay(ring, to, "they did not come to have read the same")

    def _hand_at(self, horizon: Horizon, ring: str, to: str, slots: Sequence[int]) -> bool:
        """Wait for two rings that are held at a horizon. Others may start rings meanwhile, and stop
        these, so only the moment itself has the lock: then all is looked at again."""
        rings, pair = self.running, (ring, to)
        deadline = time.monotonic() + _ALIGN_S
        while not rings.stopped.wait(_LOOK_S) and time.monotonic() < deadline:
            if not self._are_running(pair):
                return False
            if not rings.epochs.if_aligned(pair, horizon, lambda: True):
                continue
            if not rings.starting.acquire(timeout=_LOOK_S):
                continue
            try:
                with rings.guard:
                    if self._are_running(pair) and rings.epochs.if_aligned(
                        pair, horizon, lambda: self._hand(ring, to, slots)
                    ):
                        return True
            finally:
                rings.starting.release()
        return False

    def _are_running(self, names: Sequence[str]) -> bool:
        found = map(self.running.open_rings.get, names)
        return all(ring is not None and ring.active for ring in found)

    def _stay(self, ring: str, to: str, why: str) -> bool:
        self.note(ring, f"its queries could not go to {to}: {why}")
        return False

    def _stir(self, names: Sequence[str]) -> None:
        for ring in map(self.running.open_rings.get, names):
            if ring is not None:
                ring.pace.stir()

    def _hand(self, ring: str, to: str, slots: Sequence[int]) -> bool:
        """Move slots now, unless Spark would do again, for fewer, what was delivered to all."""
        rings = self.running
        if not is_committed(self.workspace.checkpoint(ring)):
            return False
        slots = self._movable(ring, slots)
        for query in self.registry.queries(ring):
            if query.slot in slots:
                rings.attach(to, query)
        merge_slots(self.registry, ring, to, slots)
        rings.quarantine.moved(rings.open_rings[to].dispatcher, slots)
        for slot in slots:
            rings.detach(ring, slot)
        self.note(to, f"took {len(slots)} queries of {ring}")
        return True

    def _movable(self, ring: str, slots: Sequence[int]) -> list[int]:
        found = self.running.open_rings[ring].dispatcher.movable(slots)
        if not found:
            raise EngineError(f"the queries that ring {ring} could give away have to stay")
        return found


def _of_copy(part: str, copy: str) -> str:
    """What a ring, or an input of one, is called in a copy of it."""
    _, number = owner_of(part)
    return copy if number is None else input_ring(copy, number)
