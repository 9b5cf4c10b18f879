"""What a ring's sink and source need of a node.

A sink: every task puts the batches of its partition, then the driver commits the micro-batch with
the number of partitions. A source: the driver asks for the latest position, tasks fetch ranges, the
driver acknowledges them as delivered (level 0) and, when they are safe, as done with (level 1).
Queues are named by a `QueueRef`, which travels to the tasks together with the `NodeAddress`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.control.backup import Mode, Trigger
from penstock.exchange import wire
from penstock.exchange.connection import CALL_S, CONNECTIONS, PATIENCE_S, Connections
from penstock.exchange.failures import (
    BackupGone,
    BatchTooLarge,
    NodeBusy,
    NodeGone,
    PositionAhead,
)
from penstock.exchange.pieces import BATCH_BYTES, Piece, pieces_of
from penstock.exchange.spec import DEFAULT_CAPACITY
from penstock.exchange.wire import LONGEST_WAIT_S, NodeAddress, QueueRef

# That a reader waits for what is made again: its maker may need the core that it has meanwhile.
_AHEAD_S = 2.0
_ABSENT = (NodeGone, NodeBusy, BackupGone)
_WAITING_SHARE = 0.5  # of a call's time that a node may wait for room


@dataclass(frozen=True, slots=True)
class Committed:
    """Positions of a batch, None if it is long gone; safe: where a replay may begin after."""

    first: int | None
    end: int | None
    safe: SafePoint | None


@dataclass(frozen=True, slots=True)
class SafePoint:
    """The last batch of a ring that all consumers are done with, and the position at its end.

    Whoever keeps the newest one can make the queue again after its node lost its directory.
    """

    batch: int
    position: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a consumer: received up to, and done with up to."""

    delivered: int
    safe: int


class NodeClient:
    """A connection to a node; may be shared by threads, and made anew in every process."""

    def __init__(
        self,
        address: NodeAddress,
        call_s: float = CALL_S,
        patience_s: float = PATIENCE_S,
        connections: int = CONNECTIONS,
    ) -> None:
        self._to = Connections(address, call_s, patience_s, connections)

    def create(
        self,
        name: str,
        schema: pa.Schema,
        mode: Mode = "adaptive",
        capacity: int = DEFAULT_CAPACITY,
        trigger: Trigger = "overflow",
        entry: bool = False,
        backup: str = "",
        after: Mapping[str, SafePoint] | None = None,
        incarnation: str = "",
    ) -> QueueRef:
        """Make a queue, or take the one that is there.

        backup: its backup server, as grpc://host:port or a directory; empty: the node's own.
        after: of a queue that was lost, the safe point of each ring that writes to it. It begins
        there, rings replay from the next batch on, and all get the positions that they had. With
        the incarnation that it had, consumers need not know.
        """
        points = dict(after or {})
        message = {
            "name": name,
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
            "mode": mode,
            "capacity": capacity,
            "trigger": trigger,
            "entry": entry,
            "incarnation": incarnation,
            "backup": backup,
            "position": max((point.position for point in points.values()), default=0),
            "rings": {ring: point.batch for ring, point in points.items()},
        }
        return QueueRef(name, self._to.call("create", message)["incarnation"])

    def open(self, name: str) -> QueueRef:
        """The queue of that name; QueueUnknown if there is none."""
        return QueueRef(name, self._to.call("open", {"queue": name})["incarnation"])

    def schema_of(self, name: str) -> pa.Schema:
        """The schema of the queue of that name."""
        text = self._to.call("open", {"queue": name})["schema"]
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))

    def drop(self, queue: QueueRef) -> None:
        self._call("drop", queue)

    def put(
        self,
        queue: QueueRef,
        ring: str,
        batch: int,
        partition: int,
        schema: pa.Schema,
        batches: Iterable[pa.RecordBatch],
        batch_bytes: int = BATCH_BYTES,
    ) -> int:
        """Deliver a partition, in pieces of bounded size; how many rows it has.

        Waits while the queue is full. Partitions without rows are delivered, too. Record batches
        of more than `batch_bytes` are cut.
        """
        rows = 0
        key = {"ring": ring, "batch": batch, "partition": partition}
        for piece in pieces_of(batches, batch_bytes=batch_bytes):
            self._to.patiently(partial(self._put_piece, {**_named(queue), **key}, schema, piece))
            rows += piece.rows
        return rows

    def _put_piece(
        self, key: dict[str, Any], schema: pa.Schema, piece: Piece, left_s: float
    ) -> None:
        if piece.nbytes > wire.LARGEST_PUT:
            raise BatchTooLarge(f"a single tuple has {piece.nbytes:,} bytes")
        wait_s = min(_WAITING_SHARE * self._to.call_s, max(0.0, left_s), LONGEST_WAIT_S)
        about = {"piece": piece.number, "last": piece.last, "nbytes": piece.nbytes}
        self._put_once({**key, **about, "wait_s": wait_s}, schema, piece.batches)

    def _put_once(
        self, message: Mapping[str, Any], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> None:
        descriptor = flight.FlightDescriptor.for_command(wire.dump(message))
        with self._to.one() as client, self._to.errors():
            writer, answers = client.do_put(descriptor, schema, self._to.options())
            with writer:
                for batch in batches:
                    writer.write_batch(batch)
                writer.done_writing()
                if answers.read() is None:
                    raise NodeGone(f"{self._to.address.uri} did not confirm an append")

    def commit(self, queue: QueueRef, ring: str, batch: int, partitions: int) -> Committed:
        """Make a micro-batch visible, all partitions at once; doing it again changes nothing."""
        answer = self._call("commit", queue, ring=ring, batch=batch, partitions=partitions)
        safe = answer["safe"]
        return Committed(answer["first"], answer["end"], None if safe is None else SafePoint(*safe))

    def abandon(self, queue: QueueRef, ring: str) -> None:
        """Forget what a ring put and will not commit."""
        self._call("abandon", queue, ring=ring)

    def register(self, queue: QueueRef, consumer: str, start: str | int = "earliest") -> Progress:
        """Have tuples kept from `start` on: earliest, latest or a position; or from where it is."""
        return Progress(**self._call("register", queue, consumer=consumer, start=start))

    def unregister(self, queue: QueueRef, consumer: str) -> None:
        self._call("unregister", queue, consumer=consumer)

    def latest(self, queue: QueueRef) -> int:
        """The position after the last visible batch."""
        return int(self.describe(queue)["end"])

    def next_end(self, queue: QueueRef, start: int, most: int) -> int:
        """Up to where to read on: whole batches of rings, about so many positions at most."""
        return int(self._call("next", queue, start=start, most=most)["end"])

    def fetch(self, queue: QueueRef, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches [start, end) with their positions; after a broken connection it goes on."""
        while start < end:
            try:
                for position, batch in self._fetch_once(queue, start, end):
                    yield position, batch
                    start = position + 1
                return
            except _ABSENT:
                self._to.patiently(partial(self._probe, queue, start))
            except PositionAhead:
                with suppress(*_ABSENT):  # which is waited for above, for longer
                    self._to.patiently(partial(self._probe, queue, end - 1), _AHEAD_S)

    def _fetch_once(
        self, queue: QueueRef, start: int, end: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        ticket = flight.Ticket(wire.dump({**_named(queue), "start": start, "end": end}))
        with self._to.one() as client, self._to.errors():
            for chunk in client.do_get(ticket, self._to.options()):
                yield int.from_bytes(chunk.app_metadata.to_pybytes(), "little"), chunk.data

    def _probe(self, queue: QueueRef, position: int, left_s: float) -> None:
        """Whether the node, and the backup server if it is needed, give the next batch."""
        for _ in self._fetch_once(queue, position, position + 1):
            return

    def acknowledge(self, queue: QueueRef, consumer: str, position: int, level: int) -> int:
        """Level 0: everything below was received; level 1: it is safe. Where the queue begins."""
        answer = self._call("ack", queue, consumer=consumer, position=position, level=level)
        return int(answer["first"])

    def describe(self, queue: QueueRef) -> dict[str, Any]:
        """Length, rates, mode, consumers, backup: all figures of a queue."""
        return self._call("describe", queue)

    def hand_over(self, queue: QueueRef) -> int:
        """Hand over to the backup server now; how many bytes went."""
        return int(self._call("backup", queue)["bytes"])

    def trim(self, queue: QueueRef) -> int:
        return int(self._call("trim", queue)["first"])

    def tell(self, uri: str) -> None:
        """Have the node tell another one whenever an entry of it is loaded."""
        self._to.call("tell", {"uri": uri})

    def stats(self) -> dict[str, Any]:
        """Figures of the node and all its queues."""
        return self._to.call("stats", {})

    def _call(self, name: str, queue: QueueRef, **about: Any) -> dict[str, Any]:
        return self._to.call(name, {**_named(queue), **about})

    def close(self) -> None:
        self._to.close()

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _named(queue: QueueRef) -> dict[str, Any]:
    return {"queue": queue.name, "incarnation": queue.incarnation}
