"""What goes into a derived stream's queue and comes out of it, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.exchange.processes import TOKEN
from tests.runtime.collected import Collected

from penstock.control.punctuation import NEVER_US
from penstock.errors import EngineError
from penstock.exchange.client import NodeClient, SafePoint
from penstock.exchange.failures import QueueFull
from penstock.exchange.node import Node
from penstock.exchange.queues import Queues
from penstock.exchange.wire import QueueRef
from penstock.plan.catalog import Stream
from penstock.runtime.derived.definition import queue_schema
from penstock.runtime.derived.feed import Feed
from penstock.runtime.derived.progress import epoch_of, logged_epoch, roll_back, told_punctuation
from penstock.runtime.derived.source import QueuePlanner, read_queue
from penstock.runtime.sources.beside import Beside
from penstock.schema import Schema

SCHEMA = Schema.of("id INT, name STRING")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    running = Node(Queues(tmp_path / "node"), TOKEN)
    yield running
    running.stop()


@pytest.fixture
def client(node: Node) -> Iterator[NodeClient]:
    with NodeClient(node.address, call_s=5, patience_s=0.2) as connected:
        yield connected


class Fed:
    """A feed that is told how far its ring has come, and notes what it says."""

    def __init__(self, client: NodeClient, node: Node, capacity: int = 1 << 20) -> None:
        self.queue = client.create("hot", queue_schema(SCHEMA), "block", capacity)
        self.complete_us = NEVER_US
        self.notes: list[tuple[int, SafePoint | None]] = []
        self.failed: list[str] = []
        self.feed = Feed(
            client,
            node.address,
            self.queue,
            "Hot",
            queue_schema(SCHEMA),
            lambda _: self.complete_us,
            lambda batch, safe: self.notes.append((batch, safe)),
            lambda: self.failed,
        )

    def give(self, batch: int, ids: list[int], complete_us: int = NEVER_US) -> pa.Table | None:
        """Pass on a micro-batch; what a subscriber would see of it."""
        self.complete_us = complete_us
        stopping = threading.Event()
        stopping.set()
        names = ("id", "name")
        fed = self.feed.pass_on(Collected(_rows(ids)), names, None, "ring", batch, stopping, True)
        assert fed.rows == len(ids)
        return fed.tuples


def _rows(ids: list[int]) -> pa.Table:
    names = pa.array([str(i) for i in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int32()), "name": names})


def _read(node: Node, queue: QueueRef, first: int, end: int) -> tuple[list[int], int]:
    where = {
        "uri": node.address.uri,
        "token": node.address.token,
        "queue": queue.name,
        "incarnation": queue.incarnation,
    }
    stream = Stream("Hot", SCHEMA, "derived", options=tuple(where.items()))
    beside = Beside()
    found = read_queue(stream, [{"first": first, "end": end}], ["id"], beside)
    return [n for batch in found for n in batch.column("id").to_pylist()], beside.punctuation_us


def test_tuples_come_before_the_punctuation_that_holds_after_them(
    client: NodeClient, node: Node
) -> None:
    fed = Fed(client, node)
    client.register(fed.queue, "reader")
    assert fed.give(0, [1, 2], 5_000) == _rows([1, 2])
    fed.give(1, [3], 5_000)
    fed.give(2, [], 7_000)
    assert client.latest(fed.queue) == 5
    assert _read(node, fed.queue, 0, 1) == ([1, 2], NEVER_US)
    assert _read(node, fed.queue, 0, 2) == ([1, 2], 5_000)
    assert _read(node, fed.queue, 1, 5) == ([3], 7_000)
    assert [batch for batch, _ in fed.notes] == [0, 1, 2]


def test_a_micro_batch_that_runs_again_is_not_passed_on_again(
    client: NodeClient, node: Node
) -> None:
    fed = Fed(client, node)
    client.register(fed.queue, "reader")
    fed.give(0, [1, 2], 5_000)
    Fed(client, node).give(0, [1, 2], 6_000)
    assert client.latest(fed.queue) == 2


def test_a_full_queue_is_waited_for_until_the_ring_stops(client: NodeClient, node: Node) -> None:
    fed = Fed(client, node, capacity=30_000)
    client.register(fed.queue, "reader")
    fed.give(0, list(range(1000)))
    with pytest.raises(QueueFull):
        fed.give(1, list(range(1000)))
    fed.failed = ["window-1"]
    with pytest.raises(EngineError, match="ring window-1 that reads it has failed"):
        fed.give(1, list(range(1000)))
    client.acknowledge(fed.queue, "reader", 2, 1)
    fed.give(1, list(range(1000)))
    assert client.latest(fed.queue) == 4


def test_what_is_planned_is_received_and_what_came_before_is_done_with(
    client: NodeClient, node: Node
) -> None:
    fed = Fed(client, node)
    needed: list[int | None] = [None]
    planner = QueuePlanner(client, fed.queue, "reader", "latest", lambda: needed[0])
    assert planner.next_work({}, set(), 2) is None
    for batch in range(5):
        fed.give(batch, [batch])
    work = planner.next_work({}, set(), 2)
    assert work is not None
    assert work.body["pieces"] == [[{"first": 0, "end": 5}], [{"first": 5, "end": 10}]]
    assert client.describe(fed.queue)["consumers"]["reader"] == {"delivered": 10, "safe": 0}
    assert planner.next_work(work.body, set(), 2) is None  # asked again: the first is committed
    assert client.describe(fed.queue)["consumers"]["reader"] == {"delivered": 10, "safe": 10}
    fed.give(5, [5])
    needed[0] = 10  # its own consumers are not done with what becomes of the next one
    later = planner.next_work(work.body, set(), 2)
    assert later is not None
    planner.next_work(later.body, set(), 2)
    assert client.describe(fed.queue)["consumers"]["reader"]["safe"] == 10


def test_micro_batches_are_read_whole(client: NodeClient, node: Node) -> None:
    fed = Fed(client, node)
    client.register(fed.queue, "reader")
    for batch in range(3):
        fed.give(batch, [batch], 1_000 * batch + 1)  # two positions each
    assert [client.next_end(fed.queue, 0, most) for most in (1, 2, 3, 4, 9)] == [2, 2, 2, 4, 6]
    assert [client.next_end(fed.queue, start, 9) for start in (2, 6)] == [6, 6]
    assert client.next_end(fed.queue, 7, 9) == 6  # of a queue that is written again


def test_epochs_of_inputs_are_found_wherever_spark_has_them_in_its_log(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    of = [f'{{"epoch": {7 + number}, "input": {number}}}' for number in range(3)]
    logs = {
        0: [of[2], of[0], '{"punctuation_us": 5}', of[1]],  # a chain, in an order of its own
        1: [f'{{"epochs": [{of[1]}, {of[2]}], "round": 0}}', '{"files": 4}', of[0]],
        2: ['{"epochs": [{"epoch": 7}, {"epoch": 8}, {"epoch": 9}], "round": 0}'],  # as it was
    }
    for batch, lines in logs.items():
        (tmp_path / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *lines]))
        assert [epoch_of(tmp_path, batch, number) for number in range(3)] == [7, 8, 9]
    assert [logged_epoch(tmp_path, number) for number in (1, 5)] == [8, 0]
    assert logged_epoch(tmp_path / "none", 0) == 0


def test_a_ring_goes_back_to_a_micro_batch_that_its_log_still_has(tmp_path: Path) -> None:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        for batch in range(5, 9):
            lines = ["v1", "{}", f'{{"epoch": {batch + 1}}}', f'{{"punctuation_us": {batch}000}}']
            (tmp_path / log / str(batch)).write_text("\n".join(lines))
            (tmp_path / log / f".{batch}.crc").touch()
    assert (epoch_of(tmp_path, 6, None), told_punctuation(tmp_path, 6)) == (7, 6000)
    assert told_punctuation(tmp_path, 4) is None
    with pytest.raises(EngineError, match="too long ago"):
        roll_back(tmp_path, 4)
    roll_back(tmp_path, 6)
    left = sorted(path.name for path in (tmp_path / "offsets").iterdir())
    assert left == [".5.crc", ".6.crc", "5", "6"]
    assert not (tmp_path / "commits" / "7").exists()
