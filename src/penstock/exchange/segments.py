"""A log of frames in numbered files, each of which begins with a frame that says where it starts.

Appends go to the last file. A write that fails is cut off again, and what a crash left of one is
cut off when the log is opened: only the last file can have such an end, for a file is flushed to
the disk before the next one is begun. Files go from the front, after what allows it is on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.exchange.failures import DiskFailed
from penstock.exchange.frames import (
    HEAD_BYTES,
    Frame,
    Piece,
    decode_frame,
    encode_frame,
    frame_length,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame lies."""

    segment: int
    offset: int
    length: int


class SegmentLog:
    """The files of one directory; not thread-safe, its owner has a lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[int, int] = {}  # file descriptors
        self._sizes: dict[int, int] = {}
        self._broken: str | None = None

    @property
    def last(self) -> int:
        return max(self._files)

    @property
    def first(self) -> int:
        return min(self._files)

    @property
    def last_bytes(self) -> int:
        return self._sizes[self.last]

    @property
    def disk_bytes(self) -> int:
        return sum(self._sizes.values())

    def recover(self) -> Iterator[tuple[Place, Frame]]:
        """Open all files and go through their frames; the torn end of the last one is cut off."""
        numbers = sorted(int(path.stem) for path in self._directory.glob("*.log"))
        for number in numbers:
            file = os.open(self._path(number), os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            size = os.fstat(file).st_size
            self._files[number], self._sizes[number] = file, size
            offset = 0
            while (frame := _frame_at(file, offset)) is not None:
                yield Place(number, offset, frame.length), frame
                offset += frame.length
            if offset < size and number != numbers[-1]:
                raise DiskFailed(
                    f"{self._path(number)} is damaged at byte {offset}",
                    "what follows cannot be trusted: drop the queue and replay its upstream",
                )
            if offset < size:
                os.ftruncate(file, offset)
                self._sizes[number] = offset
            if offset == 0 and number != numbers[0]:
                self._remove(number)  # the crash came before its first frame was whole

    def begin_segment(self, header: dict[str, Any]) -> None:
        """Go on in a new file, which starts with this frame."""
        number = self.last + 1 if self._files else 0
        with _as_disk_failure(f"cannot begin {self._path(number)}"):
            if self._files:
                os.fdatasync(self._files[self.last])
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            file = os.open(self._path(number), flags, 0o600)
        try:
            with _as_disk_failure(f"cannot write {self._path(number)}"):
                size = _write_all(file, encode_frame(header))
                os.fdatasync(file)
                sync_directory(self._directory)
        except DiskFailed:
            os.close(file)
            self._path(number).unlink(missing_ok=True)
            raise
        self._files[number], self._sizes[number] = file, size

    def append(
        self, header: dict[str, Any], payload: Sequence[Piece] = (), sync: bool = False
    ) -> Place:
        """Write a frame. It outlives the process; the machine, too, with all before it, if `sync`.

        After an error nothing of it is there.
        """
        if self._broken is not None:
            raise DiskFailed(self._broken, "restart the node: it goes on from what is whole")
        number = self.last
        file, before = self._files[number], self._sizes[number]
        try:
            written = _write_all(file, encode_frame(header, payload))
            if sync:
                os.fdatasync(file)
        except OSError as error:
            self._cut(number, before)
            raise DiskFailed(f"cannot write {self._path(number)}: {error.strerror}") from None
        self._sizes[number] = before + written
        return Place(number, before, written)

    def _cut(self, number: int, size: int) -> None:
        try:
            os.ftruncate(self._files[number], size)
        except OSError as error:
            self._broken = f"cannot cut {self._path(number)}: {error.strerror}"

    def read(self, place: Place) -> Frame:
        data = _read_exactly(self._files[place.segment], place.offset, place.length)
        frame = decode_frame(data)
        if frame is None:
            raise DiskFailed(f"{self._path(place.segment)} is damaged at byte {place.offset}")
        return frame

    def remove_before(self, number: int) -> None:
        """Remove files that nothing refers to any more."""
        old = [n for n in sorted(self._files) if n < min(number, self.last)]
        if old:
            with _as_disk_failure("cannot flush the queue's file"):
                os.fdatasync(self._files[self.last])
            for n in old:
                self._remove(n)

    def _remove(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)
        os.close(self._files.pop(number))
        del self._sizes[number]

    def close(self) -> None:
        for file in self._files.values():
            with suppress(OSError):
                os.close(file)
        self._files.clear()

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:012d}.log"


@contextmanager
def _as_disk_failure(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskFailed(f"{what}: {error.strerror}") from None


def write_whole(path: Path, parts: Sequence[Piece]) -> None:
    """Write a file so that it is seen complete or not at all, and stays."""
    beside = path.with_name(f".{path.name}.tmp")
    with _as_disk_failure(f"cannot write {path}"):
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, parts)
            os.fsync(file)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        os.replace(beside, path)
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    file = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _write_all(file: int, parts: Sequence[Piece]) -> int:
    total = 0
    for part in parts:
        rest = memoryview(part)
        total += rest.nbytes
        while rest.nbytes:
            rest = rest[os.write(file, rest) :]
    return total


def _frame_at(file: int, offset: int) -> Frame | None:
    length = frame_length(_read_exactly(file, offset, HEAD_BYTES))
    if length is None or offset + length > os.fstat(file).st_size:
        return None
    return decode_frame(_read_exactly(file, offset, length))


def _read_exactly(file: int, offset: int, length: int) -> bytes:
    """So many bytes, or fewer at the end of the file."""
    found = b""
    while more := os.pread(file, length - len(found), offset + len(found)):
        found = found + more if found else more
    return found
