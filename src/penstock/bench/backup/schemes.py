"""Experiment 3: how long a node that was killed is missed, and what each scheme ships for that.

plain, adaptive: the node starts again on its files; with adaptive a part lies with the backup
server. adaptive, standby: a process that is ready takes over these files. passive: a second node is
brought up to date from time to time and takes over; the upstream replays the rest. active: the
upstream delivers everything to both. Spark application: what a ring would need without any of this,
a new process that goes on from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from penstock.bench.backup.nodes import NodeProcess, with_backup
from penstock.bench.backup.spark_restart import restart_seconds
from penstock.bench.backup.traffic import RING, SCHEMA, tuples
from penstock.bench.report import Value
from penstock.exchange.client import NodeClient
from penstock.exchange.wire import QueueRef

Row = dict[str, Value]
_ROWS = 2_000
_BATCHES = 40
_CHECKPOINT = 10  # micro-batches between two updates of a passive standby
_CONSUMER = "reader"


class Scheme(Protocol):
    shipped: int  # micro-batches that went over the network beside those to the node itself

    def write(self, batch: int) -> None: ...

    def read(self, until: int) -> list[int]: ...

    def fail(self) -> None: ...


class Restarted:
    """One node, with or without a backup server."""

    def __init__(self, node: NodeProcess, mode: str) -> None:
        self._node = node
        self._client = node.client()
        self._queue = self._client.create("q", SCHEMA, mode=mode)  # type: ignore[arg-type]
        for consumer in (_CONSUMER, "fast"):
            self._client.register(self._queue, consumer)
        self.shipped = 0

    def write(self, batch: int) -> None:
        _write(self._client, self._queue, batch)
        self._client.acknowledge(self._queue, "fast", batch + 1, 1)

    def hand_over(self) -> None:
        self._client.hand_over(self._queue)
        self.shipped += int(self._client.describe(self._queue)["kept_from"])

    def read(self, until: int) -> list[int]:
        return _numbers(self._client, self._queue, until)

    def fail(self) -> None:
        self._node.kill()
        self._node.start()


class Standby:
    """Two nodes; the second takes over. every: micro-batches between updates, 1: at once."""

    def __init__(self, first: NodeProcess, second: NodeProcess, every: int) -> None:
        self._first = first
        self._clients = [first.client(), second.client()]
        self._queues = [client.create("q", SCHEMA, mode="block") for client in self._clients]
        for client, queue in zip(self._clients, self._queues, strict=True):
            client.register(queue, _CONSUMER)
        self._every = every
        self._kept: list[int] = []  # by the upstream, since the second node's last update
        self._active = 0
        self.shipped = 0

    def write(self, batch: int) -> None:
        _write(self._clients[self._active], self._queues[self._active], batch)
        if self._active == 0:
            self._kept.append(batch)
            if len(self._kept) >= self._every:
                self.shipped += len(self._kept)
                self._catch_up()

    def _catch_up(self) -> None:
        for batch in self._kept:
            _write(self._clients[1], self._queues[1], batch)
        self._kept.clear()

    def read(self, until: int) -> list[int]:
        return _numbers(self._clients[self._active], self._queues[self._active], until)

    def fail(self) -> None:
        self._first.kill()
        self._catch_up()
        self._active = 1


def scheme_rows(turns: int, restarts: int, directory: Path) -> list[Row]:
    rows: list[Row] = []
    for name in ("plain", "adaptive", "adaptive, standby", "passive", "active"):
        runs = [_one(name, directory / f"{name}{turn}", turn) for turn in range(turns)]
        times = [run["recovery_s"] for run in runs]
        rows.append(
            {
                "experiment": "3 recovery",
                "scheme": name,
                "kills": turns,
                "recovery_p50_s": float(np.percentile(times, 50)),
                "recovery_max_s": max(times),
                "lost": sum(int(run["lost"]) for run in runs),
                "duplicated": sum(int(run["duplicated"]) for run in runs),
                "shipped_per_batch": float(np.mean([run["shipped"] for run in runs])) / _BATCHES,
            }
        )
    return [*rows, *_spark_rows(restarts, directory)]


def _spark_rows(restarts: int, directory: Path) -> list[Row]:
    times = [restart_seconds(directory / f"spark{turn}") for turn in range(restarts)]
    if not times:
        return []
    return [
        {
            "experiment": "3 recovery",
            "scheme": "Spark application",
            "kills": restarts,
            "recovery_p50_s": float(np.percentile(times, 50)),
            "recovery_max_s": max(times),
        }
    ]


def _one(name: str, directory: Path, seed: int) -> dict[str, float]:
    """Kill the node after some micro-batches; how long until all before and the next are read."""
    killed_after = _BATCHES // 2 + seed % (_BATCHES // 4)
    with _running(name, directory) as scheme:
        for batch in range(killed_after):
            scheme.write(batch)
        if name.startswith("adaptive"):
            assert isinstance(scheme, Restarted)
            scheme.hand_over()
        began = time.perf_counter()
        scheme.fail()
        scheme.write(killed_after)
        scheme.read(killed_after + 1)
        recovery_s = time.perf_counter() - began
        for batch in range(killed_after + 1, _BATCHES):
            scheme.write(batch)
        found = np.array(scheme.read(_BATCHES))
        distinct = np.unique(found).size
        return {
            "recovery_s": recovery_s,
            "lost": _ROWS * _BATCHES - distinct,
            "duplicated": found.size - distinct,
            "shipped": scheme.shipped,
        }


@contextmanager
def _running(name: str, directory: Path) -> Iterator[Scheme]:
    first, second = with_backup(directory, standby=name == "adaptive, standby")
    try:
        first.prepare()
        if name not in ("passive", "active"):
            yield Restarted(first, "block" if name == "plain" else "adaptive")
        else:
            yield Standby(first, second, _CHECKPOINT if name == "passive" else 1)
    finally:
        first.stop()
        second.kill()


def _write(client: NodeClient, queue: QueueRef, batch: int) -> None:
    client.put(queue, RING, batch, 0, SCHEMA, [tuples(batch * _ROWS, _ROWS)])
    client.commit(queue, RING, batch, 1)


def _numbers(client: NodeClient, queue: QueueRef, until: int) -> list[int]:
    return [n for _, b in client.fetch(queue, 0, until) for n in b.column(0).to_pylist()]
