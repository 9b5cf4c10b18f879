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
    batch: list[tuple[int, Tuple]], key_only: bool, closed_us: int, at_once: int = 2
) -> list[Arrived]:
    found = []
    for input_ in sorted({t[0] for _, t in batch}):
        mine = [(id_, key, time) for id_, (i, key, time) in batch if i == input_]
        columns: dict[str, Any] = {
            "__k0": [m[1] for m in mine],
            TIME: [m[2] for m in mine],
            SLOTS: [[7] for _ in mine],
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
    ) -> list[tuple[int, ...]]:
        chunks, book = dict(self.chunks), deepcopy(self.book)
        found: list[tuple[int, ...]] = []
        windows = Windows(np.array([7]), np.array([ranges[: self.streams]]))

        def pack(combinations: Combinations) -> Iterator[bytes]:
            name = "__k0" if self.key_only else "id"
            found.extend(
                zip(*(m.column(name).to_pylist() for m in combinations.members), strict=True)
            )
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
