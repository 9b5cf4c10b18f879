"""Frames: records in a file, such that a torn or damaged one is seen.

magic (4) | header bytes (4) | payload bytes (8) | CRC-32 of the rest and both lengths (4)
header: one JSON object
payload: Arrow IPC messages, one after the other
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Piece = bytes | memoryview

_HEAD = struct.Struct("<4sIQI")
_LENGTHS = struct.Struct("<IQ")
_MAGIC = b"PSQ1"
_LONGEST_HEADER = 64 * 1024 * 1024
HEAD_BYTES = _HEAD.size


@dataclass(frozen=True, slots=True)
class Frame:
    header: dict[str, Any]
    payload: memoryview
    length: int


def encode_frame(header: dict[str, Any], payload: Sequence[Piece] = ()) -> list[Piece]:
    """The parts of a frame, to be written one after the other."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(HEAD_BYTES + len(text)) % 8)  # Arrow wants its buffers aligned
    payload_bytes = sum(len(part) for part in payload)
    crc = checksum([_LENGTHS.pack(len(text), payload_bytes), text, *payload])
    return [_HEAD.pack(_MAGIC, len(text), payload_bytes, crc), text, *payload]


def checksum(parts: Iterable[Piece]) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def decode_frame(data: Piece) -> Frame | None:
    """The frame that the data begins with; None if it is not whole or not what was written."""
    view = memoryview(data)
    length = frame_length(view)
    if length is None or length > view.nbytes:
        return None
    _, header_bytes, payload_bytes, crc = _HEAD.unpack_from(view)
    body = view[HEAD_BYTES:length]
    if checksum([_LENGTHS.pack(header_bytes, payload_bytes), body]) != crc:
        return None
    return Frame(json.loads(bytes(body[:header_bytes])), body[header_bytes:], length)


def frame_length(head: Piece) -> int | None:
    """How long the frame with this head is; None if there is no such head."""
    if len(head) < HEAD_BYTES:
        return None
    magic, header_bytes, payload_bytes, _ = _HEAD.unpack_from(head)
    if magic != _MAGIC or header_bytes > _LONGEST_HEADER:
        return None
    return int(HEAD_BYTES + header_bytes + payload_bytes)


def frames_in(data: Piece) -> Iterator[Frame | None]:
    """All frames; a last None if something else follows them."""
    rest = memoryview(data)
    while rest.nbytes:
        frame = decode_frame(rest)
        yield frame
        if frame is None:
            return
        rest = rest[frame.length :]
