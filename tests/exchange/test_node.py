"""A node over the network: who may ask, what is refused, what a sink and a source see."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.exchange.processes import SCHEMA, batch_of

from penstock.errors import WorkspaceError
from penstock.exchange.client import NodeClient, SafePoint
from penstock.exchange.failures import (
    BatchIncomplete,
    BatchTooLarge,
    ExchangeError,
    NodeGone,
    PositionGone,
    QueueFull,
    QueueLost,
    QueueUnknown,
    Refused,
    Stranger,
)
from penstock.exchange.node import Node
from penstock.exchange.queues import Queues
from penstock.exchange.remote_backup import NodeBackup
from penstock.exchange.wire import NodeAddress, QueueRef

TOKEN = "a token for tests"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    running = Node(Queues(tmp_path / "node"), TOKEN)
    yield running
    running.stop()


@pytest.fixture
def client(node: Node) -> Iterator[NodeClient]:
    with NodeClient(node.address, call_s=5, patience_s=1) as connected:
        yield connected


def write(client: NodeClient, queue: QueueRef, batch: int, *partitions: list[int]) -> None:
    for number, values in enumerate(partitions):
        client.put(queue, "ring", batch, number, SCHEMA, [batch_of(values)])
    client.commit(queue, "ring", batch, len(partitions))


def values(client: NodeClient, queue: QueueRef, start: int, end: int) -> list[int]:
    found = client.fetch(queue, start, end)
    return [n for _, batch in found for n in batch.column(0).to_pylist()]


def state(client: NodeClient) -> str:
    """All of a node that may not change by itself."""
    queues = client.stats()["queues"].values()
    kept = ("first", "end", "used_bytes", "staged", "consumers", "rings", "disk_bytes")
    return json.dumps([{key: queue[key] for key in kept} for queue in queues])


def test_a_batch_is_seen_when_all_its_partitions_are_committed(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA)
    client.register(queue, "reader")
    client.put(queue, "ring", 7, 1, SCHEMA, [batch_of([3]), batch_of([4])])
    with pytest.raises(BatchIncomplete, match=r"lacks partitions \[0\] of 2"):
        client.commit(queue, "ring", 7, 2)
    client.put(queue, "ring", 7, 0, SCHEMA, [batch_of([1, 2])])
    assert client.latest(queue) == 0
    committed = client.commit(queue, "ring", 7, 2)
    assert (committed.first, committed.end) == (0, 3)
    assert client.latest(queue) == 3
    assert values(client, queue, 0, 3) == [1, 2, 3, 4]
    assert client.commit(queue, "ring", 7, 2) == committed


def test_an_append_seen_before_changes_nothing(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA)
    client.register(queue, "reader")
    for _ in range(3):
        client.put(queue, "ring", 0, 0, SCHEMA, [batch_of([1])])
    client.commit(queue, "ring", 0, 1)
    before = state(client)
    client.put(queue, "ring", 0, 0, SCHEMA, [batch_of([9, 9])])
    assert state(client) == before
    assert values(client, queue, 0, 1) == [1]


def test_a_micro_batch_that_runs_again_in_other_partitions_replaces_itself(
    client: NodeClient,
) -> None:
    queue = client.create("Hot", SCHEMA)
    client.register(queue, "reader")
    for number, part in enumerate(([1], [2], [3])):
        client.put(queue, "ring", 0, number, SCHEMA, [batch_of(part)])
    write(client, queue, 0, [1, 2], [3])
    assert values(client, queue, 0, client.latest(queue)) == [1, 2, 3]
    assert client.describe(queue)["staged"] == 0


def test_large_partitions_travel_in_pieces_and_empty_ones_as_nothing(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA)
    client.register(queue, "reader")
    numbers = list(range(1_500_000))
    write(client, queue, 0, numbers, [])
    assert client.describe(queue)["staged"] == 0
    assert client.latest(queue) > 10
    assert values(client, queue, 0, client.latest(queue)) == numbers


def test_the_queue_is_trimmed_to_the_slowest_consumer(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA)
    for name in ("fast", "slow"):
        client.register(queue, name)
    for number in range(4):
        write(client, queue, number, [number])
    assert client.acknowledge(queue, "fast", 4, 1) == 0
    assert client.acknowledge(queue, "slow", 3, 0) == 0
    assert client.acknowledge(queue, "slow", 2, 1) == 2
    with pytest.raises(PositionGone, match="begins at 2"):
        values(client, queue, 1, 4)
    assert client.register(queue, "late").safe == 2
    client.unregister(queue, "slow")
    client.unregister(queue, "late")
    assert client.describe(queue)["first"] == 4
    assert client.commit(queue, "ring", 3, 1).safe == SafePoint(3, 4)


def test_a_full_queue_holds_up_its_upstream_until_a_consumer_goes_on(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA, mode="block", capacity=20_000)
    client.register(queue, "reader")
    write(client, queue, 0, list(range(2000)))
    with pytest.raises(QueueFull, match="is full"):
        write(client, queue, 1, list(range(2000)))
    Thread(target=lambda: (time.sleep(0.3), client.acknowledge(queue, "reader", 1, 1))).start()
    write(client, queue, 1, list(range(2000)))
    assert client.describe(queue)["lost_rows"] == 0


def test_a_plain_queue_loses_what_it_has_no_room_for_and_counts_it(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA, mode="plain", capacity=20_000)
    client.register(queue, "reader")
    for number in range(3):
        write(client, queue, number, list(range(2000)))
    seen = client.describe(queue)
    assert (seen["end"], seen["lost_rows"]) == (1, 4000)


def test_a_batch_that_can_never_fit_is_refused_at_once(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA, mode="block", capacity=20_000)
    client.register(queue, "reader")
    client.put(queue, "ring", 0, 0, SCHEMA, [batch_of(list(range(1500)))])
    began = time.monotonic()
    with pytest.raises(BatchTooLarge, match="batch 0 of ring ring is larger than queue Hot"):
        client.put(queue, "ring", 0, 1, SCHEMA, [batch_of(list(range(1500)))])
    assert time.monotonic() - began < 0.5


def test_whoever_lacks_the_token_is_refused_and_changes_nothing(
    node: Node, client: NodeClient
) -> None:
    queue = client.create("Hot", SCHEMA)
    write(client, queue, 0, [1])
    before = state(client)
    for token in ("", "guess", TOKEN + "x", TOKEN[:-1]):
        stranger = NodeClient(replace(node.address, token=token), patience_s=0.1)
        with pytest.raises(Stranger):
            stranger.drop(queue)
        with pytest.raises(Stranger):
            stranger.put(queue, "ring", 1, 0, SCHEMA, [batch_of([1])])
        with pytest.raises(Stranger):
            list(stranger.fetch(queue, 0, 1))
    assert state(client) == before


def test_a_node_listens_on_loopback_unless_told_otherwise(node: Node) -> None:
    assert node.address.uri.startswith("grpc://127.0.0.1:")


MALFORMED = [
    b"",
    b"{",
    b"[]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"queue": "../../etc"}',
    b'{"queue": "Hot"}',
    b'{"queue": "Hot", "incarnation": 7}',
    b'{"queue": 3, "incarnation": ""}',
    b" " * 2_000_000,
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_messages_are_refused_and_change_nothing(
    node: Node, client: NodeClient, body: bytes
) -> None:
    queue = client.create("Hot", SCHEMA)
    write(client, queue, 0, [1])
    before = state(client)
    raw = flight.FlightClient(node.address.uri)
    header = (b"authorization", b"Bearer " + TOKEN.encode())
    options = flight.FlightCallOptions(timeout=5, headers=[header])
    for action in ("create", "drop", "commit", "ack", "register", "backup_trim", "nothing"):
        with pytest.raises(flight.FlightServerError):
            list(raw.do_action(flight.Action(action, body), options))
    with pytest.raises(flight.FlightServerError):
        raw.do_get(flight.Ticket(body), options).read_all()
    descriptor = flight.FlightDescriptor.for_command(body)
    writer, answers = raw.do_put(descriptor, SCHEMA, options)
    writer.done_writing()
    with pytest.raises((flight.FlightServerError, pa.ArrowException)):
        answers.read()
    assert state(client) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": -1},
        {"batch": "0"},
        {"batch": True},
        {"partition": 1 << 70},
        {"ring": ""},
        {"ring": "a/b"},
        {"nbytes": 1 << 40},
        {"wait_s": 1e9},
        {"wait_s": float("nan")},
        {"last": 1},
        {"incarnation": "another"},
    ],
    ids=str,
)
def test_an_append_with_one_wrong_field_is_refused(
    node: Node, client: NodeClient, changes: dict[str, object]
) -> None:
    queue = client.create("Hot", SCHEMA)
    key = {"queue": "Hot", "incarnation": queue.incarnation, "ring": "r", "batch": 0}
    right = {**key, "partition": 0, "piece": 0, "last": True, "nbytes": 1000, "wait_s": 0}
    with pytest.raises((Refused, QueueLost)):
        client._put_once({**right, **changes}, SCHEMA, [batch_of([1])])
    assert client.describe(queue)["staged"] == 0
    client._put_once(right, SCHEMA, [batch_of([1])])
    assert client.describe(queue)["staged"] == 1


def test_more_than_was_announced_and_another_schema_are_refused(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA)
    key = {"queue": "Hot", "incarnation": queue.incarnation, "ring": "r", "batch": 0}
    header = {**key, "partition": 0, "piece": 0, "last": True, "nbytes": 1000, "wait_s": 0}
    with pytest.raises(BatchTooLarge):
        client._put_once(header, SCHEMA, [batch_of(list(range(9_000_000)))])
    other = pa.schema([("n", pa.string())])
    with pytest.raises(Refused, match="not of the schema"):
        client._put_once(header, other, [pa.record_batch([["a"]], schema=other)])
    assert client.describe(queue)["staged"] == 0


def test_a_tuple_larger_than_any_message_is_refused_before_it_travels(client: NodeClient) -> None:
    schema = pa.schema([("s", pa.large_string())])
    queue = client.create("Wide", schema)
    with pytest.raises(BatchTooLarge, match="a single tuple"):
        client.put(queue, "r", 0, 0, schema, [pa.record_batch([["x" * (65 << 20)]], schema=schema)])


def test_queues_that_make_no_sense_are_refused(client: NodeClient) -> None:
    coded = pa.schema([("c", pa.dictionary(pa.int32(), pa.string()))])
    for name, schema, options in (
        ("../up", SCHEMA, {}),
        (".hidden", SCHEMA, {}),
        ("a" * 200, SCHEMA, {}),
        ("Coded", coded, {}),
        ("Odd", SCHEMA, {"mode": "fast"}),
        ("Odd", SCHEMA, {"trigger": "never"}),
        ("Odd", SCHEMA, {"capacity": 0}),
    ):
        with pytest.raises(Refused):
            client.create(name, schema, **options)
    assert client.stats()["queues"] == {}
    queue = client.create("Hot", SCHEMA)
    assert client.create("Hot", SCHEMA) == client.open("Hot") == queue
    with pytest.raises(Refused, match="is here already"):
        client.create("Hot", SCHEMA, mode="block")
    with pytest.raises(QueueUnknown):
        client.open("Cold")


def test_a_consumer_cannot_acknowledge_what_is_not_there(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA)
    with pytest.raises(Refused, match="is not registered"):
        client.acknowledge(queue, "nobody", 0, 1)
    client.register(queue, "reader")
    with pytest.raises(Refused, match="beyond"):
        client.acknowledge(queue, "reader", 1, 1)
    with pytest.raises(Refused, match="not in queue"):
        values(client, queue, 0, 1)


def test_a_dropped_queue_is_gone_and_one_of_the_same_name_is_another(client: NodeClient) -> None:
    queue = client.create("Hot", SCHEMA)
    write(client, queue, 0, [1])
    client.drop(queue)
    client.drop(queue)
    again = client.create("Hot", SCHEMA)
    assert again != queue
    with pytest.raises(QueueLost):
        write(client, queue, 1, [1])
    assert client.latest(again) == 0


def test_a_directory_has_one_node(node: Node, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="in use by another node"):
        Queues(tmp_path / "node")


def test_an_address_in_use_is_said_to_be(node: Node, tmp_path: Path) -> None:
    queues = Queues(tmp_path / "other")
    with pytest.raises(ExchangeError, match="Address already in use"):
        Node(queues, TOKEN, port=node.port)
    queues.close()


def test_a_node_that_is_gone_is_said_to_be_gone() -> None:
    nobody = NodeClient(NodeAddress("grpc://127.0.0.1:1", TOKEN), patience_s=0.2)
    with pytest.raises(NodeGone, match="does not answer"):
        nobody.stats()


def test_a_full_disk_refuses_appends_and_loses_nothing(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    queue = client.create("Hot", SCHEMA)
    client.register(queue, "reader")
    write(client, queue, 0, [1])
    real, left = os.write, [100]

    def nearly_full(file: int, data: memoryview) -> int:
        if left[0] <= 0:
            raise OSError(28, "No space left on device")
        written = real(file, data[: left[0]])
        left[0] -= written
        return written

    before = state(client)
    monkeypatch.setattr(os, "write", nearly_full)
    with pytest.raises(ExchangeError, match="No space left"):
        write(client, queue, 1, [2])
    monkeypatch.undo()
    assert state(client) == before
    write(client, queue, 1, [2])
    assert values(client, queue, 0, 2) == [1, 2]


def test_an_entry_that_is_loaded_has_other_nodes_measure(tmp_path: Path) -> None:
    from penstock.exchange.node import teller

    told = Node(Queues(tmp_path / "told", partial=True), TOKEN)
    telling = Queues(tmp_path / "telling", partial=True, tell=teller([told.address]))
    entry = Node(telling, TOKEN)
    inside, outside = NodeClient(entry.address), NodeClient(told.address)
    shared = outside.create("Shared", SCHEMA)
    for name in ("a", "b"):
        outside.register(shared, name)
    queue = inside.create("Entry", SCHEMA, capacity=20_000, entry=True)
    time.sleep(0.5)
    assert outside.stats()["monitor"]["looks"] == 0
    deadline = time.monotonic() + 20
    batch = 0
    while not outside.stats()["monitor"]["looks"]:
        assert time.monotonic() < deadline
        write(inside, queue, batch, list(range(1500)))
        batch += 1
    assert inside.stats()["monitor"]["entry_loaded"]
    entry.stop()
    told.stop()


def test_what_is_handed_over_is_read_from_the_backup_and_trimmed_there(tmp_path: Path) -> None:
    backup = Node(Queues(tmp_path / "backup"), TOKEN)
    node = Node(Queues(tmp_path / "node", NodeBackup(backup.address)), TOKEN)
    client = NodeClient(node.address)
    queue = client.create("Hot", SCHEMA, capacity=60_000)
    for name in ("fast", "slow"):
        client.register(queue, name)
    for number in range(20):
        write(client, queue, number, list(range(number * 1000, number * 1000 + 1000)))
        client.acknowledge(queue, "fast", number + 1, 1)
    seen = client.describe(queue)
    assert seen["lost_rows"] == 0
    assert seen["acting"] == "backup"
    assert seen["kept_from"] > 0
    assert values(client, queue, 0, 20) == list(range(20_000))
    client.acknowledge(queue, "slow", 20, 1)
    client.trim(queue)
    assert NodeClient(backup.address).stats()["backups_bytes"] == 0
    node.stop()
    backup.stop()
