"""A node over the network: what a sink and a source see of it."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pytest
from tests.exchange.processes import SCHEMA, TOKEN, batch_of, state, values, write

from penstock.exchange.client import NodeClient, SafePoint
from penstock.exchange.failures import (
    BatchIncomplete,
    BatchTooLarge,
    ExchangeError,
    PositionGone,
    QueueFull,
    QueueLost,
)
from penstock.exchange.node import Node
from penstock.exchange.queues import Queues
from penstock.exchange.remote_backup import NodeBackup
from penstock.exchange.teller import Teller


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
    assert time.monotonic() - began < 10  # it is not waited for room, which takes a minute


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
    told = Node(Queues(tmp_path / "told"), TOKEN)
    entry = Node(Queues(tmp_path / "telling", teller=Teller(TOKEN)), TOKEN)
    inside, outside = NodeClient(entry.address), NodeClient(told.address)
    inside.tell(told.address.uri)
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
    assert outside.describe(shared)["measured"]
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
    assert seen["handed_bytes"] > 0
    assert seen["kept_from"] > 0
    assert values(client, queue, 0, 20) == list(range(20_000))
    client.acknowledge(queue, "slow", 20, 1)
    client.trim(queue)
    assert NodeClient(backup.address).stats()["backups_bytes"] == 0
    node.stop()
    backup.stop()
