"""Backup servers: what queues hand over, in files of whole frames, on this node's disk or another.

A chunk is a file named by its positions, so that handing over the same one twice changes nothing.
It is flushed to the disk before it is confirmed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.exchange.failures import BackupGone, BatchTooLarge, DiskFailed, Refused
from penstock.exchange.frames import Frame, frames_in
from penstock.exchange.segments import write_whole

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.#-]{0,200}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Frames with the batches of positions [first, end)."""

    first: int
    end: int
    frames: tuple[bytes, ...]

    @property
    def nbytes(self) -> int:
        return sum(len(frame) for frame in self.frames)


class BackupStore(Protocol):
    """Where chunks of queues are kept; raises BackupGone when it cannot be reached."""

    def store(self, queue: str, chunk: Chunk) -> None: ...

    def fetch(self, queue: str, start: int, end: int) -> Iterator[Frame]: ...

    def trim(self, queue: str, position: int) -> int:
        """Forget what lies below; returns how many bytes are left."""
        ...


class DirectoryBackup:
    """Chunks below a directory, of at most `limit` bytes in all."""

    def __init__(self, root: Path, limit: int) -> None:
        self._root = root
        self._limit = limit
        self._guard = threading.Lock()
        sizes = [path.stat().st_size for path in root.glob("*/*.chunk")]
        self._total = sum(sizes)

    @property
    def total_bytes(self) -> int:
        return self._total

    def store(self, queue: str, chunk: Chunk) -> None:
        directory = self._directory(queue)
        path = directory / f"{chunk.first:020d}-{chunk.end:020d}.chunk"
        with self._guard:
            if path.exists():
                return
            if self._total + chunk.nbytes > self._limit:
                raise BatchTooLarge(
                    f"the backup in {self._root} is full: {self._total:,} of {self._limit:,} bytes"
                )
            try:
                directory.mkdir(parents=True, exist_ok=True)
                write_whole(path, chunk.frames)
            except (OSError, DiskFailed) as error:
                raise BackupGone(f"the backup in {self._root} cannot be written: {error}") from None
            self._total += chunk.nbytes

    def fetch(self, queue: str, start: int, end: int) -> Iterator[Frame]:
        """All frames with positions in the range, in order, as far as they are here."""
        for path, first, last in self._chunks(queue):
            if first < end and start < last:
                try:
                    data = path.read_bytes()
                except OSError as error:
                    raise BackupGone(f"{path} cannot be read: {error.strerror}") from None
                for frame in frames_in(data):
                    if frame is None:
                        raise BackupGone(f"{path} is damaged")
                    if start < frame.header["first"] + len(frame.header["lengths"]):
                        yield frame

    def trim(self, queue: str, position: int) -> int:
        left = 0
        with self._guard:
            for path, _, end in self._chunks(queue):
                try:
                    size = path.stat().st_size
                    if end <= position:
                        path.unlink()
                        self._total -= size
                    else:
                        left += size
                except OSError as error:
                    raise BackupGone(f"{path} cannot be removed: {error.strerror}") from None
            if not left:
                _remove_empty(self._directory(queue))
        return left

    def _chunks(self, queue: str) -> list[tuple[Path, int, int]]:
        """Files with their ranges, by position.

        A chunk may begin inside another one: after a crash before its confirmation, more or fewer
        frames go with it when it is handed over again. They hold the same.
        """
        found = []
        for path in sorted(self._directory(queue).glob("*.chunk")):
            first, _, end = path.stem.partition("-")
            found.append((path, int(first), int(end)))
        return found

    def _directory(self, queue: str) -> Path:
        return self._root / check_id(queue)


def check_id(queue: str) -> str:
    """What a queue's backup is called; also the name of a directory."""
    if not _ID.fullmatch(queue):
        raise Refused(f"{queue!r:.120} is not the id of a queue")
    return queue


def _remove_empty(directory: Path) -> None:
    """Remove a queue's directory with what a crash left of its chunks; foreign files stay."""
    with suppress(OSError):
        for path in directory.glob(".*.chunk.tmp"):
            path.unlink()
        directory.rmdir()
