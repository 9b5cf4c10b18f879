"""What a bucket's state holds, in one small value next to its chunks of tuples.

Every micro-batch that changes a bucket leaves a new `token`. A worker that has the bucket's tables
in memory knows by the token whether they are what the state says; if they are what it said some
micro-batches ago, only the chunks since then are missing.

A bucket that was flushed has no tables in memory: its tuples only become chunks, and what they
combine to is found later, in the order in which they came. `todo` says from which tuple on.
Whether a bucket is flushed counts from its next micro-batch on, so that a micro-batch that runs
again, in a worker with more or less memory, has the same results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby

from penstock.kernels.columns import INT64_MAX, INT64_MIN

_REMEMBERED = 16  # micro-batches
_MERGED = 16  # chunks
_SIZES = [2**power for power in range(12, 25, 4)]  # bytes; larger chunks are left alone
_RAW_BYTES = 2**22  # of tuples in memory; also left alone, since merging takes all of them there
_UNKNOWN = 64  # times its bytes: what a chunk is taken for that does not say how large it is
_LONGEST_WAIT = 64  # chunks for each input


@dataclass(frozen=True, slots=True)
class Chunk:
    """A batch of an input's tuples in the state.

    raw_bytes: what they take in memory. from_us: tuples with lower times are forgotten for good.
    """

    number: int
    input: int
    rows: int
    nbytes: int
    latest_us: int
    raw_bytes: int = 0
    from_us: int = INT64_MIN


@dataclass(slots=True)
class Book:
    """limits_us: by input, tuples with lower times are forgotten; version: of the registry."""

    limits_us: list[int]
    punctuation_us: int = INT64_MIN
    version: int = 0
    next: int = 0  # number of the next chunk
    todo: tuple[int, int] = (0, 0)  # number and row of the first tuple that is not joined yet
    flushed: bool = False
    flushes: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    signed: list[tuple[str, int]] = field(default_factory=list)  # tokens, with `next` of then

    @classmethod
    def empty(cls, inputs: int) -> Book:
        return cls([INT64_MIN] * inputs)

    @classmethod
    def loads(cls, text: str) -> Book:
        raw = json.loads(text)
        chunks = [Chunk(**chunk) for chunk in raw.pop("chunks")]
        signed = [(token, next_) for token, next_ in raw.pop("signed")]
        number, row = raw.pop("todo")
        return cls(**raw, todo=(number, row), chunks=chunks, signed=signed)

    def dumps(self) -> str:
        raw = asdict(self)
        for chunk in raw["chunks"]:
            if chunk["from_us"] == INT64_MIN:  # as of nearly all
                del chunk["from_us"]
        return json.dumps(raw, separators=(",", ":"))

    @property
    def nbytes(self) -> int:
        """Size of the tuples in the state."""
        return sum(chunk.nbytes for chunk in self.chunks)

    @property
    def waiting(self) -> int:
        """Tuples that are not joined yet."""
        number, row = self.todo
        return sum(chunk.rows for chunk in self.chunks if chunk.number >= number) - row

    @property
    def overdue(self) -> bool:
        """Whether tuples wait that should not wait for a pause any longer."""
        return self.next - self.todo[0] > _LONGEST_WAIT * len(self.limits_us)

    def add(self, input_: int, rows: int, nbytes: int, latest_us: int, raw_bytes: int = 0) -> Chunk:
        chunk = Chunk(self.next, input_, rows, nbytes, latest_us, raw_bytes)
        self.chunks.append(chunk)
        self.next += 1
        return chunk

    def split(self, since: int = 0) -> tuple[list[Chunk], list[Chunk]]:
        """Chunks from a number on: those with joined tuples, and those with others; maybe both."""
        number, row = self.todo
        joined = [c for c in self.chunks if since <= c.number < number + (row > 0)]
        return joined, [c for c in self.chunks if c.number >= number]

    def known_by(self, token: str) -> int | None:
        """What `next` was when the state had a token; None if that is too long ago."""
        return dict(self.signed).get(token)

    def advance(self, punctuation_us: int, longest_us: Sequence[int]) -> None:
        """Let time go on: what lies more than its range behind the punctuation finds nobody."""
        self.punctuation_us = max(self.punctuation_us, punctuation_us)
        for i, range_us in enumerate(longest_us):
            endless = range_us == INT64_MAX
            limit_us = INT64_MIN if endless else max(INT64_MIN, self.punctuation_us - range_us)
            if limit_us < self.limits_us[i]:
                self._reach_back(i)
            self.limits_us[i] = limit_us

    def _reach_back(self, input_: int) -> None:
        """A longer range has come: what is forgotten stays so, late tuples in its reach may meet.

        No tables know of that, so all are made again.
        """
        limit_us = self.limits_us[input_]
        self.chunks = [
            replace(c, from_us=max(c.from_us, limit_us)) if c.input == input_ else c
            for c in self.chunks
        ]
        self.signed = []

    def limit_us(self, chunk: Chunk) -> int:
        """The least time of a chunk's tuples that are not forgotten."""
        return max(self.limits_us[chunk.input], chunk.from_us)

    @property
    def reaches_back(self) -> bool:
        """Whether tuples are forgotten that the limits alone would keep."""
        return any(c.from_us > self.limits_us[c.input] for c in self.chunks)

    def take_dead(self) -> list[Chunk]:
        """Strike off the chunks in which no tuple lives; none while tuples wait for others."""
        if self.waiting:
            return []
        dead = [c for c in self.chunks if c.latest_us < self.limit_us(c)]
        if dead:
            self.chunks = [c for c in self.chunks if c.latest_us >= self.limit_us(c)]
        return dead

    def mergeable(self) -> list[Chunk]:
        """Neighbours of one input, none larger than a size, that one chunk may replace.

        So a tuple is written again once for each time that the state grows sixteenfold.
        """
        if self.waiting:
            return []
        for input_ in range(len(self.limits_us)):
            chunks = [c for c in self.chunks if c.input == input_]
            for most in _SIZES:
                for neighbours in _runs(chunks, most):
                    if len(neighbours) >= _MERGED:
                        return neighbours[:_MERGED]
        return []

    def merge(self, chunks: list[Chunk], rows: int, nbytes: int, raw_bytes: int = 0) -> Chunk:
        """One chunk in place of several; tables that know some of them are not known any more."""
        first, last = chunks[0].number, chunks[-1].number
        latest_us = max(chunk.latest_us for chunk in chunks)
        merged = Chunk(last, chunks[0].input, rows, nbytes, latest_us, raw_bytes)
        gone = {chunk.number for chunk in chunks[:-1]}
        kept = (c for c in self.chunks if c.number not in gone)
        self.chunks = [merged if c.number == last else c for c in kept]
        self.signed = [(t, next_) for t, next_ in self.signed if not first < next_ <= last]
        return merged

    def flush(self) -> None:
        """Keep no tables of this bucket, from the next micro-batch on."""
        self.flushes += not self.flushed
        self.flushed = True

    def sign(self, token: str) -> None:
        """The state is complete: from here on it is known by this token."""
        self.signed = [*self.signed, (token, self.next)][-_REMEMBERED:]


def _runs(chunks: Sequence[Chunk], most_bytes: int) -> Iterator[list[Chunk]]:
    """Neighbours that are not larger than a size, nor too large in memory."""

    def is_small(chunk: Chunk) -> bool:
        raw_bytes = chunk.raw_bytes or _UNKNOWN * chunk.nbytes
        return chunk.nbytes <= most_bytes and raw_bytes <= _RAW_BYTES

    for small, group in groupby(chunks, is_small):
        if small:
            yield list(group)
