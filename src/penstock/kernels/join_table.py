"""The tuples of a stream join that may still find partners: hashes, times and numbers, no payload.

`JoinTable` finds the combinations, `KeyTable` only counts them. What both keep is laid out in
`kernels.bit_table`; `kernels.bitjoin` explains the algorithm. Hashes are those of `join_keys`: a
place in the table is taken from their low bits as they are.

Expiry looks at dead tuples only: tuples added between two calls are a run, ordered by time once,
and a heap knows the run that has the earliest time. A table of which more than half is dead is
rebuilt from the live ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.kernels.bit_table import (
    ADDED,
    BITS,
    DISORDER,
    ENTRIES,
    FULL,
    HEADS,
    IN_USE,
    KEPT,
    LIMIT,
    LIVE,
    NEWEST,
    NUMBER,
    ONES,
    POSITION,
    RANGE,
    REACH,
    TABLE,
    TIME,
    TUPLES,
    WANTED,
    Arrivals,
    Bounds,
    Table,
    Walk,
)
from penstock.kernels.bitjoin import (
    add_tuples,
    copy_live,
    count_combinations,
    count_for_ever,
    expire_tuples,
    fill_slots,
    load_tuples,
)
from penstock.kernels.columns import INT64_MAX, INT64_MIN
from penstock.kernels.jit import Bytes, Flags, Ints, SmallInts, kernel

PIECE = 1 << 16  # tuples for which room is made at a time, as if all had new keys
MOST_RESULTS = 1 << 18


@dataclass(frozen=True, slots=True, order=True)
class _Run:
    """Tuples of one stream in order of time, those before `begin` forgotten."""

    time_us: int
    begin: int = field(compare=False)
    order: SmallInts = field(compare=False)


class _BitTable:
    """What both tables share: the tuples kept, and forgetting them."""

    def __init__(self, streams: int, grouped: bool) -> None:
        by_stream = np.zeros((6, streams), np.int64)
        by_stream[[LIMIT, NEWEST]] = INT64_MIN
        self._table = _empty(by_stream, 0, own=False)
        self._grouped = grouped
        self._runs: list[list[_Run]] = [[] for _ in range(streams)]
        self._ordered = [0] * streams  # tuples before this are in runs

    @property
    def live(self) -> Ints:
        """Tuples kept of each stream."""
        live: Ints = self._table.by_stream[LIVE].copy()
        return live

    @property
    def entries(self) -> int:
        """Keys with a live tuple."""
        return int(self._table.figures[IN_USE])

    @property
    def full_entries(self) -> int:
        """Keys with a live tuple of every stream."""
        return int(self._table.figures[FULL])

    @property
    def bits(self) -> int:
        """Bits that are set, in all entries."""
        return int(self._table.figures[ONES])

    def overlaps(self, most: int = 4096) -> Ints:
        """By pair of streams, how many keys have a live tuple of both, of a sample of the keys."""
        entries = int(self._table.figures[ENTRIES])
        bits = self._table.entries[: entries : max(1, entries // most), BITS]
        has = (bits[:, None] >> np.arange(len(self._runs)) & 1).astype(np.int64)
        found: Ints = has.T @ has
        return found

    @property
    def nbytes(self) -> int:
        """Memory in use; room made ahead is not touched before it is needed."""
        table = self._table
        width = table.tuples.strides[0] + table.streams.strides[0]
        width += table.bounds.strides[0] if len(table.bounds) else 0
        tuples = table.figures[TUPLES] * width
        entries = table.figures[ENTRIES] * table.entries.strides[0]
        orders = sum(run.order.nbytes for runs in self._runs for run in runs)
        return int(tuples + entries) + table.slots.nbytes + orders

    def expire(self, limits_us: Ints) -> None:
        """Forget tuples with a time below the limit of their stream, also those yet to come."""
        limits = self._table.by_stream[LIMIT]
        for stream in np.flatnonzero(limits_us > limits).tolist():
            limits[stream] = limits_us[stream]
            self._order_new(stream)
            self._expire_stream(stream, int(limits_us[stream]))
        tuples, kept = self._table.figures[[TUPLES, KEPT]]
        if 2 * kept < tuples:
            self._rebuild()

    def _order_new(self, stream: int) -> None:
        begin, end = self._ordered[stream], int(self._table.figures[TUPLES])
        self._ordered[stream] = end
        places = begin + np.flatnonzero(self._table.streams[begin:end] == stream)
        times = self._table.tuples[places, TIME]
        if (times[1:] < times[:-1]).any():
            places = places[np.argsort(times)]
        self._push_run(stream, 0, places.astype(np.int32))

    def _push_run(self, stream: int, begin: int, order: SmallInts) -> None:
        if begin < order.size:
            time_us = int(self._table.tuples[order[begin], TIME])
            heappush(self._runs[stream], _Run(time_us, begin, order))

    def _expire_stream(self, stream: int, limit_us: int) -> None:
        runs = self._runs[stream]
        while runs and runs[0].time_us < limit_us:
            run = heappop(runs)
            begin = expire_tuples(run.order, run.begin, stream, self._grouped, self._table)
            self._push_run(stream, begin, run.order)

    def _rebuild(self) -> None:
        old = self._table
        # until the next time there will be as many dead ones, and those of one more call
        old.by_stream[NEWEST], old.by_stream[DISORDER] = INT64_MIN, 0
        room = int(old.figures[KEPT]) * 5 // 2
        self._table = _empty(old.by_stream, room, own=len(old.bounds) > 0)
        copy_live(old, self._table)
        self._runs = [[] for _ in self._runs]
        self._ordered = [0] * len(self._runs)


class JoinTable(_BitTable):
    """Finds combinations of one tuple of each stream with equal keys, close enough in time.

    With t the latest time of a combination, t - time <= range holds for each of its tuples; or t <=
    reach, where tuples have bounds of their own, and then there is a bit that all of them have.
    Tuples of a stream are numbered from 0 in the order in which they are added.
    """

    def __init__(self, streams: int, most_results: int = MOST_RESULTS) -> None:
        super().__init__(streams, grouped=False)
        self._most_results = most_results

    def add(
        self, arrivals: Arrivals, ranges_us: Ints, bounds: Bounds | None = None
    ) -> Iterator[Ints]:
        """Add tuples in order of arrival; yield the combinations that they complete.

        bounds: how far each reaches by itself, not further than the range of its stream.

        A row of a piece has the tuple's number for each stream; a piece has at most `most_results`
        rows. Tuples are added as far as the pieces are asked for: ask for all of them. Tuples whose
        key is not known, or whose time is below the limit, only get a number.
        """
        results, count = self._new_results(), 0
        for piece, own in self._bounded(arrivals, ranges_us, bounds):
            self._table = _with_room(self._table, piece.streams.size, piece.streams.size)
            walk = Walk(np.zeros(2, np.int64), np.zeros((5, ranges_us.size), np.int64))
            while walk.at[POSITION] < piece.streams.size:
                count = add_tuples(piece, own, self._table, walk, results, count)
                if count == self._most_results:
                    yield results
                    results, count = self._new_results(), 0
        if count:
            yield results[:count]

    def expect(self, tuples: int) -> None:
        """Make room at once for tuples that are about to come, as if all had new keys."""
        self._table = _with_room(self._table, tuples, tuples)

    def load(self, arrivals: Arrivals, ranges_us: Ints, bounds: Bounds | None = None) -> None:
        """Add tuples whose combinations with those before them are known already."""
        for piece, own in self._bounded(arrivals, ranges_us, bounds):
            self._table = _with_room(self._table, piece.streams.size, piece.streams.size)
            load_tuples(piece, own, self._table)

    def _bounded(
        self, arrivals: Arrivals, ranges_us: Ints, bounds: Bounds | None
    ) -> Iterator[tuple[Arrivals, Bounds]]:
        """The tuples in pieces, with bounds once any have had some.

        Those before the first with bounds reach as far as the ranges of then, for whomever.
        """
        if bounds is not None and not len(self._table.bounds):
            self._table = _with_bounds(self._table)
        if len(self._table.bounds) and bounds is None:
            reaches = reach_us(arrivals.times, ranges_us[arrivals.streams])
            bounds = Bounds(reaches, np.full(reaches.size, _ALL))
        self._table.by_stream[RANGE] = ranges_us
        own = _NO_BOUNDS if bounds is None else bounds
        pieces = _pieces(own) if bounds is not None else repeat(own)
        yield from zip(_pieces(arrivals), pieces, strict=False)

    def _new_results(self) -> Ints:
        return np.empty((self._most_results, len(self._runs)), np.int64)

    @property
    def first_kept(self) -> Ints:
        """For each stream the least number of a live tuple, or the next number to be given."""
        return _first_live(self._table)

    def live_numbers(self, stream: int) -> Ints:
        """The numbers of a stream's live tuples, ascending."""
        size = int(self._table.figures[TUPLES])
        tuples = self._table.tuples[:size][self._table.streams[:size] == stream]
        numbers: Ints = tuples[tuples[:, TIME] >= self._table.by_stream[LIMIT, stream], NUMBER]
        return numbers


class KeyTable(_BitTable):
    """Counts the combinations that `JoinTable` would find, for queries that want only the key.

    It keeps times, and how often each came in a row. If no range ends, times do not matter: the
    bit vectors are all it keeps, with one count for each key and stream, and nothing expires.
    """

    def __init__(self, ranges_us: Ints) -> None:
        super().__init__(ranges_us.size, grouped=True)
        self._table.by_stream[RANGE] = ranges_us
        self._timeless = bool((ranges_us == INT64_MAX).all())

    def add(self, streams: Bytes, hashes: Ints, known: Flags, times_us: Ints) -> tuple[Ints, Ints]:
        """Add tuples in order of arrival: which complete combinations, and how many.

        The former are positions in the input; the latter stop at 2^63 - 1.
        """
        positions, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for i, piece in enumerate(_pieces(Arrivals(streams, hashes, known, times_us))):
            size = piece.streams.size
            self._table = _with_room(self._table, size, 0 if self._timeless else size)
            count = count_for_ever if self._timeless else count_combinations
            found = count(piece, self._table)
            positions.append(found[0] + i * PIECE)
            counts.append(found[1])
        return np.concatenate(positions), np.concatenate(counts)

    def expire(self, limits_us: Ints) -> None:
        """Forget tuples with a time below the limit of their stream, also those yet to come."""
        if not self._timeless:
            super().expire(limits_us)


def reach_us(time_us: Ints, range_us: Ints) -> Ints:
    """time + RANGE, or the largest integer if that is more, or if the RANGE has no end."""
    endless = (range_us == INT64_MAX) | (time_us > INT64_MAX - range_us)
    reached: Ints = np.where(endless, INT64_MAX, time_us + range_us)
    return reached


Bundle = TypeVar("Bundle", Arrivals, Bounds)


def _pieces(bundle: Bundle) -> Iterator[Bundle]:
    class_: Any = type(bundle)
    for begin in range(0, bundle[0].size, PIECE):
        yield _read_only(class_(*(array[begin : begin + PIECE] for array in bundle)))


def _read_only(bundle: Bundle) -> Bundle:
    """In a bundle, kernels take no other arrays for read-only."""
    for array in bundle:
        array.flags.writeable = False
    return bundle


_ALL = -1  # bits
_NO_BOUNDS = _read_only(Bounds(np.empty(0, np.int64), np.empty(0, np.int64)))


def _with_bounds(table: Table) -> Table:
    """The table with bounds for each tuple; those that it has are as they were without."""
    used, room = int(table.figures[TUPLES]), max(1, len(table.tuples))
    bounds = np.empty((room, 2), np.int64)
    ranges_us = table.by_stream[RANGE][table.streams[:used]]
    bounds[:used, REACH] = reach_us(table.tuples[:used, TIME], ranges_us)
    bounds[:used, WANTED] = _ALL
    return table._replace(bounds=bounds)


def _empty(by_stream: Ints, tuples: int, own: bool) -> Table:
    """A table without tuples, with room for some; own: for bounds, too."""
    streams = by_stream.shape[1]
    nothing = Table(
        slots=np.zeros(2, np.int64),
        entries=np.empty((0, HEADS + streams), np.int64),
        tuples=np.empty((0, 4), np.int64),
        bounds=np.empty((int(own), 2), np.int64),
        streams=np.empty(0, np.uint8),
        by_stream=by_stream,
        figures=np.zeros(6, np.int64),
    )
    return _with_room(nothing, tuples, tuples)


def _with_room(table: Table, more: int, more_tuples: int) -> Table:
    """The table with room for more keys and tuples."""
    tuples, entries = (int(table.figures[i]) for i in (TUPLES, ENTRIES))
    bounds = table.bounds
    table = table._replace(
        bounds=_grown(bounds, tuples, tuples + more_tuples) if len(bounds) else bounds,
        entries=_grown(table.entries, entries, entries + more),
        tuples=_grown(table.tuples, tuples, tuples + more_tuples),
        streams=_grown(table.streams, tuples, tuples + more_tuples),
    )
    if table.slots.size < 2 * (entries + more):
        slots = 1 << (2 * (entries + more) - 1).bit_length()
        table = table._replace(slots=np.zeros(slots, np.int64))
        fill_slots(table)
    return table


def _grown(array: npt.NDArray[Any], used: int, needed: int) -> npt.NDArray[Any]:
    """The array, or its used part in one at least twice as long."""
    if needed <= len(array):
        return array
    grown = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), array.dtype)
    grown[:used] = array[:used]
    return grown


@kernel(TABLE)
def _first_live(table: Table) -> Ints:
    """For each stream the least number of a live tuple, or the next number to be given."""
    numbers: Ints = table.by_stream[ADDED].copy()
    missing = (table.by_stream[LIVE] > 0).sum()
    place = 0
    while missing > 0:
        stream = table.streams[place]
        is_live = table.tuples[place, TIME] >= table.by_stream[LIMIT, stream]
        if is_live and numbers[stream] == table.by_stream[ADDED, stream]:
            numbers[stream] = table.tuples[place, NUMBER]
            missing -= 1
        place += 1
    return numbers
