"""Combinations with their slots, against nested loops over all tuples."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels import join_bucket
from penstock.kernels.columns import INT64_MAX
from penstock.kernels.join_bucket import (
    SLOTS,
    TIME,
    Combinations,
    JoinBucket,
    TooManyCombinations,
    Windows,
)
from penstock.kernels.join_slots import ascending_slots
from penstock.kernels.tuple_store import TupleStore

Tuple = tuple[Any, int, list[int], int]  # key, time, slots, id
RANGES = st.sampled_from([0, 1, 3, 10, INT64_MAX])
STRING = pa.string()
SLOT_SETS = st.lists(st.integers(1, 3), unique=True, min_size=1)  # in any order


def schema(key: pa.DataType) -> pa.Schema:
    return pa.schema(
        [("__k0", key), (TIME, pa.int64()), (SLOTS, pa.list_(pa.int32())), ("id", pa.int64())]
    )


def batch_of(tuples: list[Tuple], key: pa.DataType) -> pa.RecordBatch:
    columns = list(zip(*tuples, strict=True)) or [[], [], [], []]
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema(key), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema(key))


def found_in(combinations: list[Combinations]) -> list[tuple[tuple[int, ...], list[int]]]:
    found = []
    for each in combinations:
        ids = zip(*(member.column("id").to_pylist() for member in each.members), strict=True)
        found += list(zip(ids, each.slots.to_pylist(), strict=True))
    return sorted(found)


def expected(
    inputs: list[list[Tuple]], windows: dict[int, list[int]]
) -> list[tuple[tuple[int, ...], list[int]]]:
    found = []
    for members in product(*inputs):
        latest = max(time for _, time, _, _ in members)
        keys = {key for key, _, _, _ in members}
        slots = [
            slot
            for slot, ranges in windows.items()
            if all(slot in wanted for _, _, wanted, _ in members)
            and all(latest - m[1] <= r for m, r in zip(members, ranges, strict=True))
        ]
        if len(keys) == 1 and slots:
            found.append((tuple(id_ for _, _, _, id_ in members), sorted(slots)))
    return sorted(found)


@given(st.data(), st.integers(2, 4), st.booleans())
def test_combinations_are_those_of_nested_loops(
    data: st.DataObject, count: int, texts: bool
) -> None:
    keys = st.sampled_from(["a", "b", "", "ü"]) if texts else st.integers(-1, 1)
    key = pa.string() if texts else pa.int64()
    tuples = st.lists(st.tuples(keys, st.integers(0, 12), SLOT_SETS, st.integers()), max_size=6)
    inputs = [data.draw(tuples) for _ in range(count)]
    inputs = [
        [(k, t, s, 10 * n + i) for n, (k, t, s, _) in enumerate(mine)]
        for i, mine in enumerate(inputs)
    ]
    live = data.draw(st.lists(st.integers(1, 3), unique=True))
    windows = {s: data.draw(st.lists(RANGES, min_size=count, max_size=count)) for s in sorted(live)}
    given_windows = Windows(
        np.array(sorted(live), np.int64),
        np.array([windows[s] for s in sorted(live)], np.int64).reshape(-1, count),
    )
    bucket = JoinBucket([schema(key)] * count)
    found: list[Combinations] = []
    pieces = [(i, n) for i, mine in enumerate(inputs) for n in range(0, len(mine), 2)]
    for i, n in data.draw(st.permutations(pieces)):
        added = bucket.add(i, batch_of(inputs[i][n : n + 2], key), given_windows)
        found += [piece.combinations for piece in added]
    assert found_in(found) == expected(inputs, windows)


@given(st.lists(st.lists(st.integers(0, 99), unique=True, max_size=40), max_size=6))
def test_slots_of_each_row_ascend(lists: list[list[int]]) -> None:
    found = ascending_slots(pa.array([[9, 8], *lists], pa.list_(pa.int32())).slice(1))
    assert found.to_pylist() == [sorted(each) for each in lists]


def test_what_was_loaded_is_found_by_what_comes_and_what_expired_is_not() -> None:
    windows = Windows(np.array([1]), np.array([[100, 100]]))
    bucket = JoinBucket([schema(pa.int64())] * 2)
    bucket.load(0, batch_of([(5, 0, [1], 1), (5, 50, [1], 2)], pa.int64()), windows)
    bucket.load(1, batch_of([(5, 10, [1], 3)], pa.int64()), windows)
    added = bucket.add(1, batch_of([(5, 60, [1], 4)], pa.int64()), windows)
    found = [piece.combinations for piece in added]
    assert found_in(found) == [((1, 4), [1]), ((2, 4), [1])]
    bucket.expire(np.array([20, 20]))
    added = bucket.add(0, batch_of([(5, 61, [1], 5)], pa.int64()), windows)
    found = [piece.combinations for piece in added]
    assert found_in(found) == [((5, 4), [1])]


def test_combinations_of_a_tuple_come_together_wherever_pieces_end() -> None:
    pieces = [[[0, 5], [0, 6]], [[1, 5], [1, 6]], [[1, 7], [2, 5]], [[2, 6], [2, 7]]]
    bucket = JoinBucket([schema(pa.int64())] * 2)
    found = bucket._whole_rows((np.array(p) for p in pieces), 0, lambda numbers: numbers)
    assert [(rows.tolist(), last) for rows, last in found] == [
        ([[0, 5], [0, 6]], 1),
        ([[1, 5], [1, 6], [1, 7]], 2),
        ([[2, 5], [2, 6], [2, 7]], None),
    ]


def test_more_combinations_of_a_tuple_than_there_may_be_are_an_error_that_tells_for_whom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_bucket, "MOST_OF_ONE", 10)
    windows = Windows(np.array([1, 2, 3]), np.array([[100, 100], [0, 0], [100, 100]]))
    bucket = JoinBucket([schema(pa.int64())] * 2)
    bucket.load(0, batch_of([(5, n, [1, 2], n) for n in range(11)], pa.int64()), windows)
    with pytest.raises(TooManyCombinations, match="completes 11 combinations") as caught:
        list(bucket.add(1, batch_of([(5, 10, [1, 2, 3], 0)], pa.int64()), windows))
    assert caught.value.slots == [1]  # of the other, one of them


@given(st.data(), st.sampled_from([1, 3, 8]))
def test_only_combinations_that_somebody_wants_can_be_too_many(
    data: st.DataObject, most: int
) -> None:
    """Slots that share a bit, that reach further for other tuples, or that were dropped."""
    slots = st.lists(st.sampled_from([1, 2, 3, 65, 66]), unique=True, min_size=1)
    tuples = st.lists(st.tuples(st.just("k"), st.integers(0, 12), slots), max_size=6)
    inputs = [[(*t, n) for n, t in enumerate(data.draw(tuples))] for _ in range(3)]
    live = sorted(data.draw(slots))
    windows = {s: data.draw(st.lists(RANGES, min_size=3, max_size=3)) for s in live}
    given_windows = Windows(np.array(live), np.array([windows[s] for s in live]))
    bucket, found = JoinBucket([schema(STRING)] * 3), list[Combinations]()
    wanted = expected(inputs, windows)
    arriving = [sum(ids[2] == n for ids, _ in wanted) for n in range(len(inputs[2]))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_bucket, "MOST_OF_ONE", most)
        for i, mine in enumerate(inputs[:2]):
            found += [p.combinations for p in bucket.add(i, batch_of(mine, STRING), given_windows)]
        added = bucket.add(2, batch_of(inputs[2], STRING), given_windows)
        if max(arriving, default=0) > most:
            with pytest.raises(TooManyCombinations) as caught:
                list(added)
            assert set() < set(caught.value.slots) <= set(live)
        else:
            found += [piece.combinations for piece in added]
            assert found_in(found) == wanted


def test_what_one_slot_keeps_costs_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One reaches far and wants none of the tuples; the other wants all, and only the newest."""
    monkeypatch.setattr(join_bucket, "MOST_OF_ONE", 10)
    windows = Windows(np.array([1, 65, 66]), np.array([[10**9] * 3, [0] * 3, [10**9] * 3]))
    bucket = JoinBucket([schema(pa.int64())] * 3)
    for input_ in (0, 1):
        tuples = [(5, n, [65], n) for n in range(1000)]
        tuples += [(5, n, [66], n) for n in range(input_, 1000, 2)]
        assert not list(bucket.add(input_, batch_of(tuples, pa.int64()), windows))
    added = bucket.add(2, batch_of([(5, 999, [1, 65], 7)], pa.int64()), windows)
    assert found_in([piece.combinations for piece in added]) == [((999, 999, 7), [65])]


def test_wide_tuples_are_combined_in_pieces_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_bucket, "_PIECE_BYTES", 10_000)
    windows = Windows(np.array([1]), np.array([[100, 100]]))
    wide = schema(pa.int64()).append(pa.field("text", pa.string()))

    def texts(sizes: list[int]) -> pa.RecordBatch:
        tuples = batch_of([(5, 0, [1], n) for n in range(len(sizes))], pa.int64())
        return tuples.append_column("text", pa.array(["x" * size for size in sizes]))

    bucket = JoinBucket([wide] * 2)
    bucket.load(0, texts([10] * 29 + [1000]), windows)
    pieces = list(bucket.add(1, texts([10, 20_000, 100, 900, 10]), windows))
    assert all(p.combinations.members[1].nbytes < 30_000 for p in pieces)
    found = found_in([piece.combinations for piece in pieces])
    assert found == sorted(((a, b), [1]) for a in range(30) for b in range(5))
    ids = [set(p.combinations.members[1].column("id").to_pylist()) for p in pieces]
    assert len([i for i in ids if i == {1}]) == 30  # one by one
    ends = [p.through for p in pieces]
    assert ends == [
        None if i & j else max(i) + 1 for i, j in zip(ids, [*ids[1:], set()], strict=True)
    ]
    assert None in ends
    assert ends[0] == 1
    monkeypatch.setattr(join_bucket, "_MOST_BYTES", 10**6)
    with pytest.raises(TooManyCombinations, match="completes 30 combinations"):
        list(bucket.add(1, texts([10, 40_000]), windows))  # though most tuples are small


def test_a_bucket_that_holds_mostly_dead_tuples_is_wasteful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_bucket, "_MUCH", 10)
    windows = Windows(np.array([1]), np.array([[100, 100]]))
    bucket = JoinBucket([schema(pa.int64())] * 2)
    bucket.load(0, batch_of([(0, 10**9, [1], 0)], pa.int64()), windows)  # far ahead
    for n in range(1, 20):
        bucket.load(0, batch_of([(n, n, [1], n)], pa.int64()), windows)
    assert not bucket.wasteful
    bucket.expire(np.array([100, 100]))
    assert bucket.wasteful


@given(st.data())
def test_a_store_gives_tuples_in_any_order(data: st.DataObject) -> None:
    store = TupleStore(pa.schema([("x", pa.int64()), ("s", pa.string())]))
    rows = list[dict[str, object]]()
    for size in data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=8)):
        new = [
            {"x": n, "s": None if n % 3 else f"s{n}"} for n in range(len(rows), len(rows) + size)
        ]
        store.append(
            pa.RecordBatch.from_pylist(new, pa.schema([("x", pa.int64()), ("s", "string")]))
        )
        rows += new
    first = data.draw(st.integers(0, len(rows)))
    store.drop_before(first)
    numbers = data.draw(st.lists(st.integers(first, len(rows) - 1))) if first < len(rows) else []
    taken = store.take(np.array(numbers, np.int64))
    assert taken.to_pylist() == [rows[n] for n in numbers]
    some = store.take(np.array(numbers, np.int64), ["s"])
    assert some.to_pylist() == [{"s": rows[n]["s"]} for n in numbers]


def test_a_store_keeps_few_batches_and_forgets_from_the_front() -> None:
    store = TupleStore(pa.schema([("x", pa.int64())]))
    for n in range(100):
        store.append(pa.record_batch({"x": [2 * n, 2 * n + 1]}))
    assert len(store._batches) < 10
    assert store.take(np.array([7, 199, 0])).column("x").to_pylist() == [7, 199, 0]
    before = store.nbytes
    store.drop_before(150)
    assert store.nbytes < before
    assert store.take(np.array([150, 199])).column("x").to_pylist() == [150, 199]
    assert TupleStore(pa.schema([("x", pa.int64())])).take(np.array([], np.int64)).num_rows == 0
