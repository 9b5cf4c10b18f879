"""One bucket of a JOIN ring in one micro-batch: what to keep, what to join now, what later.

Arriving tuples always become chunks of the state. They are joined at once, unless the bucket was
flushed: then they wait for a round, in which its tables are made again from the state. A turn that
has found as many results as a micro-batch should carry leaves the rest to rounds too. Where inputs
never pause, what waits has its turn after a number of micro-batches.

Results are a function of the state before and of what arrived. What a worker has in memory decides
only what a turn costs, and whether the bucket is flushed for the turns after it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.jit import Ints
from penstock.kernels.join_bucket import (
    SLOTS,
    TIME,
    Combinations,
    JoinBucket,
    Windows,
    most_frequent,
)
from penstock.kernels.join_slots import wanted_by
from penstock.kernels.key_bucket import KeyBucket, counts_suffice
from penstock.runtime.joining.book import Book, Chunk
from penstock.runtime.joining.chunk_codec import from_blob, to_blob
from penstock.runtime.joining.monitor import BucketFigures
from penstock.runtime.joining.tables import Place, Warm, WarmTables
from penstock.runtime.joining.windows import too_many_windows

MOST_BYTES = 2**27  # of results of one turn: Spark holds them all at once
_PROMPT = 8  # times as many where results cannot wait
MOST_AT_ONCE = MOST_BYTES * _PROMPT
_SMALL = 2**16  # bytes of blobs that become one chunk
_MOST_RAW_BYTES = 2**26  # of tuples that become one
_EXPECTED = 2**20  # tuples for which room is made at once


class ChunkStore(Protocol):
    """The tuples of a bucket's state."""

    def get(self, number: int) -> bytes: ...

    def put(self, number: int, tuples: bytes) -> None: ...

    def remove(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a micro-batch brings of an input to a bucket."""

    input: int
    version: int
    punctuation_us: int
    blob: bytes


Pack = Callable[[Combinations], Iterator[bytes]]


@dataclass(slots=True)
class Turn:
    """prompt: results cannot wait, since windows close."""

    place: Place
    schemas: list[pa.Schema]
    prompt: bool
    book: Book
    chunks: ChunkStore
    warm: WarmTables
    most_bytes: int = MOST_BYTES
    _bucket: JoinBucket | KeyBucket | None = None  # when all is joined
    _fresh: dict[int, pa.RecordBatch] = field(default_factory=dict)  # chunks of this turn

    def run(
        self, arrived: Sequence[Arrived], in_round: bool, windows: Windows, pack: Pack
    ) -> Iterator[bytes]:
        """The results of this turn; the book is complete when all have been asked for.

        in_round: tuples of a flushed bucket need not wait any longer.
        """
        book, warm = self.book, self.warm.take(self.place)
        behind = book.waiting > 0
        if not book.chunks:
            book.flushed = False
        if arrived:
            punctuation_us = min(a.punctuation_us for a in arrived)
            book.advance(punctuation_us, windows.longest_us.tolist())
        self._keep(arrived)
        if not book.waiting:
            self._give_back(warm)
        elif in_round or self.prompt or not book.flushed or book.overdue:
            # tables of a time before others had to wait may lack what those can meet
            bucket = self._tables(None if behind else warm, behind, windows)
            if not behind:
                bucket.expire(np.array(book.limits_us))
            yield from self._joined(bucket, windows, pack)
            if not book.waiting:
                self._bucket = bucket
                # made for tuples that waited, they may have some that others would not know of
                same = not (behind and book.reaches_back)
                self._stay_or_go(bucket, warm is not None and warm.doomed, same)
        for dead in book.take_dead():
            self.chunks.remove(dead.number)
        self._merge(windows.slots)

    def figures(self) -> BucketFigures:
        """After the turn."""
        book, streams = self.book, len(self.schemas)
        tables = [] if self._bucket is None else self._bucket.tables
        nothing = np.zeros((streams, streams), np.int64)
        return BucketFigures(
            live=sum((table.live for table in tables), np.zeros(streams, np.int64)).tolist(),
            keys=sum(table.entries for table in tables),
            full_keys=sum(table.full_entries for table in tables),
            bits=sum(table.bits for table in tables),
            overlaps=sum((table.overlaps() for table in tables), nothing).tolist(),
            table_bytes=0 if self._bucket is None or book.flushed else self._bucket.nbytes,
            state_tuples=sum(chunk.rows for chunk in book.chunks),
            state_bytes=book.nbytes,
            waiting=book.waiting,
            flushed=book.flushed,
            flushes=book.flushes,
        )

    def _keep(self, arrived: Sequence[Arrived]) -> None:
        """Make chunks of what arrived."""
        for input_ in sorted({a.input for a in arrived}):
            # a shuffle has no order, and results must not depend on one
            blobs = sorted(a.blob for a in arrived if a.input == input_)
            schema = self.schemas[input_]
            for group in _groups([(blob, from_blob(blob, schema)) for blob in blobs]):
                tuples = _together([batch for _, batch in group])
                blob = group[0][0] if len(group) == 1 else to_blob(tuples)
                latest_us = int(tuples.column(TIME).to_numpy().max())
                rows, raw_bytes = tuples.num_rows, tuples.nbytes
                chunk = self.book.add(input_, rows, len(blob), latest_us, raw_bytes)
                self.chunks.put(chunk.number, blob)
                self._fresh[chunk.number] = tuples

    def _tables(self, warm: Warm | None, behind: bool, windows: Windows) -> JoinBucket | KeyBucket:
        """The tables of all tuples that are joined, and may meet others."""
        since = None if warm is None else self.book.known_by(warm.token)
        if warm is None or since is None:
            bucket, since = self._new_bucket(), 0
        else:
            bucket = warm.bucket
        number, row = self.book.todo
        for chunk in self.book.split(since)[0]:
            tuples = self._read(chunk)
            if chunk.number == number:
                tuples = tuples.slice(0, row)
            bucket.load(chunk.input, tuples if behind else self._living(chunk, tuples), windows)
        return bucket

    def _joined(
        self, bucket: JoinBucket | KeyBucket, windows: Windows, pack: Pack
    ) -> Iterator[bytes]:
        most_bytes = self.most_bytes * (_PROMPT if self.prompt else 1)
        size = 0
        waiting = self.book.split()[1]
        bucket.expect(min(self.book.waiting, _EXPECTED))
        for chunk in waiting:
            if size > most_bytes:
                return self.book.flush()  # what is not joined yet is left to a round
            row = self.book.todo[1]
            for piece in bucket.add(chunk.input, self._read(chunk).slice(row), windows):
                for blob in pack(piece.combinations):
                    yield blob
                    size += len(blob)
                    if self.prompt and size > most_bytes:
                        slots = piece.combinations.slots.flatten().to_numpy()
                        raise too_many_windows(most_bytes, most_frequent(slots))
                if piece.through is None or size <= most_bytes:
                    continue
                if (at := row + piece.through) < chunk.rows:
                    self.book.todo = (chunk.number, at)
                    return self.book.flush()
            self.book.todo = (chunk.number + 1, 0)

    def _merge(self, slots: Ints) -> None:
        """Make one chunk of many small ones, so that the book stays short.

        Tuples of queries that were dropped go: no slot ever comes again.
        """
        while chunks := self.book.mergeable():
            living = _together([self._living(chunk, self._read(chunk)) for chunk in chunks])
            living = living.filter(pa.array(wanted_by(living.column(SLOTS), slots)))
            blob = to_blob(living)
            merged = self.book.merge(chunks, living.num_rows, len(blob), living.nbytes)
            for chunk in chunks:
                self._fresh.pop(chunk.number, None)
                if chunk.number != merged.number:
                    self.chunks.remove(chunk.number)
            self.chunks.put(merged.number, blob)

    def _stay_or_go(self, bucket: JoinBucket | KeyBucket, doomed: bool, same: bool) -> None:
        """Leave tables for the next turn if there is room; else flush the bucket.

        same: whether the tables are those that the state would give; others are made again.
        """
        book = self.book
        if bucket.wasteful:  # made again from the state it is smaller
            return
        if not doomed and (not book.flushed or bucket.nbytes <= self.warm.room):
            if not same:
                book.flushed = False
                return
            token = secrets.token_hex(8)
            if self.warm.put(self.place, token, bucket):
                book.flushed = False
                book.sign(token)
                return
        book.flush()

    def _new_bucket(self) -> JoinBucket | KeyBucket:
        """Windows need the times of combinations, which are not counted."""
        counts = counts_suffice(self.schemas) and not self.prompt
        return KeyBucket(len(self.schemas)) if counts else JoinBucket(self.schemas)

    def _give_back(self, warm: Warm | None) -> None:
        """Nothing came and nothing waited: the tables are what they were."""
        if warm is not None and not warm.doomed:
            self.warm.put_back(self.place, warm)
            self._bucket = warm.bucket

    def _living(self, chunk: Chunk, tuples: pa.RecordBatch) -> pa.RecordBatch:
        return tuples.filter(pc.field(TIME) >= self.book.limit_us(chunk))

    def _read(self, chunk: Chunk) -> pa.RecordBatch:
        fresh = self._fresh.get(chunk.number)
        if fresh is not None:
            return fresh
        return from_blob(self.chunks.get(chunk.number), self.schemas[chunk.input])


def _groups(
    arrived: Sequence[tuple[bytes, pa.RecordBatch]],
) -> Iterator[list[tuple[bytes, pa.RecordBatch]]]:
    """Small blobs together, large ones as they are; and those with many bytes in them."""
    group, size, raw_bytes = list[tuple[bytes, pa.RecordBatch]](), 0, 0
    for blob, tuples in arrived:
        if group and (size + len(blob) > _SMALL or raw_bytes + tuples.nbytes > _MOST_RAW_BYTES):
            yield group
            group, size, raw_bytes = [], 0, 0
        group.append((blob, tuples))
        size += len(blob)
        raw_bytes += tuples.nbytes
    if group:
        yield group


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(batches)
