"""Nodes as processes of their own, killed with SIGKILL; and what tests ask of any node."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from penstock.exchange.client import NodeClient
from penstock.exchange.wire import NodeAddress, QueueRef

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a token for tests"
SCHEMA = pa.schema([("n", pa.int64())])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NodeProcess:
    """A node that can be killed and started again, at the same address."""

    def __init__(self, directory: Path, *options: str, port: int | None = None) -> None:
        self.directory = directory
        self.port = port or free_port()
        self._options = options
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "token").write_text(TOKEN)
        self.start()

    @property
    def address(self) -> NodeAddress:
        return NodeAddress(f"grpc://127.0.0.1:{self.port}", TOKEN)

    def start(self) -> None:
        program = [sys.executable, "-m", "penstock.cli", "node", str(self.directory)]
        self.process = subprocess.Popen(
            [*program, "--port", str(self.port), *self._options],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_up(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == self.address.uri, self.told()

    def told(self) -> str:
        """What it said, once it has ended."""
        return self.process.communicate(timeout=30)[1]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=30)

    def __enter__(self) -> NodeProcess:
        self.wait_until_up()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def client(self, **options: float) -> NodeClient:
        return NodeClient(self.address, **options)  # type: ignore[arg-type]


def batch_of(values: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA)


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
