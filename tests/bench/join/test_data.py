"""The streams have the selectivity that they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.bench.join.data import Shape, arrivals
from penstock.bench.join.runs import batches, biht, digest, results
from penstock.bench.join.structures import MJoin

SELECTIVITIES = (0.25, 0.5, 1.0)


@pytest.mark.parametrize("selectivity", SELECTIVITIES)
def test_keys_occur_in_other_streams_as_often_as_asked(selectivity: float) -> None:
    tuples = arrivals(Shape(selectivity, keys=20_000), seed=0)
    keys = [tuples.keys[tuples.streams == stream] for stream in range(3)]
    assert all(own.size == 40_000 and np.unique(own).size == 20_000 for own in keys)
    in_second, in_third = np.isin(keys[0], keys[1]), np.isin(keys[0], keys[2])
    for found, expected in [
        (in_second, selectivity),
        (in_third, selectivity),
        (in_second & in_third, selectivity**2),
    ]:
        assert found.mean() == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("selectivity", SELECTIVITIES)
@pytest.mark.parametrize("repeats", [1, 3])
def test_combinations_and_matches_are_as_many_as_promised(selectivity, repeats) -> None:
    shape = Shape(selectivity, keys=20_000, repeats=repeats)
    tuples = arrivals(shape, seed=1)
    found = digest(results(biht(3), tuples)).results
    assert found == pytest.approx(20_000 * selectivity**2 * repeats**3, rel=0.1)
    asking = MJoin(3)
    for batch in batches(tuples):
        asking.add(batch.streams, batch.hashes, batch.times_us)
    # one look at least, a second one if the first found a match
    expected = np.mean([shape.selectivity_at(time) for time in np.linspace(0, 1, 1001)])
    assert asking.looks / len(tuples) - 1 == pytest.approx(expected, abs=0.02)


def test_streams_are_mixed_and_the_same_for_the_same_seed() -> None:
    first, again, other = (arrivals(Shape(0.5, 1000), seed) for seed in (0, 0, 1))
    assert np.array_equal(first.keys, again.keys)
    assert not np.array_equal(first.keys, other.keys)
    assert np.bincount(first.streams[:1000]).min() > 250
