"""What the operators of JOIN rings report: how full their tables are, and what waits on disk.

A ring some of whose flushed buckets have tuples to join gets another round when its inputs pause:
its source sends each bucket a row without tuples.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from penstock.kernels.jit import Ints
from penstock.runtime.service import Handler


@dataclass(frozen=True, slots=True)
class BucketFigures:
    """live: tuples in memory by input, or how often their keys were counted; overlaps: of a sample
    of the keys, those with a live tuple of both inputs; waiting: tuples that are not joined yet."""

    live: list[int]
    keys: int
    full_keys: int
    bits: int
    overlaps: list[list[int]]
    table_bytes: int
    state_tuples: int
    state_bytes: int
    waiting: int
    flushed: bool
    flushes: int


@dataclass(frozen=True, slots=True)
class JoinFigures:
    """A ring's figures: sums over its buckets, but flushed: how many of them have no tables.

    selectivities: by input, the share of the other inputs' keys that have a tuple there.
    """

    live: tuple[int, ...]
    keys: int
    full_keys: int
    bits: int
    selectivities: tuple[float, ...]
    table_bytes: int
    state_tuples: int
    state_bytes: int
    waiting: int
    buckets: int
    flushed: int
    flushes: int


class JoinMonitor:
    def __init__(self) -> None:
        self._buckets: dict[str, dict[int, BucketFigures]] = {}
        self._resumed: dict[str, int | None] = {}  # round in which all buckets have a turn
        self._guard = threading.Lock()

    def calls(self) -> dict[str, Handler]:
        """Its part of the epoch service."""
        return {"joined": self._take, "round": self._next_round}

    def open(self, ring: str, resumed: bool) -> None:
        """Watch a ring; one that ran before may have left tuples to join."""
        with self._guard:
            self._buckets[ring] = {}
            if resumed:
                self._resumed[ring] = None

    def close(self, ring: str) -> None:
        with self._guard:
            self._buckets.pop(ring, None)
            self._resumed.pop(ring, None)

    def _take(self, message: dict[str, Any], parts: list[bytes]) -> None:
        """A task's report."""
        figures = {int(b): BucketFigures(**f) for b, f in message["buckets"].items()}
        with self._guard:
            if message["ring"] in self._buckets:
                self._buckets[message["ring"]] |= figures

    def _next_round(self, message: dict[str, Any], parts: list[bytes]) -> int:
        """The round to run while inputs pause; the last one if nothing waits."""
        ring, last = message["ring"], int(message["round"])
        with self._guard:
            waits = any(f.waiting for f in self._buckets.get(ring, {}).values())
            if ring in self._resumed:
                if self._resumed[ring] is None:
                    self._resumed[ring] = last + 1
                if last < (self._resumed[ring] or 0):
                    waits = True
                else:
                    del self._resumed[ring]
            return last + waits

    def nothing_waits(self, ring: str) -> bool:
        """Whether all that a ring has read so far is joined, as far as is known."""
        with self._guard:
            waiting = any(f.waiting for f in self._buckets.get(ring, {}).values())
            return not waiting and ring not in self._resumed

    def figures(self, ring: str) -> JoinFigures | None:
        """What is known of a ring; None before its first micro-batch."""
        with self._guard:
            buckets = list(self._buckets.get(ring, {}).values())
        if not buckets:
            return None
        names = {f.name for f in fields(JoinFigures)} & {f.name for f in fields(BucketFigures)}
        sums = {name: sum(getattr(b, name) for b in buckets) for name in names - {"live"}}
        live = np.sum([b.live for b in buckets], axis=0).tolist()
        overlaps = np.sum([b.overlaps for b in buckets], axis=0)
        return JoinFigures(
            live=tuple(live),
            selectivities=_selectivities(overlaps),
            buckets=len(buckets),
            **sums,
        )


def _selectivities(overlaps: Ints) -> tuple[float, ...]:
    keys = np.diag(overlaps)
    found = []
    for i in range(len(keys)):
        others = int(keys.sum() - keys[i])
        both = int(overlaps[i].sum() - keys[i])
        found.append(both / others if others else 0.0)
    return tuple(found)


def as_message(ring: str, buckets: dict[int, BucketFigures]) -> dict[str, Any]:
    return {"ring": ring, "buckets": {b: asdict(f) for b, f in buckets.items()}}
