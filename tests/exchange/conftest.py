"""A node in this process, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.exchange.processes import TOKEN

from penstock.exchange.client import NodeClient
from penstock.exchange.node import Node
from penstock.exchange.queues import Queues


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    running = Node(Queues(tmp_path / "node"), TOKEN)
    yield running
    running.stop()


@pytest.fixture
def client(node: Node) -> Iterator[NodeClient]:
    with NodeClient(node.address, call_s=5, patience_s=1) as connected:
        yield connected
