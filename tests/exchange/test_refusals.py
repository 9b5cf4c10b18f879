"""Who may ask a node, and what it refuses without changing anything."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight
from tests.exchange.processes import SCHEMA, TOKEN, batch_of, state, values, write

from penstock.errors import WorkspaceError
from penstock.exchange.client import NodeClient
from penstock.exchange.failures import (
    BatchTooLarge,
    ExchangeError,
    NodeGone,
    PositionAhead,
    QueueLost,
    QueueUnknown,
    Refused,
    Stranger,
)
from penstock.exchange.node import Node
from penstock.exchange.queues import Queues
from penstock.exchange.wire import NodeAddress


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
    for action in ("create", "drop", "commit", "ack", "register", "backup_trim", "tell", "nothing"):
        with pytest.raises(flight.FlightServerError):
            list(raw.do_action(flight.Action(action, body), options))
    with pytest.raises(flight.FlightServerError):
        raw.do_get(flight.Ticket(body), options).read_all()
    descriptor = flight.FlightDescriptor.for_command(body)
    writer, answers = raw.do_put(descriptor, SCHEMA, options)
    writer.done_writing()
    assert answers.read() is None
    with pytest.raises(flight.FlightServerError):
        writer.close()
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
    with pytest.raises(PositionAhead, match="is not there yet"):
        values(client, queue, 0, 1)


def test_a_reader_does_not_wait_long_for_what_its_maker_may_need_its_core_for(node: Node) -> None:
    with NodeClient(node.address, patience_s=60) as client:
        queue, begin = client.create("Hot", SCHEMA), time.monotonic()
        with pytest.raises(PositionAhead):
            values(client, queue, 0, 1)
        assert time.monotonic() - begin < 20


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
