"""Text files as blocks of whole lines; a line is a record.

A block is decoded as a whole by Arrow. Where Arrow refuses, or where what it says cannot be one
record per line, the block is halved until few lines are left, and those are decoded one by one.
As a line is a record, cutting between lines never changes the result: both ways must give the same
rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.sources.chunks import BadRecord, Chunk, bad_batch
from penstock.runtime.sources.parsing import parse_texts, reason_for
from penstock.schema import Field, arrow_type

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_FEW_LINES = 128


class Irregular(Exception):
    """The fast way cannot vouch for these lines."""


class Unreadable(Exception):
    """The file as a whole makes no sense; the text says why."""


class Damaged(Exception):
    """The bytes stop making sense somewhere; the text says where."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a block that are not empty: their places in it, their numbers in the file."""

    block: bytes
    starts: np.ndarray
    ends: np.ndarray
    numbers: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, index: int) -> bytes:
        return self.block[self.starts[index] : self.ends[index]]

    def bad(self, index: int, reason: str) -> BadRecord:
        return BadRecord(
            int(self.numbers[index]), self.raw(index).decode("utf-8", "replace"), reason
        )

    def part(self, low: int, high: int) -> Lines:
        begin = self.starts[low]
        return Lines(
            self.block[begin : self.ends[high - 1]],
            self.starts[low:high] - begin,
            self.ends[low:high] - begin,
            self.numbers[low:high],
        )


@dataclass(frozen=True, slots=True)
class Decoded:
    """Columns in the order asked for (texts, or values of the final type), the lines that their
    rows come from (None: all of them), and the lines refused so far."""

    columns: list[pa.Array]
    kept: np.ndarray | None
    bad: list[BadRecord]


class Decoder(Protocol):
    @property
    def fields(self) -> tuple[Field, ...]: ...

    def fast(self, lines: Lines) -> Decoded: ...

    def slow(self, lines: Lines) -> Decoded: ...


def index_lines(block: bytes, first_number: int = 1) -> tuple[Lines, int]:
    """The lines and the number of the line after the block; a line ends with LF or CRLF, the last
    one may have no end."""
    content = np.frombuffer(block, dtype=np.uint8)
    breaks = np.flatnonzero(content == 10)
    starts = np.concatenate([[0], breaks + 1])
    ends = np.concatenate([breaks, [len(block)]])
    if b"\r" in block:
        before = content[np.maximum(ends - 1, 0)]
        ends = ends - ((before == 13) & (ends > starts))
    filled = np.flatnonzero(ends > starts)
    lines = Lines(block, starts[filled], ends[filled], filled + first_number)
    return lines, first_number + len(breaks)


def read_blocks(stream: pa.NativeFile) -> Iterator[bytes]:
    """Blocks that end at a line's end.

    A line longer than LONGEST_LINE is given as its beginning, so that memory stays bounded.
    """
    rest, skipping = b"", False
    while data := stream.read(BLOCK_BYTES):
        if skipping:
            cut = data.find(b"\n")
            if cut < 0:
                continue
            data, skipping = data[cut:], False
        cut = data.rfind(b"\n") + 1
        if cut:
            block, rest = rest + data[:cut], data[cut:]
            yield block
        else:
            rest += data
            if len(rest) > LONGEST_LINE:
                yield rest
                rest, skipping = b"", True
    if rest:
        yield rest


def read_lines(
    file: str, blocks: Iterable[bytes], number: int, decoder: Decoder, schema: pa.Schema
) -> Iterator[Chunk]:
    """Decode blocks, the first beginning with line `number`; Damaged if the bytes end too early."""
    remaining = iter(blocks)
    while True:
        try:
            block = next(remaining, None)
        except (OSError, pa.ArrowException) as error:
            raise Damaged(f"the file is damaged at or after line {number}: {error}") from error
        if block is None:
            return
        lines, number = index_lines(block, number)
        if len(lines):
            yield decode(file, lines, decoder, schema)


def decode(file: str, lines: Lines, decoder: Decoder, schema: pa.Schema) -> Chunk:
    parts = list(_decode_parts(lines, decoder, schema))
    batches = [batch for batch, _ in parts]
    bad = [record for _, records in parts for record in records]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return Chunk(batch, bad_batch(file, sorted(bad, key=lambda record: record.position)))


def _decode_parts(
    lines: Lines, decoder: Decoder, schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, list[BadRecord]]]:
    try:
        decoded = decoder.fast(lines)
    except (pa.ArrowInvalid, Irregular, UnicodeDecodeError):
        if len(lines) > _FEW_LINES:
            middle = len(lines) // 2
            yield from _decode_parts(lines.part(0, middle), decoder, schema)
            yield from _decode_parts(lines.part(middle, len(lines)), decoder, schema)
            return
        decoded = decoder.slow(lines)
    yield finish(lines, decoded, decoder.fields, schema)


def finish(
    lines: Lines, decoded: Decoded, fields: tuple[Field, ...], schema: pa.Schema
) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Texts become values; a record with a bad value leaves the batch."""
    kept = np.arange(len(lines)) if decoded.kept is None else decoded.kept
    values: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for field, column in zip(fields, decoded.columns, strict=True):
        if column.type == arrow_type(field.type):
            values.append(column)
            continue
        parsed, refused = parse_texts(column, field.type)
        values.append(parsed)
        if refused is not None:
            for row in np.flatnonzero(refused).tolist():
                if row not in reasons:
                    reasons[row] = reason_for(field.name, column[row].as_py(), field.type)
    batch = pa.RecordBatch.from_arrays(values, schema=schema)
    if not reasons:
        return batch, decoded.bad
    good = np.ones(len(kept), dtype=bool)
    good[list(reasons)] = False
    refused_lines = [lines.bad(int(kept[row]), reason) for row, reason in reasons.items()]
    return batch.filter(pa.array(good)), [*decoded.bad, *refused_lines]


def check_utf8(lines: Lines) -> None:
    """UnicodeDecodeError unless all of the block is UTF-8, also where no column is taken from."""
    if not lines.block.isascii():
        lines.block.decode("utf-8")


def one_array(column: pa.ChunkedArray) -> pa.Array:
    return (
        column.chunk(0) if column.num_chunks == 1 else pc.cast(column, column.type).combine_chunks()
    )
