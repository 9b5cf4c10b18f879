"""Every result once, whatever room there is, wherever a bucket goes, whatever runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.kernels import join_bucket, key_bucket
from penstock.kernels.columns import INT64_MAX
from penstock.kernels.join_bucket import SLOTS, TIME, Combinations, Windows
from penstock.plan.specs import SlotSpec, WindowSpec
from penstock.runtime.config import SHIFT_US
from penstock.runtime.joining import book as books
from penstock.runtime.joining import turn as turns
from penstock.runtime.joining.book import Book
from penstock.runtime.joining.chunk_codec import to_blob
from penstock.runtime.joining.tables import WarmTables
from penstock.runtime.joining.turn import MOST_BYTES, Arrived, Turn
from penstock.runtime.joining.windows import reach_us, window_rows

Tuple = tuple[int, int, int]  # input, key, time
RANGES = (6, 3, INT64_MAX)


def schema(key_only: bool) -> pa.Schema:
    fields = [("__k0", pa.int64()), (TIME, pa.int64()), (SLOTS, pa.list_(pa.int32()))]
    return pa.schema(fields if key_only else [*fields, ("id", pa.int64())])


def arrivals(
    batch: list[tuple[int, Tuple]],
    key_only: bool,
    closed_us: int,
    at_once: int = 2,
    wanted: dict[int, list[int]] | None = None,
) -> list[Arrived]:
    """wanted: the slots of each tuple, by its id."""
    found = []
    for input_ in sorted({t[0] for _, t in batch}):
        mine = [(id_, key, time) for id_, (i, key, time) in batch if i == input_]
        columns: dict[str, Any] = {
            "__k0": [m[1] for m in mine],
            TIME: [m[2] for m in mine],
            SLOTS: [[7] if wanted is None else wanted[m[0]] for m in mine],
        }
        if not key_only:
            columns["id"] = [m[0] for m in mine]
        rows = pa.RecordBatch.from_pydict(columns, schema(key_only))
        found += [  # as from several tasks
            Arrived(input_, 1, closed_us, to_blob(rows.slice(begin, at_once)))
            for begin in range(0, len(mine), at_once)
        ]
    return found


@dataclass
class Bucket:
    """A bucket's state as Spark has it: what a turn changed counts when it is committed."""

    streams: int
    key_only: bool
    prompt: bool = False
    chunks: dict[int, bytes] = field(default_factory=dict)
    book: Book = field(init=False)

    def __post_init__(self) -> None:
        self.book = Book.empty(self.streams)

    def turn(
        self,
        arrived: list[Arrived],
        in_round: bool,
        warm: WarmTables,
        most_bytes: int = MOST_BYTES,
        commit: bool = True,
        ranges: tuple[int, ...] = RANGES,
        slots: dict[int, list[int]] | None = None,
    ) -> list[tuple[int, ...]]:
        """slots: with the ranges of each; results then end with the slot that they are for.
        None: there is one, with `ranges`."""
        chunks, book = dict(self.chunks), deepcopy(self.book)
        found: list[tuple[int, ...]] = []
        several = slots is not None
        slots = {7: list(ranges[: self.streams])} if slots is None else slots
        reaching = np.array(list(slots.values()), np.int64).reshape(-1, self.streams)
        windows = Windows(np.array(list(slots), np.int64), reaching)

        def pack(combinations: Combinations) -> Iterator[bytes]:
            name = "__k0" if self.key_only else "id"
            rows = zip(*(m.column(name).to_pylist() for m in combinations.members), strict=True)
            for row, wanting in zip(rows, combinations.slots.to_pylist(), strict=True):
                found.extend([(*row, slot) for slot in wanting] if several else [row])
            yield b"x" * 100 * len(combinations)

        schemas = [schema(self.key_only)] * self.streams
        store = _Store(chunks)
        turn = Turn(("ring", 0), schemas, self.prompt, book, store, warm, most_bytes)
        list(turn.run(arrived, in_round, windows, pack))
        assert set(chunks) == {c.number for c in book.chunks}
        if commit:
            self.chunks, self.book = chunks, Book.loads(book.dumps())
        return found


@dataclass
class _Store:
    chunks: dict[int, bytes]

    def get(self, number: int) -> bytes:
        return self.chunks[number]

    def put(self, number: int, tuples: bytes) -> None:
        self.chunks[number] = tuples

    def remove(self, number: int) -> None:
        del self.chunks[number]


def expected(tuples: list[tuple[int, Tuple]], streams: int, key_only: bool) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for members in product(*([t for t in tuples if t[1][0] == i] for i in range(streams))):
        latest = max(time for _, (_, _, time) in members)
        ranges = RANGES[:streams]
        near = all(latest - m[1][2] <= r for m, r in zip(members, ranges, strict=True))
        if near and len({key for _, (_, key, _) in members}) == 1:
            found[tuple(key if key_only else id_ for id_, (_, key, _) in members)] += 1
    return found


def ran(
    data: st.DataObject,
    bucket: Bucket,
    tuples: list[tuple[int, Tuple]],
    workers: list[WarmTables],
    most_bytes: int,
) -> list[tuple[int, ...]]:
    """The results of tuples that come in some batches, of which some run again."""
    found: list[tuple[int, ...]] = []
    rest = tuples
    while rest:
        size = data.draw(st.integers(1, 6))
        batch, rest = rest[:size], rest[size:]
        # nothing is late: the punctuation stays below all that comes
        closed_us = min(time for _, (_, _, time) in batch + rest)
        arrived = arrivals(batch, bucket.key_only, closed_us)
        in_round = data.draw(st.booleans())
        failed = [
            bucket.turn(
                data.draw(st.permutations(arrived)),
                in_round,
                data.draw(st.sampled_from(workers)),
                most_bytes,
                commit=False,
            )
            for _ in range(data.draw(st.integers(0, 2)))
        ]
        results = bucket.turn(arrived, in_round, data.draw(st.sampled_from(workers)), most_bytes)
        assert all(sorted(each) == sorted(results) for each in failed)
        found += results
        if bucket.prompt:
            assert not bucket.book.waiting
    for _ in range(len(tuples) + 1):
        found += bucket.turn([], True, data.draw(st.sampled_from(workers)), most_bytes)
    assert not bucket.book.waiting
    return found


@settings(max_examples=150)
@given(st.data(), st.integers(2, 3), st.booleans(), st.booleans())
def test_every_result_once(data: st.DataObject, streams: int, key_only: bool, prompt: bool) -> None:
    tuple_ = st.tuples(st.integers(0, streams - 1), st.integers(0, 2), st.integers(0, 20))
    tuples = list(enumerate(data.draw(st.lists(tuple_, max_size=24))))
    memory = data.draw(st.sampled_from([0, 600, 1_500, 10**6]))
    most_bytes = 10**9 if prompt else data.draw(st.sampled_from([50, 300, 10**6]))
    workers = [WarmTables(memory, rng=np.random.default_rng(i)) for i in range(2)]
    bucket = Bucket(streams, key_only, prompt)
    piece_bytes = data.draw(st.sampled_from([1, 150, 2**26]))
    with patch.object(join_bucket, "_PIECE_BYTES", piece_bytes):
        found = ran(data, bucket, tuples, workers, most_bytes)
    assert Counter(found) == expected(tuples, streams, key_only)


@settings(max_examples=150)
@given(st.data(), st.booleans(), st.booleans())
def test_queries_come_and_go_and_no_worker_finds_anything_else(
    data: st.DataObject, key_only: bool, leave: bool
) -> None:
    """With any memory, late tuples, longer RANGEs. If all stay and none is late, none is missed."""
    workers = [
        WarmTables(data.draw(st.sampled_from([0, 1_500, 10**6])), rng=np.random.default_rng(i))
        for i in range(2)
    ]
    bucket, slots = Bucket(2, key_only), dict[int, list[int]]()
    known, wanted = list[tuple[int, Tuple]](), dict[int, list[int]]()
    found = list[tuple[int, ...]]()
    for step in range(8):
        if leave and slots and data.draw(st.booleans()):
            del slots[data.draw(st.sampled_from(sorted(slots)))]
        elif step == 0 or data.draw(st.booleans()):
            ranges = st.sampled_from([0, 3, 20, INT64_MAX])
            slots[1 + step] = [data.draw(ranges), data.draw(ranges)]
        time = st.integers(0 if leave else 10 * step, 10 * step + 9)
        tuple_ = st.tuples(st.integers(0, 1), st.integers(0, 1), time)
        batch = list(enumerate(data.draw(st.lists(tuple_, max_size=5)), len(known)))
        batch = batch if slots else []
        some = st.lists(st.sampled_from(sorted(slots) or [0]), unique=True, min_size=1).map(sorted)
        wanted |= {id_: data.draw(some) for id_, _ in batch}
        known += batch
        arrived = arrivals(batch, key_only, 10 * step, wanted=wanted)
        in_round, most_bytes = data.draw(st.booleans()), data.draw(st.sampled_from([50, 10**6]))
        results = [
            bucket.turn(arrived, in_round, worker, most_bytes, worker is last, slots=slots)
            for last in [data.draw(st.sampled_from(workers))]
            for worker in (WarmTables(), *(w for w in workers if w is not last), last)
        ]
        assert all(sorted(each) == sorted(results[0]) for each in results)
        found += results[0]
    for _ in range(len(known) + 1):
        found += bucket.turn([], True, workers[0], slots=slots)
    assert not bucket.book.waiting
    if not leave:
        pairs = [
            (*(key if key_only else id_ for id_, (_, key, _) in pair), slot)
            for pair in product(*([t for t in known if t[1][0] == i] for i in (0, 1)))
            if len({key for _, (_, key, _) in pair}) == 1
            for slot in set(wanted[pair[0][0]]) & set(wanted[pair[1][0]])
            for latest in [max(time for _, (_, _, time) in pair)]
            if all(latest - pair[i][1][2] <= slots[slot][i] for i in (0, 1))
        ]
        assert Counter(found) == Counter(pairs)


def test_tables_made_for_tuples_that_waited_know_none_that_others_would_not() -> None:
    """A longer RANGE has come meanwhile, and what was forgotten before stays so."""
    warm, bucket = WarmTables(), Bucket(2, key_only=False)
    first = arrivals([(1, (0, 1, 100)), (2, (0, 1, 600))], False, 0)
    assert bucket.turn(first, False, warm, ranges=(100, 100)) == []
    pairs = [(n, (n % 2, 9, 700 + n // 5)) for n in (3, 4, 5, 6)]
    bucket.turn(arrivals(pairs, False, 700), False, warm, 50, ranges=(100, 100))
    assert bucket.book.waiting
    long = (650, 650)
    bucket.turn(arrivals([(7, (1, 8, 700))], False, 700), False, warm, ranges=long)
    for _ in range(5):
        bucket.turn([], True, warm, ranges=long)
    late = arrivals([(8, (1, 1, 120))], False, 700)
    for worker in (warm, WarmTables()):
        assert bucket.turn(late, False, worker, commit=False, ranges=long) == [(2, 8)]


@pytest.mark.parametrize("key_only", [False, True])
def test_tuples_that_only_dropped_queries_wanted_go(key_only: bool) -> None:
    warm, bucket, ever = WarmTables(), Bucket(2, key_only), [INT64_MAX, INT64_MAX]
    for n in range(100):  # each query lives for one micro-batch, but for the first
        wanted = {n: [1000], 1000 + n: [n]}
        batch = arrivals([(n, (0, n, n)), (1000 + n, (0, n, n))], key_only, n, wanted=wanted)
        bucket.turn(batch, False, warm, slots={n: ever, 1000: ever})
    assert 100 <= sum(chunk.rows for chunk in bucket.book.chunks) < 120
    met = arrivals([(5000, (1, 3, 3))], key_only, 99, wanted={5000: [1000]})
    found = bucket.turn(met, False, WarmTables(), slots={1000: ever})
    assert found == [(3, 3, 1000) if key_only else (3, 5000, 1000)]
    for n in range(200, 300):  # nobody wants what is there, nor what comes
        batch = arrivals([(n, (0, n, n))], key_only, n, wanted={n: [n - 1]})
        bucket.turn(batch, False, warm, slots={n: ever})
    assert sum(chunk.rows for chunk in bucket.book.chunks) < 40


@pytest.mark.parametrize("key_only", [False, True])
def test_with_a_longer_range_late_tuples_meet_each_other_but_nobody_forgotten(
    key_only: bool,
) -> None:
    warm, cold, long = WarmTables(), WarmTables(), (100, 100)
    bucket = Bucket(2, key_only)
    first = [(0, (0, 1, 10)), (1, (0, 2, 40))]  # of which one is forgotten, in a chunk that stays
    assert bucket.turn(arrivals(first, key_only, 0), False, warm) == []
    assert bucket.turn(arrivals([(2, (1, 2, 41))], key_only, 30), False, warm) != []
    assert bucket.book.limits_us == [24, 27]
    late = arrivals([(3, (1, 1, 12)), (4, (1, 3, 15))], key_only, 30)
    for worker in (cold, warm):
        assert bucket.turn(late, False, worker, commit=worker is warm, ranges=long) == []
    assert bucket.book.limits_us == [-70, -70]
    more = arrivals([(5, (0, 3, 16)), (6, (0, 1, 17))], key_only, 30)
    for worker in (warm, cold):
        found = bucket.turn(more, False, worker, commit=False, ranges=long)
        assert sorted(found) == ([(1, 1), (3, 3)] if key_only else [(5, 4), (6, 3)])


def test_a_bucket_without_room_waits_for_a_round_and_comes_back() -> None:
    warm = WarmTables(most_bytes=0)
    bucket = Bucket(2, key_only=False)
    first, second = (arrivals([(n, (n, 1, 5))], False, 0) for n in (0, 1))
    assert bucket.turn(first, False, warm) == []
    assert (bucket.book.flushed, bucket.book.flushes, warm.kept) == (True, 1, {})
    assert bucket.turn(second, False, warm) == []
    assert bucket.book.waiting == 1
    warm.most_bytes = 10**6
    assert bucket.turn([], True, warm) == [(0, 1)]
    assert not bucket.book.flushed
    assert bucket.turn([], True, warm) == []
    assert len(warm.kept) == 1


def test_many_small_chunks_become_few() -> None:
    warm = WarmTables()
    bucket = Bucket(2, key_only=False)
    for n in range(400):
        more = [(1000 + i, (n % 2, 1000 * n + i, 1)) for i in range(500 * (n % 3))]  # of any size
        tuples = [(n, (n % 2, n // 2, 1)), *more]
        found = bucket.turn(arrivals(tuples, False, 0, 400), False, warm)
        assert len(found) == n % 2
    assert len(bucket.book.chunks) < 4 * 2 * books._MERGED
    assert sum(c.rows for c in bucket.book.chunks) > 400
    again = WarmTables()  # another worker
    found = bucket.turn(arrivals([(400, (0, 3, 2))], False, 0), False, again)
    assert found == [(400, 7)]


def test_chunks_that_are_large_in_memory_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(books, "_RAW_BYTES", 1_000)
    monkeypatch.setattr(turns, "_MOST_RAW_BYTES", 1_500)
    warm, bucket = WarmTables(), Bucket(2, key_only=False)
    for n in range(100):
        same = [(7, (0, 5, 1))] * (40 if n < 50 else 1)  # which compresses well
        bucket.turn(arrivals(same, False, 0, 20), False, warm)
    assert max(c.raw_bytes for c in bucket.book.chunks) < 16 * 1_000
    assert 50 < len(bucket.book.chunks) < 60
    assert sum(c.rows for c in bucket.book.chunks) == 50 * 41
    found = bucket.turn(arrivals([(8, (1, 5, 1))], False, 0), False, WarmTables())
    assert found == [(7, 8)] * 50 * 41


def test_what_waits_has_its_turn_even_if_inputs_never_pause() -> None:
    warm = WarmTables(most_bytes=0)
    bucket = Bucket(2, key_only=False)
    found = []
    for n in range(600):
        found += bucket.turn(arrivals([(n, (n % 2, n // 2, 1))], False, 0), False, warm)
        assert bucket.book.waiting < 200
    assert len(found) > 100


def test_one_tuple_with_too_many_partners_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (join_bucket, key_bucket):
        monkeypatch.setattr(module, "MOST_OF_ONE", 10)
    for key_only in (False, True):
        bucket, warm = Bucket(2, key_only), WarmTables()
        bucket.turn(arrivals([(n, (0, 1, 5)) for n in range(50)], key_only, 0), False, warm)
        with pytest.raises(PenstockError, match=r"completes 50 combinations"):
            bucket.turn(arrivals([(99, (1, 1, 5))], key_only, 0), False, warm)


def test_windows_cannot_wait() -> None:
    bucket, warm = Bucket(2, key_only=False, prompt=True), WarmTables()
    tuples = [(n, (n % 2, 1, 5)) for n in range(100)]
    with pytest.raises(PenstockError, match="windows over a join"):
        bucket.turn(arrivals(tuples, False, 0), False, warm, most_bytes=1000)


def test_windows_of_a_piece_are_made_some_at_a_time_and_too_many_are_not_made() -> None:
    slots = np.array([1, 2, 1])
    latest_us, until_us = np.array([4, 11, 7]), np.array([34, 13, 9])
    specs = {
        1: SlotSpec(1, (), WindowSpec(30, 10)),
        2: SlotSpec(2, (), WindowSpec(10, 1)),
    }

    def ends(most: int, most_in_all: int = 100) -> list[list[tuple[int, int]]]:
        found = window_rows(slots, latest_us, until_us, specs, most, most_in_all)
        times = ((pair, own["__end"].cast(pa.int64()).to_numpy() - SHIFT_US) for pair, own in found)
        return [list(zip(p.tolist(), t.tolist(), strict=True)) for p, t in times]

    whole = [(0, 10), (0, 20), (0, 30), (1, 12), (1, 13)]
    assert ends(100) == [whole]
    for most in (1, 2, 3, 4):
        assert ends(most) == [whole[n : n + most] for n in range(0, 5, most)]
    with pytest.raises(PenstockError, match="windows over a join"):
        ends(2, most_in_all=4)
    until_us[0] = INT64_MAX
    with pytest.raises(PenstockError, match="windows over a join"):
        ends(2, most_in_all=2**30)


def test_a_range_reaches_no_further_than_time_goes() -> None:
    times_us = np.array([5, INT64_MAX - 5, -5, 5])
    ranges_us = np.array([10, 10, 10, INT64_MAX])
    assert reach_us(times_us, ranges_us).tolist() == [15, INT64_MAX, 5, INT64_MAX]
