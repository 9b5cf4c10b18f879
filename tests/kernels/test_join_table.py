"""Join tables against a twin that tries every combination."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from operator import and_
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels import join_table
from penstock.kernels.bit_table import Arrivals, Bounds
from penstock.kernels.columns import INT64_MAX, INT64_MIN
from penstock.kernels.jit import Bytes, Flags, Ints
from penstock.kernels.join_table import JoinTable, KeyTable, reach_us

UNBOUNDED = INT64_MAX
# equal in the low half, in the high half, and the extremes
HASHES = [0, 1, 2**32, 2**32 + 1, -1, INT64_MIN, INT64_MAX]


@dataclass(frozen=True)
class Row:
    """A tuple as it arrives; hash None: its key is NULL; range None: that of its stream."""

    stream: int
    hash: int | None
    time: int
    range: int | None = None
    wanted: int = -1


Step = list[Row] | list[int]  # tuples to add, or limits to expire by


@dataclass
class Twin:
    """All tuples ever, looked through again for each one that comes."""

    ranges: list[int]
    limits: list[int] = field(init=False)
    tuples: list[list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        self.limits = [INT64_MIN for _ in self.ranges]
        self.tuples = [[] for _ in self.ranges]

    def live(self, stream: int) -> list[int]:
        return [
            number
            for number, row in enumerate(self.tuples[stream])
            if row.hash is not None and row.time >= self.limits[stream]
        ]

    def add(self, row: Row) -> list[tuple[int, ...]]:
        """The combinations that this tuple completes."""
        self.tuples[row.stream].append(row)
        number = len(self.tuples[row.stream]) - 1
        if number not in self.live(row.stream):
            return []
        partners = [
            [number] if stream == row.stream else self.with_hash(stream, row.hash)
            for stream in range(len(self.ranges))
        ]
        return [numbers for numbers in product(*partners) if self.is_close(numbers)]

    def with_hash(self, stream: int, hash_: int | None) -> list[int]:
        return [n for n in self.live(stream) if self.tuples[stream][n].hash == hash_]

    def is_close(self, numbers: tuple[int, ...]) -> bool:
        rows = [self.tuples[stream][n] for stream, n in enumerate(numbers)]
        latest = max(row.time for row in rows)
        ranges = [self.ranges[row.stream] for row in rows]
        ranges = [
            r if row.range is None else min(r, row.range)
            for r, row in zip(ranges, rows, strict=True)
        ]
        apart = [latest - row.time for row in rows]
        close = all(r == UNBOUNDED or d <= r for d, r in zip(apart, ranges, strict=True))
        return close and reduce(and_, (row.wanted for row in rows)) != 0

    def expire(self, limits: list[int]) -> None:
        self.limits = [max(pair) for pair in zip(self.limits, limits, strict=True)]

    def bit_vectors(self) -> dict[int | None, set[int]]:
        vectors: dict[int | None, set[int]] = {}
        for stream in range(len(self.ranges)):
            for number in self.live(stream):
                vectors.setdefault(self.tuples[stream][number].hash, set()).add(stream)
        return vectors


def arrays(rows: list[Row]) -> tuple[Bytes, Ints, Flags, Ints]:
    return (
        np.array([row.stream for row in rows], np.uint8),
        np.array([row.hash or 0 for row in rows], np.int64),
        np.array([row.hash is not None for row in rows], np.bool_),
        np.array([row.time for row in rows], np.int64),
    )


def joined(table: JoinTable, rows: list[Row], ranges: list[int]) -> list[Ints]:
    ranges_us, bounds = np.array(ranges, np.int64), None
    if any(row.range is not None for row in rows):
        own = [
            ranges[r.stream] if r.range is None else min(r.range, ranges[r.stream]) for r in rows
        ]
        times, wanted = ([getattr(row, name) for row in rows] for name in ("time", "wanted"))
        reaches = reach_us(np.array(times, np.int64), np.array(own, np.int64))
        bounds = Bounds(reaches, np.array(wanted, np.int64))
    return [piece.copy() for piece in table.add(Arrivals(*arrays(rows)), ranges_us, bounds)]


def assert_same_state(table: JoinTable | KeyTable, twin: Twin) -> None:
    vectors = twin.bit_vectors().values()
    streams = range(len(twin.ranges))
    assert table.live.tolist() == [len(twin.live(stream)) for stream in streams]
    assert table.entries == len(vectors)
    assert table.full_entries == sum(len(vector) == len(twin.ranges) for vector in vectors)
    assert table.bits == sum(map(len, vectors))
    if isinstance(table, JoinTable):
        live = [twin.live(stream) for stream in streams]
        assert [table.live_numbers(stream).tolist() for stream in streams] == live
        nexts = [len(twin.tuples[stream]) for stream in streams]
        assert table.first_kept.tolist() == [
            numbers[0] if numbers else following
            for numbers, following in zip(live, nexts, strict=True)
        ]


WANTED = [1, 2, 3, 1 << 62, INT64_MIN, -1]  # the last slot of 64 has the sign's bit
EXTREMES = [INT64_MIN, INT64_MIN + 3, INT64_MAX - 3, INT64_MAX]
# few times, where ties and partly dead chains are common; then more; then the extremes
TIMES = [st.integers(0, 3), st.integers(-9, 9), st.integers(-9, 9) | st.sampled_from(EXTREMES)]


@st.composite
def scripts(draw: st.DrawFn, each_its_own: bool = False) -> tuple[list[int], list[Step]]:
    """Ranges, and what happens; each_its_own: tuples have ranges of their own, and wishes."""
    streams = draw(st.sampled_from([3, 2, 4, 5]))
    hashes = st.sampled_from(HASHES[: draw(st.sampled_from([1, 2, len(HASHES)]))])
    times = draw(st.sampled_from(TIMES))
    keys = st.one_of(hashes, hashes, hashes, st.none())
    rows = st.builds(Row, st.integers(0, streams - 1), keys, times)
    bound = {"range": st.sampled_from([2, 0, 12, UNBOUNDED]), "wanted": st.sampled_from(WANTED)}
    own = st.builds(Row, st.integers(0, streams - 1), keys, times, **bound)
    each = {"min_size": streams, "max_size": streams}
    ranges = st.lists(st.sampled_from([2, 1, 0, 12, UNBOUNDED, INT64_MAX - 1]), **each)
    happenings = st.lists(rows, max_size=12) | st.lists(times, **each)
    if each_its_own:
        happenings |= st.lists(own, max_size=12)
    return draw(ranges | st.just([UNBOUNDED] * streams)), draw(st.lists(happenings, max_size=6))


@settings(max_examples=500)
@given(scripts() | scripts(each_its_own=True), st.integers(1, 5), st.integers(1, 5))
def test_every_combination_is_found_once_by_its_last_member(
    script: tuple[list[int], list[Step]], most_results: int, piece: int
) -> None:
    ranges, steps = script
    table, twin = JoinTable(len(ranges), most_results), Twin(ranges)
    with patch.object(join_table, "PIECE", piece):
        for step in steps:
            if step and isinstance(step[0], Row):
                expected = Counter(numbers for row in step for numbers in twin.add(row))
                found = joined(table, step, ranges)
                assert Counter(tuple(row) for p in found for row in p.tolist()) == expected
                assert all(len(p) == most_results for p in found[:-1])
                assert all(0 < len(p) <= most_results for p in found)
            elif step:
                twin.expire(step)
                table.expire(np.array(step, np.int64))
            assert_same_state(table, twin)


@settings(max_examples=500)
@given(scripts(), st.integers(1, 5))
def test_a_key_table_counts_the_combinations_of_each_tuple(
    script: tuple[list[int], list[Step]], piece: int
) -> None:
    ranges, steps = script
    table, twin = KeyTable(np.array(ranges, np.int64)), Twin(ranges)
    timeless = set(ranges) == {UNBOUNDED}
    with patch.object(join_table, "PIECE", piece):
        for step in steps:
            if step and isinstance(step[0], Row):
                expected = [(i, len(twin.add(row))) for i, row in enumerate(step)]
                positions, counts = table.add(*arrays(step))
                found = list(zip(positions.tolist(), counts.tolist(), strict=True))
                assert found == [(i, count) for i, count in expected if count]
            elif step:
                twin.expire([INT64_MIN for _ in ranges] if timeless else step)
                table.expire(np.array(step, np.int64))
            assert_same_state(table, twin)


def test_the_bit_vector_follows_what_streams_hold() -> None:
    """Three stores; an item sells in all of them, then the first sale is forgotten."""
    ranges = [10, 10, 10]
    table = JoinTable(3)
    assert joined(table, [Row(0, 7, 1), Row(0, 8, 2), Row(1, 7, 3)], ranges) == []
    assert (table.entries, table.bits, table.full_entries) == (2, 3, 0)
    (found,) = joined(table, [Row(2, 7, 4)], ranges)
    assert found.tolist() == [[0, 0, 0]]
    assert (table.entries, table.bits, table.full_entries) == (2, 4, 1)
    table.expire(np.array([2, 0, 0]))
    assert (table.entries, table.bits, table.full_entries) == (2, 3, 0)
    assert joined(table, [Row(1, 7, 5)], ranges) == []
    (found,) = joined(table, [Row(0, 7, 6)], ranges)
    assert found.tolist() == [[2, 1, 0], [2, 0, 0]]


def test_a_dead_tuple_between_live_ones_is_not_found_before_the_table_is_rebuilt() -> None:
    table, ranges = JoinTable(2), [UNBOUNDED, UNBOUNDED]
    joined(table, [Row(0, 7, 5), Row(0, 7, 1), Row(0, 7, 6)], ranges)
    before = table.nbytes
    table.expire(np.array([2, 0]))
    assert table.nbytes >= before
    for number in range(2):
        (found,) = joined(table, [Row(1, 7, 0)], ranges)
        assert found.tolist() == [[2, number], [0, number]]


def test_a_key_with_millions_of_combinations_comes_in_pieces_of_bounded_memory() -> None:
    count, most_results = 3_000, 1 << 16
    table = JoinTable(2, most_results)
    streams = np.repeat(np.array([0, 1], np.uint8), count)
    hashes, known = np.zeros(2 * count, np.int64), np.ones(2 * count, np.bool_)
    times, ranges = np.arange(2 * count), np.full(2, UNBOUNDED)
    seen = np.zeros((count, count), np.int64)
    tracemalloc.start()
    for piece in table.add(Arrivals(streams, hashes, known, times), ranges):
        assert len(piece) <= most_results
        np.add.at(seen, tuple(piece.T), 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (seen == 1).all()
    assert peak < 4 * most_results * 2 * 8


def test_tables_grow_past_one_piece_and_shrink_when_tuples_expire() -> None:
    count = 3 * join_table.PIECE
    random = np.random.default_rng(5)
    keys = random.integers(INT64_MIN, INT64_MAX, count)
    order = random.permutation(count)
    table, ranges = JoinTable(2), np.full(2, UNBOUNDED)
    known, times = np.ones(count, np.bool_), np.arange(count)
    small = table.nbytes
    first, second = np.zeros(count, np.uint8), np.ones(count, np.uint8)
    assert list(table.add(Arrivals(first, keys, known, times), ranges)) == []
    found = np.concatenate(list(table.add(Arrivals(second, keys[order], known, times), ranges)))
    assert (found[:, 0] == order).all()
    assert (found[:, 1] == np.arange(count)).all()
    assert table.full_entries == table.entries == count
    table.expire(np.array([count - 10, count]))
    assert table.live.tolist() == [10, 0]
    assert table.first_kept.tolist() == [count - 10, count]
    assert table.nbytes < small + 10_000


def test_a_sliding_window_keeps_its_memory() -> None:
    table, ranges = JoinTable(2), np.full(2, 1_000)
    random = np.random.default_rng(6)
    most = []
    for begin in range(0, 100_000, 500):
        rows = [
            Row(int(s), int(k), begin + i)
            for i, (s, k) in enumerate(random.integers(0, (2, 2**62), (500, 2)))
        ]
        assert joined(table, rows, ranges.tolist()) == []
        table.expire(np.full(2, begin + 500 - 1_000))
        most.append(table.nbytes)
    assert table.live.sum() == 1_000
    assert max(most[100:]) <= max(most[:100])


def test_keys_without_times_are_counted_not_kept() -> None:
    table = KeyTable(np.full(3, UNBOUNDED))
    rows = [Row(stream, 5, time) for time in range(100) for stream in (0, 1)]
    table.add(*arrays(rows[:2]))
    before = table.nbytes
    positions, counts = table.add(*arrays([*rows[2:], Row(2, 5, 0), Row(2, 5, 0)]))
    assert positions.tolist() == [198, 199]
    assert counts.tolist() == [10_000, 10_000]
    assert table.live.tolist() == [100, 100, 2]
    assert table.nbytes - before < 20_000


def test_more_combinations_than_an_integer_holds_are_counted_as_the_largest_one() -> None:
    table = KeyTable(np.full(16, UNBOUNDED))
    rows = [Row(stream, 5, 0) for stream in range(16) for _ in range(32)]
    positions, counts = table.add(*arrays(rows))
    assert positions.tolist() == list(range(15 * 32, 16 * 32))
    assert set(counts.tolist()) == {INT64_MAX}


def test_bounds_that_come_later_hold_for_what_came_before() -> None:
    """There is room that was never written, with anything in it."""
    table, ranges = JoinTable(2), [5, 5]
    with patch.object(join_table, "PIECE", 4):
        joined(table, [Row(0, 7, 1), Row(0, 7, 2), Row(0, 8, 3)], ranges)
        table.expect(100)
        table._table.streams[3:] = 200
        (found,) = joined(table, [Row(1, 7, 6, range=4, wanted=2), Row(1, 7, 7)], ranges)
    assert found.tolist() == [[1, 0], [0, 0], [1, 1]]
