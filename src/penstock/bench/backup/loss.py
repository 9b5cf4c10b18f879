"""Experiment 1: what is lost at which input rate, with one slow consumer among several.

The queue is as much smaller than the paper's 5 MB as the run is shorter than its 200 seconds.
Experiment 4 is the same without a slow consumer: what `adaptive` costs when nothing is wrong.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.bench.backup.nodes import with_backup
from penstock.bench.backup.traffic import RING, SCHEMA, Consumer, send, tuples
from penstock.bench.report import Value
from penstock.exchange.client import NodeClient
from penstock.exchange.wire import QueueRef

Row = dict[str, Value]
MODES: dict[str, dict[str, Any]] = {
    "plain": {"mode": "plain"},
    "block": {"mode": "block"},
    "adaptive": {"mode": "adaptive", "trigger": "overflow"},
    "adaptive, paper": {"mode": "adaptive", "trigger": "paper"},
}
_PAPER_BYTES, _PAPER_S = 5_000_000, 200.0
_LEAST_BYTES = 250_000
_SLOW_PER_S = 8_000.0
_FAST = 2
_CONSUMERS = ("a", "b")
_ROWS = 10_000
_TURN_BATCHES = 5
_WARM_UP = 20  # pairs


def loss_rows(rates: Sequence[int], seconds: float, directory: Path) -> list[Row]:
    node, backup = with_backup(directory)
    try:
        cases = [(rate, mode) for rate in rates for mode in MODES]
        with node.client(connections=8) as client:
            return [_loss(client, rate, mode, seconds) for rate, mode in cases]
    finally:
        node.stop()
        backup.stop()


def _loss(client: NodeClient, rate: int, mode: str, seconds: float) -> Row:
    shrunk = int(_PAPER_BYTES * seconds / _PAPER_S)
    one_batch = 4 * int(rate * 0.05) * 48 * 2  # a queue has room for a late micro-batch
    capacity = max(_LEAST_BYTES, shrunk, one_batch)
    name = f"q{rate}-{mode[:5]}{mode[-1]}"
    queue = client.create(name, SCHEMA, capacity=capacity, entry=True, **MODES[mode])
    fast = [Consumer(client, queue, f"fast{i}").start() for i in range(_FAST)]
    slow = Consumer(client, queue, "slow", _SLOW_PER_S).start()
    sent = send(client, queue, rate, seconds)
    seen = client.describe(queue)
    consumers = [one.finish() for one in (*fast, slow)]
    lost = max(one.lost(sent.tuples) for one in consumers)
    client.drop(queue)
    return {
        "experiment": "1 loss",
        "mode": mode,
        "rate": rate,
        "capacity": capacity,
        "sent": sent.tuples,
        "reached_per_s": sent.per_s,
        "lost": lost,
        "lost_share": lost / sent.tuples,
        "duplicated": sum(one.duplicated() for one in consumers),
        "backup_mb": float(seen["handed_bytes"]) / 2**20,
        "mode_changes": seen["mode_changes"],
        "waited": seen["full"],
    }


def overhead_rows(pairs: int, directory: Path) -> list[Row]:
    """Processor time of the node for the same work on a plain and on an adaptive queue.

    The two take turns of a few micro-batches, first one, then the other one first: whatever else
    the machine does happens to both. more: the median of how much more a turn takes than its pair.
    """
    node, backup = with_backup(directory)
    used: dict[str, list[float]] = {"plain": [], "adaptive": []}
    try:
        with node.client() as client:
            works = {mode: _FastWork.start(client, mode) for mode in used}
            for pair in range(pairs + _WARM_UP):
                for mode in sorted(works, reverse=pair % 2 == 0):
                    used[mode].append(works[mode].turn())
    finally:
        node.stop()
        backup.stop()
    warm = {mode: taken[_WARM_UP:] for mode, taken in used.items()}
    return [
        {
            "experiment": "4 nothing slow",
            "mode": mode,
            "turns": pairs,
            "node_cpu_ms": 1000 * statistics.median(taken),
            "more": statistics.median(
                mine / plain - 1 for mine, plain in zip(taken, warm["plain"], strict=True)
            ),
        }
        for mode, taken in warm.items()
    ]


@dataclass(slots=True)
class _FastWork:
    """Micro-batches through a queue, with two consumers that are never behind."""

    client: NodeClient
    queue: QueueRef
    batch: int = 0

    @classmethod
    def start(cls, client: NodeClient, mode: str) -> _FastWork:
        queue = client.create(mode, SCHEMA, entry=True, **MODES[mode])
        for consumer in _CONSUMERS:
            client.register(queue, consumer)
        return cls(client, queue)

    def turn(self) -> float:
        """Some micro-batches; the node's processor time."""
        before = self.client.stats()["process_cpu_s"]
        for _ in range(_TURN_BATCHES):
            self._pass_on()
        return float(self.client.stats()["process_cpu_s"]) - before

    def _pass_on(self) -> None:
        client, queue, batch = self.client, self.queue, self.batch
        client.put(queue, RING, batch, 0, SCHEMA, [tuples(batch * _ROWS, _ROWS)])
        end = client.commit(queue, RING, batch, 1).end or 0
        for consumer in _CONSUMERS:
            for _ in client.fetch(queue, batch, end):
                pass
            client.acknowledge(queue, consumer, end, 0)
            client.acknowledge(queue, consumer, end, 1)
        self.batch += 1
