import numpy as np
import pytest

from penstock.bench.real_data import NotHere
from penstock.bench.select.data import (
    MADE,
    chow_liu,
    draw_like,
    made,
    mutual_information,
    read_census,
)


@pytest.mark.parametrize("name", MADE)
def test_a_made_stream_is_the_same_for_the_same_seed_only(name: str) -> None:
    values = made(name, 3, 1000, seed=5)
    assert values.shape == (3, 1000)
    assert values.min() >= 0
    assert values.max() <= 99
    assert np.array_equal(values, made(name, 3, 1000, seed=5))
    assert not np.array_equal(values, made(name, 3, 1000, seed=6))


def test_streams_have_the_distributions_of_the_paper() -> None:
    uniform, bell, pulse = (made(name, 2, 20_000, 0) for name in ("D1", "D2", "D3"))
    inner = [((values >= 25) & (values < 75)).mean() for values in (uniform, bell)]
    assert inner[0] == pytest.approx(0.5, abs=0.02)
    assert inner[1] > 0.8
    assert pulse[:, :10_000].max() < 50 <= pulse[:, 10_000:].min()


def chain(tuples: int) -> np.ndarray:
    """Attribute 2 depends on 0, and 1 on 2."""
    random = np.random.default_rng(0)
    first = random.integers(0, 6, tuples)
    second = np.where(random.random(tuples) < 0.8, first, random.integers(0, 6, tuples))
    third = np.where(random.random(tuples) < 0.8, second, random.integers(0, 6, tuples))
    return np.array([first, third, second])


def test_the_tree_has_the_edges_that_the_data_was_made_with() -> None:
    assert chow_liu(chain(5000)) == [(0, None), (2, 0), (1, 2)]


def test_tuples_drawn_from_the_tree_depend_on_each_other_as_the_data_does() -> None:
    data = chain(20_000)
    drawn = draw_like(data, 30_000, seed=1)
    for a, b in ((0, 2), (2, 1), (0, 1)):
        expected = mutual_information(data[a], data[b])
        assert mutual_information(drawn[a], drawn[b]) == pytest.approx(expected, rel=0.1)
    assert np.array_equal(drawn, draw_like(data, 30_000, seed=1))


def test_the_census_has_ten_thousand_tuples_of_categories(shared_data, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(shared_data))
    names, values = read_census(7)
    assert len(set(names)) == 7
    assert values.shape == (7, 10_000)
    assert values.min() >= 0
    assert 5 < values.max() < 20


def test_a_census_that_is_not_there_says_where_it_was_looked_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    with pytest.raises(NotHere, match="us_census_1990"):
        read_census(7)
