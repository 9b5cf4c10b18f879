"""Who evaluates a ring's selections."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.control.mode import CALM_S, ModeFacts, becomes_native, is_native

FEW = ModeFacts(able=True, queries=2, most=4, changed_s=CALM_S, left=0)


def test_few_queries_begin_in_sparks_own_code() -> None:
    assert is_native(FEW)
    assert is_native(replace(FEW, queries=4, changed_s=0))
    assert not is_native(replace(FEW, queries=5))
    assert not is_native(replace(FEW, queries=0))
    assert not is_native(replace(FEW, able=False))
    assert not is_native(replace(FEW, most=0))


@pytest.mark.parametrize(("left", "calm_s"), [(0, CALM_S), (1, 2 * CALM_S), (50, 3600.0)])
def test_a_ring_goes_over_when_its_queries_stay_the_same_for_longer_each_time(
    left: int, calm_s: float
) -> None:
    assert becomes_native(replace(FEW, left=left, changed_s=calm_s))
    assert not becomes_native(replace(FEW, left=left, changed_s=calm_s - 1))
    assert not becomes_native(replace(FEW, left=left, changed_s=calm_s, queries=5))
