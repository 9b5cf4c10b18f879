"""When a queue needs its backup server, what it hands over and what it forgets."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.backup import (
    MODES,
    BackupRules,
    LoadFacts,
    acting_mode,
    handover_end,
    input_rate,
    is_entry_loaded,
    is_measured,
    is_overloaded,
    is_overloaded_when_full,
    processing_rate,
    time_to_overflow,
    trim_end,
    when_full,
)

RULES = BackupRules("adaptive", capacity=5_000_000)
PAPER = replace(RULES, trigger="paper")
QUIET = LoadFacts(used=0, inflow=100_000, trimmed=100_000, processing=(1.0, 1.0))
rates = st.floats(0, 1e9)
positions = st.integers(0, 10**12)
facts = st.builds(
    LoadFacts, st.integers(0, 5_000_000), rates, rates, st.lists(st.floats(0, 1)).map(tuple)
)


@given(st.floats(0, 1e9), rates, rates)
def test_the_time_to_overflow_is_when_the_free_space_is_used(free, inflow, trimmed) -> None:
    seconds = time_to_overflow(free, inflow, trimmed)
    assert seconds >= 0
    assert (seconds == math.inf) == (inflow <= trimmed) or free / (inflow - trimmed) == math.inf
    if 1e-6 < seconds < 1e6:
        assert seconds * (inflow - trimmed) == pytest.approx(free)


@given(facts)
def test_what_starts_a_backup_also_continues_it(seen: LoadFacts) -> None:
    for rules in (RULES, PAPER):
        assert is_overloaded(True, seen, rules) >= is_overloaded(False, seen, rules)


@given(facts, st.booleans(), st.floats(1, 3))
def test_more_inflow_never_ends_a_backup(seen: LoadFacts, before: bool, more: float) -> None:
    for rules in (RULES, PAPER):
        higher = replace(seen, inflow=seen.inflow * more)
        assert is_overloaded(before, higher, rules) >= is_overloaded(before, seen, rules)


@given(facts, st.booleans())
def test_a_queue_that_does_not_fill_needs_no_backup(seen: LoadFacts, before: bool) -> None:
    calm = replace(seen, used=seen.used // 2, trimmed=seen.inflow)
    assert not is_overloaded(before, calm, RULES)


def test_a_backup_starts_before_the_overflow_and_ends_long_after() -> None:
    filling = replace(QUIET, used=3_000_000, inflow=1_000_000, trimmed=0)
    assert time_to_overflow(2_000_000, 1_000_000, 0) == RULES.horizon_s
    assert not is_overloaded(False, filling, RULES)
    assert is_overloaded(False, replace(filling, used=3_000_001), RULES)
    assert is_overloaded(True, filling, RULES)
    assert is_overloaded(True, replace(filling, trimmed=1_000_000), RULES)  # still over half full
    assert not is_overloaded(True, replace(filling, used=2_000_000, trimmed=1_000_000), RULES)


def test_the_papers_trigger_fires_on_load_even_if_everybody_is_fast() -> None:
    loaded = replace(QUIET, inflow=4_000_000, trimmed=4_000_000)
    assert is_overloaded(False, loaded, PAPER)
    assert not is_overloaded(False, loaded, RULES)
    assert not is_overloaded(False, replace(loaded, inflow=3_500_000), PAPER)
    assert not is_overloaded(False, replace(loaded, processing=(0.5, 0.5)), PAPER)
    assert not is_overloaded(False, replace(loaded, processing=()), PAPER)


def test_rates_are_those_of_the_paper() -> None:
    assert input_rate(20_000, 50, 2.0) == 500_000
    assert processing_rate(10, 40, weight=2.0) == 0.5
    assert processing_rate(5, 0) == 1.0


@pytest.mark.parametrize("mode", MODES)
def test_only_adaptive_queues_change_what_they_do(mode) -> None:
    changing = {acting_mode(mode, o, b) for o in (True, False) for b in (True, False)}
    assert changing == ({"upstream", "backup", "block"} if mode == "adaptive" else {mode})
    assert when_full(mode) == ("lose" if mode == "plain" else "wait")


def test_a_full_queue_is_overloaded_before_anybody_measures() -> None:
    assert is_overloaded_when_full(RULES)
    assert is_overloaded(False, LoadFacts(RULES.capacity, 1.0, 0.0, ()), RULES)
    assert not is_overloaded_when_full(PAPER)
    assert not is_overloaded_when_full(replace(RULES, mode="block"))


@pytest.mark.parametrize("overloaded", [True, False])
def test_without_its_backup_server_an_adaptive_queue_blocks(overloaded: bool) -> None:
    assert acting_mode("adaptive", overloaded, backup_answers=False) == "block"


@given(positions, st.lists(st.tuples(positions, positions).map(sorted)), positions)
def test_nothing_is_trimmed_that_somebody_needs(trimmed, levels, end) -> None:
    safe = [low for low, _ in levels]
    until = trim_end(trimmed, safe, end)
    assert until >= trimmed
    assert until == trimmed or all(until <= low for low in [*safe, end])
    assert trim_end(until, safe, end) == until
    if not levels:
        assert until == max(trimmed, end)


@given(positions, st.lists(positions))
def test_the_backup_takes_what_the_fastest_has_received(kept_from, delivered) -> None:
    until = handover_end(kept_from, delivered)
    assert until >= kept_from
    assert until == kept_from or until == max(delivered)


@given(rates, st.floats(1, 1e9), st.booleans())
def test_an_entry_stays_loaded_until_it_is_well_below_the_threshold(load, limit, before) -> None:
    assert is_entry_loaded(True, load, limit) >= is_entry_loaded(False, load, limit)
    assert is_entry_loaded(before, 1.01 * limit, limit)
    assert not is_entry_loaded(before, 0.79 * limit, limit)


def test_shared_outputs_are_measured_only_while_an_entry_is_loaded() -> None:
    calm = {"overloaded": False}
    assert is_measured(entry=True, downstreams=0, entry_loaded=False, **calm)
    assert is_measured(entry=False, downstreams=2, entry_loaded=True, **calm)
    assert not is_measured(entry=False, downstreams=2, entry_loaded=False, **calm)
    assert not is_measured(entry=False, downstreams=1, entry_loaded=True, **calm)


def test_who_hands_over_is_measured_until_it_is_calm() -> None:
    assert is_measured(entry=False, downstreams=1, entry_loaded=False, overloaded=True)
