"""How long rings pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.triggers import TriggerFacts, pause_ms


@pytest.mark.parametrize(
    ("facts", "pause"),
    [
        (TriggerFacts(50, 0, 0), 200),
        (TriggerFacts(250, 0, 0), 0),  # it needs all its time
        (TriggerFacts(50, 1, 0), 0),  # more comes than it takes
        (TriggerFacts(250, 0, 0.4), 0),  # and the last micro-batch has just ended
        (TriggerFacts(250, 0, 1), 200),  # it needed its time, but nothing has come since
        (TriggerFacts(50, 0, 10), 1000),
        (TriggerFacts(50, 0, 3600), 5000),
    ],
)
def test_loaded_rings_run_back_to_back_and_idle_ones_back_off(facts, pause) -> None:
    assert pause_ms(facts, trigger_ms=200, longest_ms=5000) == pause


@given(st.floats(0, 1000), st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_longer_it_is_quiet_the_longer_the_pause(batch_ms, one_s, other_s) -> None:
    pauses = [pause_ms(TriggerFacts(batch_ms, 0, s), 200, 5000) for s in sorted((one_s, other_s))]
    assert pauses == sorted(pauses)
    assert all(p in (0, 200) or 200 < p <= 5000 for p in pauses)


@given(st.floats(0, 1000), st.floats(0, 1e6))
def test_a_users_long_trigger_is_never_cut_short_by_idleness(batch_ms, quiet_s) -> None:
    assert pause_ms(TriggerFacts(batch_ms, 0, quiet_s), 10_000, 5000) in (0, 10_000)
