"""Experiment 1: what is lost at which input rate, with one slow consumer among several.

The queue is as much smaller than the paper's 5 MB as the run is shorter than its 200 seconds.
Experiment 4 is the same without a slow consumer: what `adaptive` costs when nothing is wrong.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.bench.backup.nodes import with_backup
from penstock.bench.backup.traffic import RING, SCHEMA, Consumer, send, tuples
from penstock.bench.report import Value
from penstock.exchange.client import NodeClient

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
    queue = client.create(f"q{rate}-{mode[:5]}{mode[-1]}", SCHEMA, capacity=capacity, **MODES[mode])
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


def overhead_rows(batches: int, turns: int, directory: Path) -> list[Row]:
    """Processor time of the node for the same work; plain and adaptive in turns."""
    node, backup = with_backup(directory)
    used: dict[str, list[float]] = {"plain": [], "adaptive": []}
    try:
        with node.client() as client:
            for turn in range(turns + 1):
                for mode, taken in used.items():
                    before = node.cpu_s()
                    _fast_work(client, f"{mode}{turn}", MODES[mode], batches)
                    taken.append(node.cpu_s() - before)
    finally:
        node.stop()
        backup.stop()
    rows: list[Row] = []
    for mode, taken in used.items():
        cpu_s = statistics.median(taken[1:])  # the first turn warms up
        rows.append(
            {"experiment": "4 nothing slow", "mode": mode, "batches": batches, "node_cpu_s": cpu_s}
        )
    return rows


def _fast_work(client: NodeClient, name: str, options: dict[str, Any], batches: int) -> None:
    queue = client.create(name, SCHEMA, **options)
    for consumer in ("a", "b"):
        client.register(queue, consumer)
    for batch in range(batches):
        client.put(queue, RING, batch, 0, SCHEMA, [tuples(batch * 10_000, 10_000)])
        end = client.commit(queue, RING, batch, 1).end or 0
        for consumer in ("a", "b"):
            for _ in client.fetch(queue, batch, end):
                pass
            client.acknowledge(queue, consumer, end, 0)
            client.acknowledge(queue, consumer, end, 1)
    client.drop(queue)
