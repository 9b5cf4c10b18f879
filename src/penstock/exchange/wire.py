"""Messages between nodes and their clients: one JSON object, every field checked before use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.exchange.failures import Refused
from penstock.exchange.spec import check_name
from penstock.exchange.state import Key

LONGEST_MESSAGE = 1 << 20
LARGEST_PUT = 64 * 1024 * 1024
LONGEST_WAIT_S = 60.0
MOST = 1 << 62

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueueRef:
    """A queue as its users know it; travels to executors as JSON."""

    name: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node listens, as grpc://host:port, and the token that it asks for."""

    uri: str
    token: str


@dataclass(frozen=True, slots=True)
class PutHeader:
    """What comes before the batches of a put."""

    queue: QueueRef
    key: Key
    last: bool
    nbytes: int
    wait_s: float


def parse(body: bytes) -> Message:
    if len(body) > LONGEST_MESSAGE:
        raise Refused(f"a message of {len(body):,} bytes is too long")
    try:
        message = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Refused("the message is not JSON") from None
    if not isinstance(message, dict):
        raise Refused("the message is not a JSON object")
    return message


def dump(message: Message) -> bytes:
    return json.dumps(message).encode()


def number(message: Message, name: str, most: int = MOST) -> int:
    value = message.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise Refused(f"{name} = {value!r:.50} is not a number from 0 to {most}")
    return value


def flag(message: Message, name: str) -> bool:
    value = message.get(name)
    if type(value) is not bool:
        raise Refused(f"{name} = {value!r:.50} is neither true nor false")
    return value


def seconds(message: Message, name: str) -> float:
    value = message.get(name, 0.0)
    if type(value) not in (int, float) or not 0 <= value <= LONGEST_WAIT_S:
        raise Refused(f"{name} = {value!r:.50} is not between 0 and {LONGEST_WAIT_S:g} seconds")
    return float(value)


def queue_ref(message: Message) -> QueueRef:
    incarnation = message.get("incarnation")
    if not isinstance(incarnation, str):
        raise Refused("the message does not say which queue it means")
    return QueueRef(check_name(message.get("queue")), incarnation)


def put_header(message: Message) -> PutHeader:
    key = Key(
        check_name(message.get("ring")),
        number(message, "batch"),
        number(message, "partition", 1_000_000),
        number(message, "piece", 1_000_000),
    )
    return PutHeader(
        queue_ref(message),
        key,
        flag(message, "last"),
        number(message, "nbytes", LARGEST_PUT),
        seconds(message, "wait_s"),
    )


def start_of(message: Message) -> str | int:
    """Where a new consumer begins."""
    start = message.get("start", "earliest")
    if start in ("earliest", "latest"):
        return str(start)
    return number(message, "start")


def batches_of(message: Message) -> dict[str, int]:
    """The last batch of each ring."""
    rings = message.get("rings", {})
    if not isinstance(rings, dict) or len(rings) > 1000:
        raise Refused("rings is not an object of ring: batch")
    return {check_name(ring): number(rings, ring) for ring in rings}
