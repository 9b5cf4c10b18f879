"""Calls to a node: a bounded number of connections, timeouts, and another try where that helps.

Every call may be repeated: what a node has done already it only answers again. So a call whose
answer was lost is made again, until it succeeds or the patience is over.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from penstock.exchange import wire
from penstock.exchange.failures import (
    BackupGone,
    ExchangeError,
    NodeBusy,
    NodeGone,
    PositionAhead,
    QueueFull,
    Refused,
    Stranger,
    from_wire,
)
from penstock.exchange.wire import Message, NodeAddress

CALL_S = 10.0
PATIENCE_S = 60.0
CONNECTIONS = 4
_PAUSE_S = (0.02, 1.0)
_PAUSE_SHARE = 0.1  # of the time waited so far: so much longer than necessary at most
_PASSING = (NodeGone, NodeBusy, QueueFull, BackupGone, PositionAhead)  # what another try may cure
_OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 20),
    ("grpc.min_reconnect_backoff_ms", 20),
    ("grpc.max_reconnect_backoff_ms", 200),
]
Answer = TypeVar("Answer")


class Connections:
    """Connections to one node; at most so many at a time, whoever wants more waits."""

    def __init__(
        self,
        address: NodeAddress,
        call_s: float = CALL_S,
        patience_s: float = PATIENCE_S,
        most: int = CONNECTIONS,
    ) -> None:
        self.address = address
        self.call_s = call_s
        self.patience_s = patience_s
        self._slots = threading.BoundedSemaphore(most)
        self._guard = threading.Lock()
        self._idle: list[flight.FlightClient] = []

    @contextmanager
    def one(self) -> Iterator[flight.FlightClient]:
        """A connection; after an error of the network it is not used again."""
        if not self._slots.acquire(timeout=self.patience_s):
            raise NodeBusy(f"all connections to {self.address.uri} are in use")
        try:
            with self._guard:
                client = self._idle.pop() if self._idle else None
            client = client or self._connect()
            try:
                yield client
            except NodeGone:
                client.close()
                raise
            except BaseException:
                self._put_back(client)
                raise
            self._put_back(client)
        finally:
            self._slots.release()

    def _connect(self) -> flight.FlightClient:
        try:
            return flight.FlightClient(self.address.uri, generic_options=_OPTIONS)
        except (pa.ArrowException, ValueError) as error:
            raise Refused(f"{self.address.uri} is not the address of a node: {error}") from None

    def _put_back(self, client: flight.FlightClient) -> None:
        with self._guard:
            self._idle.append(client)

    def options(self) -> flight.FlightCallOptions:
        token = b"Bearer " + self.address.token.encode()
        return flight.FlightCallOptions(timeout=self.call_s, headers=[(b"authorization", token)])

    def call(self, name: str, message: Message) -> dict[str, Any]:
        """One action, tried again until the patience is over."""
        return self.patiently(lambda _: self.call_once(name, message))

    def call_once(self, name: str, message: Message) -> dict[str, Any]:
        with self.one() as client, self.errors():
            results = list(
                client.do_action(flight.Action(name, wire.dump(message)), self.options())
            )
            return dict(wire.parse(results[0].body.to_pybytes()))

    def patiently(self, attempt: Callable[[float], Answer], most_s: float = math.inf) -> Answer:
        """Try until it works or time is up; the attempt is told how many seconds are left."""
        began_s = time.monotonic()
        deadline = began_s + min(self.patience_s, most_s)
        while True:
            try:
                return attempt(deadline - time.monotonic())
            except _PASSING:
                now_s = time.monotonic()
                pause_s = min(max(_PAUSE_S[0], _PAUSE_SHARE * (now_s - began_s)), _PAUSE_S[1])
                if now_s + pause_s > deadline:
                    raise
            time.sleep(pause_s)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of Flight as errors of ours."""
        try:
            yield
        except flight.FlightUnauthenticatedError:
            raise Stranger(
                f"{self.address.uri} does not know this token", "nodes and clients share one"
            ) from None
        except flight.FlightError as error:
            raise from_wire(error.extra_info) or self._gone(error) from None
        except (pa.ArrowException, OSError) as error:
            raise self._gone(error) from None

    def _gone(self, error: Exception) -> ExchangeError:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        return NodeGone(f"{self.address.uri} does not answer: {text:.200}")

    def close(self) -> None:
        with self._guard:
            while self._idle:
                self._idle.pop().close()
