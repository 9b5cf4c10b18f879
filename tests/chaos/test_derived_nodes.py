"""Derived streams on nodes of their own: kill −9 while Spark's rings run loses nothing."""

from __future__ import annotations

import json
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
            # what it computes gives it a ring of its own: nobody waits for its sink
            engine.register("SELECT id AS n, id + 1 AS m FROM Odd", name="slow", sink=self._take)

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


class Joining:
    """A and B → Pairs on a node → a fast query, and one that takes its time."""

    def __init__(self, engine: Engine, node: NodeProcess, text: str) -> None:
        self.engine, self.pushed, self.found = engine, 0, list[int]()
        self.go = threading.Event()
        engine.execute(f"SET exchange_node = '{node.address.uri}'")
        engine.execute(f"SET exchange_token_file = '{node.directory / 'token'}'")
        columns = "id INT, ts TIMESTAMP"
        self.sources = [
            ScriptedStream(engine, name, columns, event_time="ts", slack="1 second")
            for name in "AB"
        ]
        with engine.together():
            engine.execute(f"CREATE STREAM Pairs AS {text}")
            engine.register("SELECT n FROM Pairs", name="fast")
            engine.register("SELECT n AS m, n + 1 AS o FROM Pairs", name="slow", sink=self._take)

    def _take(self, rows: Any) -> None:
        self.go.wait(PATIENCE_S)
        self.found += rows.column("m").to_pylist()

    def push(self, pairs: int) -> None:
        """Tuples that find each other, each in a micro-batch: first those of one input, then those
        of the other. Whoever runs all of it again at once would take them together."""
        numbers = range(self.pushed, self.pushed + pairs)
        self.pushed += pairs
        for source in self.sources:
            for n in numbers:
                before = self._read()
                source.push([{"id": n, "ts": 2 * n}])
                _until(lambda before=before: self._read() > before)

    def offsets(self) -> dict[int, list[str]]:
        """What the join's micro-batches have read up to, without Spark's own figures."""
        logs = self.engine.workspace.path.glob("rings/*/offsets/[0-9]*")
        read = [(int(path.name), path.read_text().splitlines()[2:]) for path in logs]
        return {batch: lines for batch, lines in read if '"epochs"' in lines[0]}

    def _read(self) -> int:
        offsets = self.offsets()
        last = json.loads(offsets[max(offsets)][0])["epochs"] if offsets else []
        return sum(int(each["epoch"]) for each in last)


SELECTED = "A.id AS n, A.ts AS ts FROM A [RANGE 1 HOUR], B [RANGE 1 HOUR] WHERE A.id = B.id"
COUNTED = (
    "A.id AS n, count(*) AS k FROM A [RANGE 2 SECONDS], B [RANGE 2 SECONDS]"
    " WHERE A.id = B.id GROUP BY A.id"
)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "before"), [(SELECTED, 2), (COUNTED, 0)], ids=["rows", "windows"])
def test_a_lost_queue_of_a_join_is_made_again_as_it_was(
    spark: SparkSession, tmp_path: Path, text: str, before: int
) -> None:
    """For the slow query the join goes back; the fast one has read all that is made again."""
    settings = {"trigger_ms": 10, "sink_patience_s": 120.0}
    with (
        NodeProcess(tmp_path / "node") as node,
        Engine(spark, tmp_path / "w", settings=settings) as engine,
    ):
        join = Joining(engine, node, f"SELECT {text}")
        join.go.set()
        join.push(before)
        engine.await_idle(PATIENCE_S)
        join.go.clear()
        join.push(4)
        _until(lambda: engine.query("fast").status.rows >= before + 2)
        ran = join.offsets()
        node.kill()
        shutil.rmtree(node.directory / "queues")
        node.start()
        join.push(2)
        join.go.set()
        engine.await_idle(PATIENCE_S)
        again = join.offsets()
        assert {batch: again[batch] for batch in ran} == ran
        found = sorted(engine.query("fast").results().column("n").to_pylist())
        assert found == sorted(join.found) == sorted(set(found))
        assert len(found) >= before + 4
