"""All joins against trying every combination, whatever the batches."""

from __future__ import annotations

from itertools import chain, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bench.join import runs
from penstock.bench.join.structures import Chain, MJoin, _rarest_first
from penstock.kernels.join_keys import join_keys

JOINS = {
    "biht": runs.biht,
    "mjoin": runs.mjoin,
    "chain": runs.chain,
    "with other": runs.with_other(runs.mjoin, 8),
}
KEY_JOINS = {
    "key table": runs.key_table,
    "counting mjoin": runs.counting_mjoin,
    "key of mjoin": runs.key_of_first(runs.mjoin, 200),
}
Rows = list[tuple[int, int]]


@st.composite
def inputs(draw) -> tuple[int, list[Rows]]:
    """A number of streams, and batches of (stream, key)."""
    streams = draw(st.integers(2, 5))
    rows = st.tuples(st.integers(0, streams - 1), st.integers(-2, 5))
    return streams, draw(st.lists(st.lists(rows, max_size=25), max_size=4))


def batch(rows: Rows) -> runs.Batch:
    streams, keys = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    found = join_keys([pa.array(keys)])
    return runs.Batch(
        streams.astype(np.uint8), keys, found.hashes, found.known, np.arange(len(rows))
    )


def combinations(streams: int, rows: Rows) -> list[tuple[tuple[int, ...], int]]:
    """Numbers of the tuples with equal keys, and the key."""
    by_stream = [[key for stream, key in rows if stream == wanted] for wanted in range(streams)]
    numbered = [list(enumerate(keys)) for keys in by_stream]
    return [
        (tuple(number for number, _ in members), members[0][1])
        for members in product(*numbered)
        if len({key for _, key in members}) == 1
    ]


@settings(max_examples=60)
@given(inputs())
def test_every_join_finds_every_combination_once(given) -> None:
    streams, batches = given
    expected = sorted(n for n, _ in combinations(streams, list(chain.from_iterable(batches))))
    for name, new in JOINS.items():
        join = new(streams)
        pieces = [piece for rows in batches for piece in join(batch(rows))]
        assert sorted(tuple(row) for piece in pieces for row in piece.tolist()) == expected, name


@settings(max_examples=60)
@given(inputs())
def test_joins_that_only_want_the_key_find_it_as_often(given) -> None:
    streams, batches = given
    expected = sorted(key for _, key in combinations(streams, list(chain.from_iterable(batches))))
    for name, new in KEY_JOINS.items():
        join = new(streams)
        found = [key for rows in batches for keys in join(batch(rows)) for key in keys.tolist()]
        assert sorted(found) == expected, name


@pytest.mark.parametrize("new", [MJoin, Chain])
def test_tables_grow_with_keys_and_with_tuples_of_one_key(new) -> None:
    join = new(3)
    keys = np.arange(3000)
    for stream in range(2):
        streams = np.full(keys.size, stream, np.uint8)
        assert len(join.add(streams, keys, keys)) == 0
    assert len(join.add(np.full(keys.size, 2, np.uint8), keys, keys)) == 3000
    same = np.zeros(40, np.int64)
    assert len(join.add(np.zeros(40, np.uint8), same, same)) == 40
    assert len(join.add(np.ones(40, np.uint8), same, same)) == 40 * 41
    assert len(join.add(np.full(40, 2, np.uint8), same, same)) == 40 * 41 * 41


def test_mjoin_asks_until_a_table_has_no_match() -> None:
    join = MJoin(3)
    one, key = np.array([0], np.uint8), np.array([7])
    join.add(one, key, key)
    assert join.looks == 1
    join.add(one + 1, key, key)  # asks stream 0, then stream 2
    assert join.looks == 3
    join.add(one + 2, key, key)
    assert join.looks == 5


def test_each_stream_asks_first_where_matches_were_rarest() -> None:
    asked_and_matched = [(0, 0), (10, 9), (10, 2), (10, 1), (0, 0), (10, 3), (4, 4), (0, 0), (0, 0)]
    assert _rarest_first(np.array(asked_and_matched), 3).tolist() == [[2, 1], [0, 2], [1, 0]]
