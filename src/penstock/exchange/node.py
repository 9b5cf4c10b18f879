"""A node: its queues behind an Arrow Flight service.

DoPut appends a piece or takes a chunk as backup, DoGet reads a range, actions do the rest (`Queues`
names them). Every call must bring the token. Whoever does not, or sends what makes no sense, gets
an error, and nothing changes.
"""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.exchange import wire
from penstock.exchange.backup import Chunk
from penstock.exchange.failures import (
    BatchTooLarge,
    DiskFailed,
    ExchangeError,
    NodeBusy,
    Refused,
    to_wire,
)
from penstock.exchange.frames import Frame, decode_frame, encode_frame
from penstock.exchange.queues import Queues
from penstock.exchange.remote_backup import FRAMES, packed
from penstock.exchange.wire import LARGEST_PUT, Message, NodeAddress

MOST_WAITING = 64
_SLACK = 4096  # bytes that a batch may be larger here than its sender said


class _Token(flight.ServerMiddlewareFactory):
    def __init__(self, token: str) -> None:
        self._expected = b"Bearer " + token.encode()

    def start_call(self, info: Any, headers: dict[str, list[Any]]) -> None:
        given = headers.get("authorization", [])
        sent = given[0] if len(given) == 1 else ""
        sent = sent.encode() if isinstance(sent, str) else sent
        if not hmac.compare_digest(sent, self._expected):
            raise flight.FlightUnauthenticatedError("wrong token")


class Node(flight.FlightServerBase):
    """Listens from the moment it is made; on loopback unless another host is given."""

    def __init__(
        self,
        queues: Queues,
        token: str,
        host: str = "127.0.0.1",
        port: int = 0,
        patience_s: float = 0.0,
    ) -> None:
        _check_free(host, port, patience_s)
        self._queues = queues
        self._calls = queues.calls()
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)
        location = f"grpc://{host}:{port}"
        super().__init__(location, middleware={"token": _Token(token)})
        self.address = NodeAddress(f"grpc://{host}:{self.port}", token)

    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        with _told():
            call = self._calls.get(action.type)
            if call is None:
                raise Refused(f"a node does not know {action.type!r:.50}")
            return [wire.dump(call(wire.parse(action.body.to_pybytes())))]

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with _told():
            message = wire.parse(descriptor.command or b"")
            take = self._store if "backup" in message else self._put
            writer.write(pa.py_buffer(wire.dump(take(message, reader))))

    def _put(self, message: Message, reader: Any) -> Message:
        header = wire.put_header(message)
        queue = self._queues.find(header.queue)
        if not reader.schema.equals(queue.spec.schema):
            raise Refused(f"the tuples are not of the schema of queue {queue.spec.name}")
        with self._slot(), queue.room(header.key, header.nbytes, header.wait_s):
            messages, rows = [], 0
            for batch in _bounded(reader, header.nbytes + _SLACK):
                batch.validate()
                messages.append(memoryview(batch.serialize()))
                rows += batch.num_rows
            receipt = queue.append(header.key, messages, rows, header.last)
        return {"seen": receipt.seen, "first": receipt.first, "end": receipt.end}

    def _store(self, message: Message, reader: Any) -> Message:
        if not reader.schema.equals(FRAMES):
            raise Refused("a backup consists of frames")
        chunk = _chunk_of(message, _bounded(reader, LARGEST_PUT))
        self._queues.backups.store(str(message["backup"]), chunk)
        return {}

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.GeneratorStream:
        with _told():
            message = wire.parse(ticket.ticket)
            start, end = wire.number(message, "start"), wire.number(message, "end")
            if "backup" in message:
                found = self._queues.backups.fetch(str(message["backup"]), start, end)
                return flight.GeneratorStream(FRAMES, _frames(found))
            ref = wire.queue_ref(message)
            batches = self._queues.read(ref, start, end)
            return flight.GeneratorStream(self._queues.find(ref).spec.schema, _chunks(batches))
        raise AssertionError("unreachable")

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._waiting.acquire(blocking=False):
            raise NodeBusy(f"{MOST_WAITING} appends are under way on this node")
        try:
            yield
        finally:
            self._waiting.release()

    def stop(self) -> None:
        """Answer what waits with an error, then close the files."""
        self._queues.close()
        self.shutdown()


@contextmanager
def _told() -> Iterator[None]:
    """Whatever goes wrong reaches the caller as one of our errors, without a traceback."""
    try:
        yield
    except ExchangeError as error:
        raise flight.FlightServerError(error.message, to_wire(error)) from None
    except flight.FlightError:
        raise
    except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
        refused = Refused(f"the message cannot be read: {error!s:.200}")
        raise flight.FlightServerError(refused.message, to_wire(refused)) from None
    except OSError as error:
        failed = DiskFailed(str(error.strerror or error))
        raise flight.FlightServerError(failed.message, to_wire(failed)) from None


def _bounded(reader: Any, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batches of a put; one that is larger than was said is refused as soon as that shows."""
    total = 0
    for chunk in reader:
        if chunk.data is None:
            raise Refused("a put consists of batches")
        total += pa.ipc.get_record_batch_size(chunk.data)
        if total > most_bytes:
            raise BatchTooLarge(f"more than {most_bytes:,} bytes, as announced or allowed")
        yield chunk.data


def _chunk_of(message: Message, batches: Iterator[pa.RecordBatch]) -> Chunk:
    """A chunk whose frames are whole and hold just the positions that it names."""
    first, end = wire.number(message, "first"), wire.number(message, "end")
    frames, position = [], first
    for batch in batches:
        for value in batch.column(0).to_pylist():
            frame = decode_frame(value)
            if frame is None or frame.header.get("first") != position:
                raise Refused("a frame of the backup is damaged")
            position += len(frame.header["lengths"])
            frames.append(value)
    if position != end or first == end:
        raise Refused(f"the backup's frames are not those of [{first}, {end})")
    return Chunk(first, end, tuple(frames))


def _chunks(batches: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[Any]:
    """Each batch with its position, as eight bytes."""
    with _told():
        for position, batch in batches:
            yield batch, pa.py_buffer(position.to_bytes(8, "little"))


def _frames(frames: Iterator[Frame]) -> Iterator[pa.RecordBatch]:
    with _told():
        for frame in frames:
            yield packed(b"".join(encode_frame(frame.header, [frame.payload])))


def _check_free(host: str, port: int, patience_s: float) -> None:
    """Flight says only that it could not start, and writes to stderr."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, place = found[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
            return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise ExchangeError(
                    f"cannot listen on {host}:{port}: {error.strerror}",
                    "choose another --host or --port",
                ) from None
            time.sleep(0.01)
