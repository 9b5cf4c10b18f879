"""Derived streams on nodes of their own: kill −9 while Spark's rings run loses nothing."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.processes import command_of, descendants
from tests.exchange.processes import NodeProcess

from penstock import Engine
from penstock.testing import ScriptedStream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 90.0
PUSH = 2000


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Network:
    """S → Odd on a node with a backup server → a fast query, and one that takes its time."""

    def __init__(self, engine: Engine, node: NodeProcess, backup: NodeProcess) -> None:
        self.engine, self.node, self.backup = engine, node, backup
        self.source = ScriptedStream(engine, "S", "id INT, ts TIMESTAMP", event_time="ts")
        self.go = threading.Event()
        self.go.set()
        self.pushed = 0
        self.found: list[int] = []
        engine.execute(f"SET exchange_node = '{node.address.uri}'")
        engine.execute(f"SET exchange_token_file = '{node.directory / 'token'}'")
        with engine.together():
            engine.execute(
                f"CREATE STREAM Odd WITH (capacity = '64 KB', backup = '{backup.address.uri}')"
                " AS SELECT id, ts FROM S WHERE id % 2 = 1"
            )
            engine.register("SELECT id FROM Odd", name="fast")
            engine.register("SELECT id AS n, ts FROM Odd", name="slow", sink=self._take)

    def _take(self, rows: Any) -> None:
        self.go.wait(PATIENCE_S)
        self.found += rows.column("n").to_pylist()

    def push(self, times: int = 1) -> None:
        for _ in range(times):
            numbers = range(self.pushed, self.pushed + PUSH)
            self.source.push([{"id": n, "ts": n // 1000} for n in numbers])
            self.pushed += PUSH

    def shown(self, column: str) -> Any:
        [answer] = self.engine.execute("SHOW EXCHANGE")
        return answer.rows[0][answer.columns.index(column)]

    def check(self) -> None:
        """Both queries have every tuple once."""
        self.go.set()
        self.engine.await_idle(PATIENCE_S)
        expected = list(range(1, self.pushed, 2))
        assert sorted(self.engine.query("fast").results().column("id").to_pylist()) == expected
        assert sorted(self.found) == expected


@pytest.fixture
def network(spark: SparkSession, tmp_path: Path) -> Iterator[Network]:
    with (
        NodeProcess(tmp_path / "backup") as backup,
        NodeProcess(tmp_path / "node") as node,
        Engine(
            spark, tmp_path / "w", settings={"trigger_ms": 10, "sink_patience_s": 120.0}
        ) as engine,
    ):
        yield Network(engine, node, backup)


@pytest.mark.slow
def test_a_backup_server_that_dies_and_a_node_that_loses_its_disk(network: Network) -> None:
    network.push()
    network.engine.await_idle(PATIENCE_S)
    network.go.clear()
    for _ in range(20):  # the slow one holds what the fast one has received
        network.push()
        _until(lambda: network.engine.query("fast").status.rows >= network.pushed // 2)
        if network.shown("backup"):
            break
    assert network.shown("backup") > 0
    assert network.shown("changes") > 0
    network.backup.kill()
    network.push(3)
    _until(lambda: network.shown("acting") == "block")
    network.backup.start()
    network.check()

    network.go.clear()
    network.push(2)
    _until(lambda: network.engine.query("fast").status.rows >= network.pushed // 2)
    network.node.kill()
    shutil.rmtree(network.node.directory / "queues")
    network.node.start()
    network.push()
    network.check()


@pytest.mark.slow
def test_workers_of_rings_that_are_killed(network: Network) -> None:
    """All Python workers, of the maker and of its readers, while they work."""
    for pause_s in (0.05, 0.3):
        network.push(2)
        time.sleep(pause_s)
        for pid in descendants(os.getpid()):
            if "pyspark.daemon" in command_of(pid) and not descendants(pid):
                os.kill(pid, signal.SIGKILL)
        network.push()
        network.check()
