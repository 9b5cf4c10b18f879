"""Joins run in turns on the same input, their processor time taken, what they find compared.

A join takes batches of arriving tuples and yields the combinations that they complete: for each
stream the tuple's number, or, if only keys are wanted, the key. Hashing the keys is part of the
time, and so is moving the rest of the tuple (`other`) into the store of its stream, for joins that
need it. Combinations name the stored tuples; that copies of them go elsewhere is not timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.bench.join.data import Tuples
from penstock.bench.join.structures import Chain, CountingMJoin, MJoin
from penstock.kernels.bit_table import Arrivals
from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import Bytes, Flags, Ints
from penstock.kernels.join_keys import join_keys
from penstock.kernels.join_table import JoinTable, KeyTable

BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class Batch:
    streams: Bytes
    keys: Ints
    hashes: Ints
    known: Flags
    times_us: Ints


Join = Callable[[Batch], Iterable[Ints]]
NewJoin = Callable[[int], Join]  # for so many streams
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Point:
    """After so many seconds of one core: tuples taken in and results found so far."""

    seconds: float
    tuples: int
    results: int


@dataclass(frozen=True, slots=True)
class Digest:
    """What is left of results to compare: how many, and the sum of their hashes."""

    results: int
    hashes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """points: of the fastest run."""

    points: list[Point]
    digest: Digest

    @property
    def tuples_per_s(self) -> float:
        return self.points[-1].tuples / self.points[-1].seconds


def compete(
    joins: Mapping[Name, NewJoin], tuples: Tuples, streams: int, runs: int
) -> dict[Name, Outcome]:
    """Every join in its turn, so many times; a first time to see what it finds."""
    digests = {name: digest(results(new(streams), tuples)) for name, new in joins.items()}
    timed: dict[Name, list[list[Point]]] = {name: [] for name in joins}
    for _ in range(runs):
        for name, new in joins.items():
            timed[name].append(_follow(new(streams), tuples))
    return {
        name: Outcome(min(timed[name], key=lambda points: points[-1].seconds), digests[name])
        for name in joins
    }


def results(join: Join, tuples: Tuples) -> Iterator[Ints]:
    for batch in batches(tuples):
        yield from join(batch)


def batches(tuples: Tuples) -> Iterator[Batch]:
    for begin in range(0, len(tuples), BATCH):
        part = tuples.part(begin, BATCH)
        found = join_keys([pa.array(part.keys)])
        yield Batch(part.streams, part.keys, found.hashes, found.known, part.times_us)


def digest(pieces: Iterable[Ints]) -> Digest:
    count, total = 0, np.zeros(1, np.int64)
    for piece in pieces:
        columns = np.atleast_2d(piece.T)
        total += join_keys([pa.array(column) for column in columns]).hashes.sum()
        count += len(piece)
    return Digest(count, int(total[0]))


def _follow(join: Join, tuples: Tuples) -> list[Point]:
    started = time.process_time()
    points = [Point(0.0, 0, 0)]
    for batch in batches(tuples):
        found = sum(len(piece) for piece in join(batch))
        before = points[-1]
        points.append(
            Point(
                time.process_time() - started,
                before.tuples + batch.keys.size,
                before.results + found,
            )
        )
    return points


def biht(streams: int) -> Join:
    table, ranges_us = JoinTable(streams), np.full(streams, INT64_MAX)
    return lambda b: table.add(Arrivals(b.streams, b.hashes, b.known, b.times_us), ranges_us)


def mjoin(streams: int) -> Join:
    table = MJoin(streams)
    return lambda b: [table.add(b.streams, b.hashes, b.times_us)]


def chain(streams: int) -> Join:
    tables = Chain(streams)
    return lambda b: [tables.add(b.streams, b.hashes, b.times_us)]


def key_table(streams: int) -> Join:
    table = KeyTable(np.full(streams, INT64_MAX))

    def add(batch: Batch) -> list[Ints]:
        positions, counts = table.add(batch.streams, batch.hashes, batch.known, batch.times_us)
        return [np.repeat(batch.keys[positions], counts)]

    return add


def counting_mjoin(streams: int) -> Join:
    tables = CountingMJoin(streams)

    def add(batch: Batch) -> list[Ints]:
        positions, counts = tables.add(batch.streams, batch.hashes)
        return [np.repeat(batch.keys[positions], counts)]

    return add


def with_other(new: NewJoin, other_bytes: int) -> NewJoin:
    """The join, with so many bytes of each tuple moved into memory that is kept.

    All batches bring the same bytes: only that they are moved matters. They are appended as they
    come, which is the least that storing them can cost.
    """
    arriving = np.zeros((BATCH, other_bytes), np.uint8)

    def new_with_other(streams: int) -> Join:
        join = new(streams)
        kept: list[Bytes] = []

        def add(batch: Batch) -> Iterable[Ints]:
            kept.append(arriving[: batch.keys.size].copy())
            return join(batch)

        return add

    return new_with_other


def key_of_first(new: NewJoin, most: int) -> NewJoin:
    """The join, of which only the key is wanted: that of the first stream's tuple."""

    def new_with_keys(streams: int) -> Join:
        join, keys, used = new(streams), np.empty(most, np.int64), 0

        def add(batch: Batch) -> Iterable[Ints]:
            nonlocal used
            arrived = batch.keys[batch.streams == 0]
            keys[used : used + arrived.size] = arrived
            used += arrived.size
            return (keys[found[:, 0]] for found in join(batch))

        return add

    return new_with_keys
