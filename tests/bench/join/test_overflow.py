"""With less memory than tuples: every result once, and the budget kept."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bench.join import overflow
from penstock.bench.join.data import Shape, Tuples, arrivals
from penstock.bench.join.overflow import Outcome, join_within
from penstock.bench.join.runs import biht, digest, results


def joined(tuples: Tuples, streams: int, budget: int, sampled: int = 8) -> Outcome:
    with TemporaryDirectory() as directory:
        return join_within(budget, tuples, streams, sampled, 0, Path(directory))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=60),
    budget=st.integers(0, 70),
    sampled=st.integers(1, 4),
    batch=st.integers(1, 20),
)
def test_every_result_is_found_once_whatever_the_budget(rows, budget, sampled, batch) -> None:
    streams, keys = np.array(rows, np.int64).T.copy()
    tuples = Tuples(streams.astype(np.uint8), keys, np.arange(len(rows)))
    expected = digest(results(biht(3), tuples))
    with patch.object(overflow, "_BATCH", batch):
        outcome = joined(tuples, 3, budget, sampled)
    assert outcome.all == expected
    assert outcome.in_memory.results <= expected.results
    assert outcome.points[-1].results == outcome.in_memory.results
    assert len(rows) - outcome.on_disk <= budget


def test_nothing_is_flushed_within_the_budget() -> None:
    tuples = arrivals(Shape(1, keys=500), seed=0)
    outcome = joined(tuples, 3, budget=len(tuples))
    assert (outcome.stops, outcome.on_disk, outcome.points[-1].flushes) == (0, 0, 0)
    assert outcome.in_memory == outcome.all


def test_one_stop_frees_a_part_of_the_budget() -> None:
    tuples = arrivals(Shape(1, keys=1000), seed=0)
    budget = len(tuples) // 2
    outcome = joined(tuples, 3, budget)
    flushing = sum(after.flushes > before.flushes for before, after in pairwise(outcome.points))
    assert outcome.stops == flushing > 1
    assert len(tuples) - budget <= outcome.on_disk <= len(tuples) - 0.9 * budget


@pytest.mark.parametrize("repeats", [2, 4])
def test_the_most_bits_need_fewer_flushes_than_random_victims(repeats: int) -> None:
    tuples = arrivals(Shape(1, keys=4000, repeats=repeats), seed=0)
    bits, random = (joined(tuples, 3, len(tuples) // 2, sampled) for sampled in (8, 1))
    assert bits.points[-1].flushes < 0.95 * random.points[-1].flushes


def test_keys_that_come_once_give_more_results_before_the_disk_phase() -> None:
    tuples = arrivals(Shape(1, keys=8000, repeats=1), seed=0)
    bits, random = (joined(tuples, 3, len(tuples) // 2, sampled) for sampled in (8, 1))
    assert bits.in_memory.results > 1.2 * random.in_memory.results
