"""The cost model of the m-way join, against numbers computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.join_costs import (
    StepCosts,
    biht_cost,
    failing_looks,
    mjoin_cost,
    succeeding_looks,
)

COSTS = StepCosts(hashing=2, moving=3, bits=1, comparing=10)


@pytest.mark.parametrize(
    ("selectivities", "succeeding", "failing"),
    [
        ([0.25], 0.25, 0.75),
        ([0.5, 0.5], 0.5, 1.0),
        ([0.5, 0.25], 0.25, 0.5 + 2 * 0.5 * 0.75),
        ([0.25, 0.5], 0.25, 0.75 + 2 * 0.25 * 0.5),
        ([0.5, 0.5, 0.5], 0.375, 0.5 + 2 * 0.25 + 3 * 0.125),
        ([1, 1, 1, 1, 1], 5, 0),
        ([0, 1, 1], 0, 1),
    ],
)
def test_looks_into_tables(selectivities: list[float], succeeding: float, failing: float) -> None:
    assert succeeding_looks(selectivities) == pytest.approx(succeeding)
    assert failing_looks(selectivities) == pytest.approx(failing)


def test_costs_of_three_streams() -> None:
    assert mjoin_cost(100, [0.5, 0.25], COSTS) == pytest.approx(100 * (2 + 3 + 10 * 1.5))
    assert biht_cost(100, [0.5, 0.25], COSTS) == pytest.approx(100 * (2 + 3 + 1 + 10 * 0.25))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=15))
def test_bits_save_the_looks_that_fail_and_cost_themselves(selectivities: list[float]) -> None:
    saved = mjoin_cost(7, selectivities, COSTS) - biht_cost(7, selectivities, COSTS)
    expected = 7 * (COSTS.comparing * failing_looks(selectivities) - COSTS.bits)  # equation 5
    assert saved == pytest.approx(expected)


def test_mjoin_depends_on_the_order_and_bits_do_not() -> None:
    worse, better = [0.9, 0.1], [0.1, 0.9]
    assert mjoin_cost(1, better, COSTS) < mjoin_cost(1, worse, COSTS)
    assert biht_cost(1, better, COSTS) == pytest.approx(biht_cost(1, worse, COSTS))
