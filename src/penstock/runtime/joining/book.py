"""What a bucket's state holds, in one small value next to its chunks of tuples.

Every micro-batch that changes a bucket leaves a new `token`. A worker that has the bucket's tables
in memory knows by the token whether they are what the state says; if they are what it said some
micro-batches ago, only the chunks since then are missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from penstock.kernels.columns import INT64_MAX, INT64_MIN

_REMEMBERED = 16  # micro-batches


@dataclass(frozen=True, slots=True)
class Chunk:
    """A batch of an input's tuples in the state."""

    number: int
    input: int
    rows: int
    latest_us: int


@dataclass(slots=True)
class Book:
    """limits_us: by input, tuples with lower times are forgotten."""

    limits_us: list[int]
    punctuation_us: int = INT64_MIN
    next: int = 0  # number of the next chunk
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
        return cls(**raw, chunks=chunks, signed=signed)

    def dumps(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def add(self, input_: int, rows: int, latest_us: int) -> Chunk:
        chunk = Chunk(self.next, input_, rows, latest_us)
        self.chunks.append(chunk)
        self.next += 1
        return chunk

    def missing_since(self, token: str) -> list[Chunk] | None:
        """The chunks that came after the state had a token; None if that is too long ago."""
        for known, next_ in self.signed:
            if known == token:
                return [chunk for chunk in self.chunks if chunk.number >= next_]
        return None

    def advance(self, punctuation_us: int, longest_us: Sequence[int]) -> None:
        """Let time go on: what lies more than its range behind the punctuation finds nobody."""
        self.punctuation_us = max(self.punctuation_us, punctuation_us)
        for i, range_us in enumerate(longest_us):
            if range_us != INT64_MAX and self.punctuation_us - range_us > self.limits_us[i]:
                self.limits_us[i] = self.punctuation_us - range_us

    def take_dead(self) -> list[Chunk]:
        """Strike off the chunks in which no tuple lives."""
        dead = [c for c in self.chunks if c.latest_us < self.limits_us[c.input]]
        if dead:
            self.chunks = [c for c in self.chunks if c.latest_us >= self.limits_us[c.input]]
        return dead

    def sign(self, token: str) -> None:
        """The state is complete: from here on it is known by this token."""
        self.signed = [*self.signed, (token, self.next)][-_REMEMBERED:]
