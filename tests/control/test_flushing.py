"""Which parts of a join leave memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.flushing import SAMPLED, Candidate, choose_victims

FEW = [Candidate(1, bits=3, nbytes=10), Candidate(2, bits=9, nbytes=20), Candidate(3, 9, 30)]
candidates = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50)), max_size=40).map(
    lambda pairs: [Candidate(number, *pair) for number, pair in enumerate(pairs)]
)


def chosen(parts: Sequence[Candidate], excess: int, sampled: int, seed: int = 0) -> list[int]:
    return choose_victims(parts, excess, sampled, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("excess", "victims"),
    [(-5, []), (0, []), (1, [3]), (30, [3]), (31, [3, 2]), (51, [3, 2, 1]), (99, [3, 2, 1])],
)
def test_most_bits_first_then_the_larger_until_the_excess_is_covered(excess, victims) -> None:
    assert chosen(FEW, excess, sampled=3) == victims


@given(candidates, st.integers(-5, 900), st.integers(1, 50), st.integers(0, 9))
def test_victims_cover_the_excess_and_the_last_one_is_needed(parts, excess, sampled, seed) -> None:
    victims = chosen(parts, excess, sampled, seed)
    sizes = [parts[victim].nbytes for victim in victims]
    assert len(set(victims)) == len(victims)
    assert sum(sizes) >= excess or len(victims) == len(parts)
    assert not victims or sum(sizes[:-1]) < excess


def test_one_drawn_part_is_any_part() -> None:
    parts = [Candidate(number, bits=number, nbytes=1) for number in range(4)]
    first = [chosen(parts, 1, sampled=1, seed=seed)[0] for seed in range(400)]
    assert min(np.bincount(first)) > 60


def test_a_sample_is_enough_to_find_many_bits() -> None:
    parts = [Candidate(number, bits=number, nbytes=1) for number in range(1000)]
    first = [chosen(parts, 1, SAMPLED, seed)[0] for seed in range(200)]
    assert 800 < np.mean(first) < 950  # the expected best of eight is 8 / 9 of the way up


def test_the_same_randomness_makes_the_same_choice() -> None:
    parts = [Candidate(number, bits=1, nbytes=1) for number in range(100)]
    assert chosen(parts, 30, 4) == chosen(parts, 30, 4)
    assert chosen(parts, 30, 4) != chosen(parts, 30, 4, seed=1)
