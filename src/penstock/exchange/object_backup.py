"""An object store as backup server (s3://, gs://, hdfs://): a chunk is an object.

What the store has confirmed is there for good. An object is written anew whenever its chunk is
handed over, never taken for whole because it exists: a file system that shows files while they are
written may have kept a torn one from a crash. Such a one was never confirmed, so the queue still
has what it would hold, and reading goes over it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import pyarrow as pa
from pyarrow import fs

from penstock.exchange.backup import Chunk, check_id
from penstock.exchange.failures import BackupGone, BatchTooLarge, Refused
from penstock.exchange.frames import Frame, frames_in

_CHUNK = re.compile(r"(\d{20})-(\d{20})\.chunk")


class _Object(NamedTuple):
    first: int
    end: int
    path: str
    size: int


class ObjectBackup:
    """Chunks below a directory of a file system, of at most `limit` bytes in all."""

    def __init__(self, system: fs.FileSystem, root: str, limit: int) -> None:
        self._system = system
        self._root = root.rstrip("/")
        self._limit = limit
        self._guard = threading.Lock()
        self._sizes: dict[str, int] | None = None  # by path; not known before the first call

    @property
    def total_bytes(self) -> int:
        return sum((self._sizes or {}).values())

    def store(self, queue: str, chunk: Chunk) -> None:
        directory = self._directory(queue)
        path = f"{directory}/{chunk.first:020d}-{chunk.end:020d}.chunk"
        with self._guard, self._reached():
            sizes = self._known()
            total = sum(sizes.values()) - sizes.get(path, 0)
            if total + chunk.nbytes > self._limit:
                raise BatchTooLarge(
                    f"the backup in {self._root} is full: {total:,} of {self._limit:,} bytes"
                )
            self._system.create_dir(directory, recursive=True)
            with self._system.open_output_stream(path) as out:
                for frame in chunk.frames:
                    out.write(frame)
            sizes[path] = chunk.nbytes

    def fetch(self, queue: str, start: int, end: int) -> Iterator[Frame]:
        """All frames with positions in the range, in order, as far as they are here."""
        for found in self._objects(queue):
            if found.first < end and start < found.end:
                with self._reached(), self._system.open_input_file(found.path) as file:
                    data = file.read()
                for frame in frames_in(data):
                    if frame is None:
                        break
                    if start < frame.header["first"] + len(frame.header["lengths"]):
                        yield frame

    def trim(self, queue: str, position: int) -> int:
        with self._guard, self._reached():
            sizes, left = self._known(), 0
            for found in self._objects(queue):
                if found.end <= position:
                    self._system.delete_file(found.path)
                    sizes.pop(found.path, None)
                else:
                    left += found.size
            if not left and position:
                with suppress(OSError, pa.ArrowException):
                    if not self._system.get_file_info(_below(self._directory(queue))):
                        self._system.delete_dir(self._directory(queue))
        return left

    def _objects(self, queue: str) -> list[_Object]:
        with self._reached():
            infos = self._system.get_file_info(_below(self._directory(queue)))
        found = [(_CHUNK.fullmatch(info.base_name), info) for info in infos]
        return sorted(
            _Object(int(name[1]), int(name[2]), info.path, info.size)
            for name, info in found
            if name is not None
        )

    def _known(self) -> dict[str, int]:
        if self._sizes is None:
            infos = self._system.get_file_info(_below(self._root, recursive=True))
            self._sizes = {i.path: i.size for i in infos if _CHUNK.fullmatch(i.base_name)}
        return self._sizes

    def _directory(self, queue: str) -> str:
        return f"{self._root}/{check_id(queue)}"

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise BackupGone(f"the backup in {self._root} cannot be used: {error!s:.200}") from None


def _below(directory: str, recursive: bool = False) -> fs.FileSelector:
    return fs.FileSelector(directory, allow_not_found=True, recursive=recursive)


def object_backup_at(uri: str, limit: int) -> ObjectBackup:
    try:
        system, root = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Refused(
            f"{uri} is not a backup server: {error!s:.200}",
            "write grpc://host:port, a directory or a URI such as s3://bucket/directory",
        ) from None
    return ObjectBackup(system, root, limit)
