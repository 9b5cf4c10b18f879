"""More tuples than memory may hold: what is flushed, and every result exactly once.

Memory is counted in records. When a batch has brought it over budget, the input stops and keys
leave memory, with the records of all streams, for partitions on disk, until a part of the budget is
free; their later records go to disk straight away. When the input ends, each partition is joined.

A key leaves memory once, with all its records, so the combinations among those are known: the disk
phase loads them and adds the later ones, which finds the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.bench.join.data import Tuples
from penstock.bench.join.runs import Digest, digest
from penstock.control.flushing import Candidate, choose_victims
from penstock.kernels.bit_table import Arrivals
from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import Ints
from penstock.kernels.join_keys import join_keys, split_by_bucket
from penstock.kernels.join_table import JoinTable

STREAM, KEY, TIME, NUMBER = range(4)
RECORD_BYTES = 4 * 8
FREED = 0.05  # of the budget, by one stop

_BATCH = 1000
_PARTITIONS = 16
_NOTHING = np.empty((0, 4), np.int64)

Kind = Literal["flushed", "late"]


@dataclass(frozen=True, slots=True)
class Point:
    """After so many tuples: keys flushed so far, results found so far."""

    tuples: int
    flushes: int
    results: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """By batch what happened until the input ended; in_memory: of all results, those until then."""

    points: list[Point]
    stops: int
    on_disk: int  # records
    in_memory: Digest
    all: Digest


def join_within(
    budget: int, tuples: Tuples, streams: int, sampled: int, seed: int, directory: Path
) -> Outcome:
    """Join with so many records in memory at most; so many keys are drawn for each flush."""
    random = np.random.default_rng(seed)
    join, disk = _Join(streams, _NOTHING), _Partitions(directory)
    flushed = np.zeros(int(tuples.keys.max()) + 1, np.bool_)
    found: list[Ints] = []
    points: list[Point] = []
    stops = count = 0
    for batch in _batches(_records(tuples, streams)):
        is_flushed = flushed[batch[:, KEY]]
        disk.append("late", batch[is_flushed])
        found.append(join.add(batch[~is_flushed]))
        if len(join.records) > budget:
            excess = len(join.records) - round((1 - FREED) * budget)
            candidates = _candidates(join.records, streams)
            flushed[choose_victims(candidates, excess * RECORD_BYTES, sampled, random)] = True
            leaving = flushed[join.records[:, KEY]]
            disk.append("flushed", join.records[leaving])
            join = _Join(streams, join.records[~leaving])
            stops += 1
        count += len(found[-1])
        points.append(Point(int(batch[-1, TIME]) + 1, int(flushed.sum()), count))
    late = [_Join(streams, before).add(later) for before, later in disk.partitions()]
    return Outcome(points, stops, disk.records, digest(found), digest([*found, *late]))


class _Join:
    """Records in memory, those given first with the combinations among them known already."""

    def __init__(self, streams: int, records: Ints) -> None:
        self.records = records
        self._ranges_us = np.full(streams, INT64_MAX)
        self._table = JoinTable(streams)
        self._table.load(_columns(records), self._ranges_us)

    def add(self, records: Ints) -> Ints:
        """The combinations that these complete, each as its records' numbers."""
        self.records = np.concatenate([self.records, records])
        pieces = list(self._table.add(_columns(records), self._ranges_us))
        places = np.concatenate([np.empty((0, self._ranges_us.size), np.int64), *pieces])
        for stream, column in enumerate(places.T):
            numbers = self.records[self.records[:, STREAM] == stream, NUMBER]
            column[:] = numbers[column]
        return places


class _Partitions:
    """Records on disk by key: flushed from memory, or late, which is after their key was."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.records = 0

    def append(self, kind: Kind, records: Ints) -> None:
        self.records += len(records)
        partition = (records[:, KEY] % _PARTITIONS).astype(np.int32)
        order, offsets = split_by_bucket(partition, _PARTITIONS)
        for number, rows in enumerate(np.split(records[order], offsets[1:-1])):
            with self._path(kind, number).open("ab") as file:
                file.write(rows.tobytes())

    def partitions(self) -> Iterator[tuple[Ints, Ints]]:
        """What was flushed and what was late, partition by partition."""
        for number in range(_PARTITIONS):
            yield self._read("flushed", number), self._read("late", number)

    def _read(self, kind: Kind, number: int) -> Ints:
        path = self._path(kind, number)
        return np.fromfile(path, np.int64).reshape(-1, 4) if path.exists() else _NOTHING

    def _path(self, kind: Kind, number: int) -> Path:
        return self._directory / f"{kind}-{number}"


def _records(tuples: Tuples, streams: int) -> Ints:
    numbers = np.empty(len(tuples), np.int64)
    for stream in range(streams):
        mine = tuples.streams == stream
        numbers[mine] = np.arange(mine.sum())
    return np.stack([tuples.streams, tuples.keys, tuples.times_us, numbers], axis=1)


def _batches(records: Ints) -> Iterator[Ints]:
    for begin in range(0, len(records), _BATCH):
        yield records[begin : begin + _BATCH]


def _columns(records: Ints) -> Arrivals:
    keys = join_keys([pa.array(records[:, KEY])])
    times_us = np.ascontiguousarray(records[:, TIME])
    return Arrivals(records[:, STREAM].astype(np.uint8), keys.hashes, keys.known, times_us)


def _candidates(records: Ints, streams: int) -> list[Candidate]:
    """The keys in memory."""
    keys, place = np.unique(records[:, KEY], return_inverse=True)
    counts = np.bincount(place * streams + records[:, STREAM], minlength=keys.size * streams)
    by_stream = counts.reshape(-1, streams)
    bits, sizes = (by_stream > 0).sum(axis=1), by_stream.sum(axis=1) * RECORD_BYTES
    facts = zip(keys.tolist(), bits.tolist(), sizes.tolist(), strict=True)
    return [Candidate(*of_key) for of_key in facts]
