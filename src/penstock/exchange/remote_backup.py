"""Another node as backup server: chunks travel as batches of one binary column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import flight

from penstock.exchange import wire
from penstock.exchange.backup import BackupStore, Chunk, DirectoryBackup
from penstock.exchange.connection import Connections
from penstock.exchange.failures import BackupGone, ExchangeError, NodeBusy, NodeGone
from penstock.exchange.frames import Frame, decode_frame
from penstock.exchange.object_backup import object_backup_at
from penstock.exchange.wire import NodeAddress

FRAMES = pa.schema([("frame", pa.large_binary())])
_CALL_S = 10.0


class NodeBackup:
    def __init__(self, address: NodeAddress) -> None:
        self._to = Connections(address, call_s=_CALL_S)

    def store(self, queue: str, chunk: Chunk) -> None:
        header = {"backup": queue, "first": chunk.first, "end": chunk.end}
        descriptor = flight.FlightDescriptor.for_command(wire.dump(header))
        try:
            with self._to.one() as client, self._to.errors():
                writer, answers = client.do_put(descriptor, FRAMES, self._to.options())
                with writer:
                    for frame in chunk.frames:
                        writer.write_batch(packed(frame))
                    writer.done_writing()
                    if answers.read() is None:
                        raise NodeGone("the backup server did not confirm")
        except (NodeGone, NodeBusy) as error:
            raise BackupGone(error.message) from None

    def fetch(self, queue: str, start: int, end: int) -> Iterator[Frame]:
        ticket = flight.Ticket(wire.dump({"backup": queue, "start": start, "end": end}))
        try:
            with self._to.one() as client, self._to.errors():
                reader = client.do_get(ticket, self._to.options())
                for chunk in reader:
                    frame = decode_frame(memoryview(chunk.data.column(0)[0].as_buffer()))
                    if frame is None:
                        raise BackupGone("the backup server sent a damaged frame")
                    yield frame
        except (NodeGone, NodeBusy) as error:
            raise BackupGone(error.message) from None

    def trim(self, queue: str, position: int) -> int:
        try:
            answer = self._to.call_once("backup_trim", {"id": queue, "position": position})
        except (NodeGone, NodeBusy) as error:
            raise BackupGone(error.message) from None
        return int(answer["bytes"])


def packed(frame: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([frame], pa.large_binary())], schema=FRAMES)


def backup_at(uri: str, token: str, limit: int) -> BackupStore:
    """The backup server that a URI names: grpc://host:port, a directory or an object store."""
    parts = urlsplit(uri)
    if parts.scheme == "grpc":
        return NodeBackup(NodeAddress(uri, token))
    if parts.scheme in ("", "file"):
        root = Path(unquote(parts.path)).absolute()
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExchangeError(f"cannot use {root} as backup: {error.strerror}") from None
        return DirectoryBackup(root, limit)
    return object_backup_at(uri, limit)
