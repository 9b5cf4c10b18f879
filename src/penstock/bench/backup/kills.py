"""Experiment 5: nodes, backup servers and consumers killed at random while tuples flow.

Three consumers, one of them slow, so that the queue is handed over all the time. In the end every
consumer must have every tuple once. The node has a standby, and a new one after each kill.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from penstock.bench.backup.nodes import LONG_S, NodeProcess, patiently_until, with_backup
from penstock.bench.backup.traffic import RING, SCHEMA, tuples
from penstock.bench.report import Value
from penstock.exchange.client import NodeClient
from penstock.exchange.wire import QueueRef

Row = dict[str, Value]
_CAPACITY = 300_000
_ROWS = 500
_PAUSE_S = 0.01
_SLOW_S = 0.03
_BETWEEN_S = (0.05, 0.6)


@dataclass(slots=True)
class Downstream:
    """A consumer process."""

    node: NodeProcess
    queue: QueueRef
    name: str
    out: Path
    pause_s: float
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        address = self.node.address
        about = [address.uri, address.token, self.queue.name, self.queue.incarnation, self.name]
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "penstock.bench.backup.consumer",
                *about,
                str(self.out),
                str(self.pause_s),
            ],
            stdin=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Upstream:
    """Writes micro-batches, one after the other, and notes when each was committed."""

    def __init__(self, client: NodeClient, queue: QueueRef) -> None:
        self._client = client
        self._queue = queue
        self._stop = threading.Event()
        self.committed_s: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def tuples(self) -> int:
        return _ROWS * len(self.committed_s)

    def _run(self) -> None:
        while not self._stop.wait(_PAUSE_S):
            batch = len(self.committed_s)
            self._client.put(self._queue, RING, batch, 0, SCHEMA, [tuples(batch * _ROWS, _ROWS)])
            self._client.commit(self._queue, RING, batch, 1)
            self.committed_s.append(time.perf_counter())

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()


def kill_rows(kills: int, seed: int, directory: Path) -> list[Row]:
    rng = random.Random(seed)
    node, backup = with_backup(directory, standby=True)
    with node.client(patience_s=LONG_S) as client:
        queue = client.create("q", SCHEMA, capacity=_CAPACITY, entry=True)
        names = {"fast": 0.0, "steady": 0.0, "slow": _SLOW_S}
        for name in names:
            client.register(queue, name)
        downstreams = [
            Downstream(node, queue, name, directory / name, pause) for name, pause in names.items()
        ]
        with _running(node, backup, downstreams):
            upstream = Upstream(client, queue)
            patiently_until(lambda: all(any(one.out.iterdir()) for one in downstreams))
            before: list[int] = []  # bytes handed over by nodes that were killed
            note = partial(_note_handed, client, queue, before)
            killed = _kill(kills, rng, node, backup, downstreams, upstream, note)
            upstream.finish()
            note()
            last = client.latest(queue)
            patiently_until(lambda: client.describe(queue)["first"] == last, 300.0)
    missed = [seconds for what, seconds in killed if what == "node"]
    found = [received(one.out) for one in downstreams]
    counts: dict[str, int] = {}
    for what, _ in killed:
        counts[what] = counts.get(what, 0) + 1
    return [
        {
            "experiment": "5 kills",
            "kills": len(killed),
            **{f"of_{what}": count for what, count in sorted(counts.items())},
            "tuples": upstream.tuples,
            "lost": sum(upstream.tuples - np.unique(one).size for one in found),
            "duplicated": sum(one.size - np.unique(one).size for one in found),
            "recovery_p50_s": float(np.percentile(missed, 50)) if missed else None,
            "recovery_p99_s": float(np.percentile(missed, 99)) if missed else None,
            "backup_mb": sum(before) / 2**20,
        }
    ]


@contextmanager
def _running(
    node: NodeProcess, backup: NodeProcess, downstreams: list[Downstream]
) -> Iterator[None]:
    try:
        for one in downstreams:
            one.start()
        yield
    finally:
        for one in downstreams:
            one.kill()
        node.stop()
        backup.kill()


def _kill(
    kills: int,
    rng: random.Random,
    node: NodeProcess,
    backup: NodeProcess,
    downstreams: list[Downstream],
    upstream: Upstream,
    note: Callable[[], None],
) -> list[tuple[str, float]]:
    """What was killed, and after how many seconds the upstream went on; all start again at once."""
    killed = []
    for _ in range(kills):
        time.sleep(rng.uniform(*_BETWEEN_S))
        what = rng.choice(("node", "backup", "consumer"))
        victim = {"node": node, "backup": backup}.get(what) or rng.choice(downstreams)
        if victim is node:
            note()
            node.prepare()
        began = time.perf_counter()
        victim.kill()
        committed = len(upstream.committed_s)
        victim.start()
        patiently_until(lambda before=committed: len(upstream.committed_s) > before + 1)
        killed.append((what, time.perf_counter() - began))
    return killed


def _note_handed(client: NodeClient, queue: QueueRef, to: list[int]) -> None:
    to.append(int(client.describe(queue)["handed_bytes"]))


def received(out: Path) -> np.ndarray:
    """All numbers that arrived, in the order of their positions."""
    files = sorted(out.glob("*.n"), key=lambda path: int(path.stem))
    return np.concatenate(
        [np.empty(0, np.int64), *(np.frombuffer(path.read_bytes(), np.int64) for path in files)]
    )
