"""Kill −9 of nodes, backup servers and consumers; lost directories; a disk that is full."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.exchange.processes import SCHEMA, NodeProcess, batch_of

from penstock.exchange.client import NodeClient, SafePoint
from penstock.exchange.failures import (
    BackupGone,
    DiskFailed,
    ExchangeError,
    QueueFull,
    QueueLost,
)
from penstock.exchange.wire import QueueRef

ROWS = 500


@contextmanager
def with_backup(directory: Path) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    with (
        NodeProcess(directory / "backup") as backup,
        NodeProcess(directory / "node", "--backup", backup.address.uri) as node,
    ):
        yield node, backup


def write(client: NodeClient, queue: QueueRef, batch: int) -> None:
    """Two partitions; which one comes first does not matter."""
    first = batch * ROWS
    halves = [(0, first, first + ROWS // 2), (1, first + ROWS // 2, first + ROWS)]
    for partition, begin, end in halves if batch % 2 else reversed(halves):
        client.put(queue, "ring", batch, partition, SCHEMA, [batch_of(list(range(begin, end)))])
    client.commit(queue, "ring", batch, 2)


def refused(client: NodeClient, queue: QueueRef, error: type[ExchangeError], told: str) -> int:
    """Write, and acknowledge as the fast consumer, until it is refused; that batch."""
    for batch in range(100):
        try:
            write(client, queue, batch)
        except error as refusal:
            if told not in str(refusal):
                raise
            return batch
        if "fast" in client.describe(queue)["consumers"]:
            client.acknowledge(queue, "fast", client.latest(queue), 1)
    raise AssertionError("nothing was refused")


def read(client: NodeClient, queue: QueueRef, start: int, end: int) -> list[int]:
    found = client.fetch(queue, start, end)
    return [n for _, batch in found for n in batch.column(0).to_pylist()]


def numbers(batches: int, first: int = 0) -> list[int]:
    return list(range(first * ROWS, batches * ROWS))


def test_nodes_and_backups_killed_at_random_lose_and_repeat_nothing(tmp_path: Path) -> None:
    rng = random.Random(0)
    with with_backup(tmp_path) as (node, backup), node.client() as client:
        queue = client.create("q", SCHEMA, capacity=60_000)
        for name in ("fast", "slow"):
            client.register(queue, name)
        seen: dict[str, list[int]] = {"fast": [], "slow": []}
        at = {"fast": 0, "slow": 0}

        def take(name: str) -> None:
            end = min(client.latest(queue), at[name] + (6 if name == "slow" else 1000))
            client.acknowledge(queue, name, end, 0)
            seen[name] += read(client, queue, at[name], end)
            client.acknowledge(queue, name, end, 1)
            at[name] = end

        for batch in range(60):
            write(client, queue, batch)
            take("fast")
            if batch % 5 == 0:
                take("slow")
            if batch % 10 == 9:
                victim = rng.choice([node, backup])
                victim.kill()
                victim.start()
        while at["slow"] < client.latest(queue):
            take("slow")
        assert seen["fast"] == numbers(60)
        assert seen["slow"] == numbers(60)
        assert client.describe(queue)["first"] == 120


def test_a_standby_takes_over_at_once_with_all_that_was_answered(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node") as node, node.client(patience_s=10) as client:
        queue = client.create("q", SCHEMA)
        client.register(queue, "reader")
        standby = NodeProcess(tmp_path / "node", "--standby", port=node.port)
        assert standby.process.stdout is not None
        assert standby.process.stdout.readline() == "standby\n"
        write(client, queue, 0)
        node.kill()
        write(client, queue, 1)
        assert read(client, queue, 0, 4) == numbers(2)
        standby.wait_until_up()
        standby.kill()


def test_a_killed_consumer_goes_on_behind_what_it_made_safe(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node") as node, node.client() as client:
        queue = client.create("q", SCHEMA)
        client.register(queue, "reader")
        about = [node.address.uri, node.address.token, queue.name, queue.incarnation, "reader"]
        out = tmp_path / "out"
        out.mkdir()
        command = [sys.executable, "-m", "penstock.bench.backup.consumer", *about, str(out)]
        consumer = subprocess.Popen(command)
        for batch in range(40):
            write(client, queue, batch)
            if batch in (10, 20, 30):
                time.sleep(0.5)
                consumer.kill()
                consumer.wait()
                consumer = subprocess.Popen(command)
        deadline = time.monotonic() + 60
        while client.describe(queue)["first"] < 80:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        consumer.kill()
        consumer.wait()
    assert sorted(int(path.stem) for path in out.glob("*.n")) == list(range(80))


def test_without_its_backup_server_a_queue_blocks_and_goes_back_when_it_returns(
    tmp_path: Path,
) -> None:
    with with_backup(tmp_path) as (node, backup), node.client(call_s=2, patience_s=1) as client:
        queue = client.create("q", SCHEMA, capacity=60_000)
        for name in ("fast", "slow"):
            client.register(queue, name)
        backup.kill()
        batch = refused(client, queue, QueueFull, "is full")
        assert client.describe(queue)["acting"] == "block"
        backup.start()
        patient = node.client()
        for again in range(batch, batch + 20):
            write(patient, queue, again)
            patient.acknowledge(queue, "fast", patient.latest(queue), 1)
        seen = patient.describe(queue)
        assert (seen["backup_answers"], seen["lost_rows"]) == (True, 0)
        assert seen["kept_from"] > 0
        assert read(patient, queue, 0, patient.latest(queue)) == numbers(batch + 20)
        backup.kill()
        with pytest.raises(BackupGone):
            read(client, queue, 0, 1)


def test_a_lost_directory_is_told_and_a_replay_from_the_safe_batch_repeats_nothing(
    tmp_path: Path,
) -> None:
    with NodeProcess(tmp_path / "node") as node, node.client() as client:
        queue = client.create("q", SCHEMA)
        for name in ("fast", "slow"):
            client.register(queue, name)
        for batch in range(6):
            write(client, queue, batch)
        fast = read(client, queue, 0, 10)
        client.acknowledge(queue, "fast", 10, 1)
        slow = read(client, queue, 0, 4)
        client.acknowledge(queue, "slow", 4, 1)
        safe = client.commit(queue, "ring", 5, 2).safe
        assert safe == SafePoint(1, 4)
        node.kill()
        shutil.rmtree(node.directory / "queues")
        node.start()
        with pytest.raises(QueueLost, match="lost with the node's directory") as error:
            write(client, queue, 6)
        assert "replay" in str(error.value)

        again = client.create("q", SCHEMA, after={"ring": safe})
        client.register(again, "fast", 10)
        client.register(again, "slow", 4)
        for batch in range(8):
            write(client, again, batch)  # those up to the safe one change nothing
        fast += read(client, again, 10, client.latest(again))
        slow += read(client, again, 4, client.latest(again))
        assert fast == numbers(8)
        assert slow == numbers(8)


def test_a_node_whose_files_may_not_grow_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node") as node, node.client(patience_s=1) as client:
        queue = client.create("q", SCHEMA)
        client.register(queue, "reader")
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (30_000, 30_000))
        batch = refused(client, queue, DiskFailed, "File too large")
        assert 0 < batch < 10
        assert read(client, queue, 0, client.latest(queue)) == numbers(batch)
        node.kill()
        node.start()
        patient = node.client()
        for again in range(batch, batch + 5):
            write(patient, queue, again)
        assert read(patient, queue, 0, patient.latest(queue)) == numbers(batch + 5)


def test_a_damaged_file_is_named_and_nothing_is_served_from_it(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node") as node, node.client() as client:
        queue = client.create("q", SCHEMA)
        client.register(queue, "reader")
        write(client, queue, 0)
        log = node.directory / "queues" / "q" / "000000000000.log"
        data = bytearray(log.read_bytes())
        data[data.index(b"PSQ1", 10) + 2000] ^= 1
        log.write_bytes(data)
        with pytest.raises(DiskFailed, match=r"000000000000\.log is damaged at byte"):
            read(client, queue, 0, 2)


def test_a_node_says_where_it_listens_and_stops_cleanly(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node")
    node.wait_until_up()
    node.process.send_signal(signal.SIGTERM)
    told = node.told()
    assert node.process.returncode == 0
    assert "0 queues" in told
    assert "stopped" in told
    assert "Traceback" not in told
    assert (tmp_path / "node" / "token").read_text() not in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--host", "203.0.113.1"], "cannot listen on 203.0.113.1"),
        (["--backup", "ftp://x"], "ftp://x is not a backup server"),
        (["--token-file", "/dev/null"], "holds no token"),
    ],
)
def test_what_keeps_a_node_from_starting_is_said(
    tmp_path: Path, options: list[str], told: str
) -> None:
    node = NodeProcess(tmp_path / "node", *options)
    error = node.told()
    assert node.process.returncode in (1, 2)
    assert told in error
    assert "Traceback" not in error
