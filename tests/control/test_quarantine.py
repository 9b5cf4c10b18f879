"""Quarantine: when it begins, when it is tried again, what ends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.quarantine import (
    WELL,
    Health,
    Patience,
    Restarts,
    after_failure,
    after_success,
    in_words,
    resumed,
    route,
)

PATIENCE = Patience(first_s=10, longest_s=60, tries=4)


def failing(health: Health, times: int, now_s: float = 0.0) -> Health:
    for _ in range(times):
        health = after_failure(health, "raised", now_s, PATIENCE)
    return health


def test_one_failure_is_enough() -> None:
    health = after_failure(WELL, "blocked", 5.0, Patience())
    assert (health.state, health.retry_at_s) == ("quarantined", 15.0)
    assert (in_words(health, 9.0), in_words(WELL, 9.0)) == ("tried again in 6 s", "well")


def test_each_try_in_vain_doubles_the_pause_up_to_the_longest_and_the_last_ends_it() -> None:
    health, now_s, pauses = failing(WELL, 1), 0.0, []
    while health.retry_at_s is not None:
        pauses.append(health.retry_at_s - now_s)
        assert route(health, health.retry_at_s - 0.1, is_stuck=False) == "aside"
        now_s = health.retry_at_s
        assert route(health, now_s, is_stuck=False) == "try"
        health = after_failure(health, "raised", now_s, PATIENCE)
    assert pauses == [10, 20, 40, 60]
    assert health.given_up
    assert route(health, now_s + 1e9, is_stuck=False) == "aside"
    assert in_words(health, now_s) == "not tried again by itself"


def test_a_success_releases_and_the_next_quarantine_begins_anew() -> None:
    health = failing(failing(WELL, 1), 2, now_s=100)
    assert after_success(health) == WELL
    assert failing(after_success(health), 1, now_s=200).retry_at_s == 210


def test_what_was_given_up_stays_so_whoever_answers_late() -> None:
    given_up = failing(WELL, 1 + PATIENCE.tries)
    assert given_up.given_up
    assert after_success(given_up) == given_up


def test_an_expression_is_not_tried_again() -> None:
    health = after_failure(WELL, "expression", 0.0, PATIENCE)
    assert health.given_up


def test_whoever_was_given_up_gets_all_tries_again_when_the_user_says_so() -> None:
    health = resumed(failing(WELL, 1 + PATIENCE.tries), 500.0)
    assert route(health, 500.0, is_stuck=False) == "try"
    assert route(health, 500.0, is_stuck=True) == "aside"
    assert failing(health, 1, now_s=500).retry_at_s == 520
    assert failing(health, PATIENCE.tries).given_up
    assert resumed(WELL, 500.0) == WELL


def test_nothing_is_tried_while_a_call_has_not_returned() -> None:
    assert route(WELL, 0.0, is_stuck=True) == "aside"
    assert route(failing(WELL, 1), 1e9, is_stuck=True) == "aside"


def test_without_tries_only_the_user_ends_a_quarantine() -> None:
    assert after_failure(WELL, "raised", 0.0, Patience(tries=0)).given_up


def test_a_ring_that_fails_in_passing_is_started_again_like_a_sink_is_called_again() -> None:
    restarts = Patience(first_s=0.5, longest_s=8, tries=5)
    health, paused_s = after_failure(WELL, "raised", 0.0, restarts), 0.0
    while health.retry_at_s is not None:
        paused_s = health.retry_at_s
        health = after_failure(health, "raised", paused_s, restarts)
    assert paused_s == 15.5


@pytest.mark.parametrize("wrong", [{"tries": -1}, {"first_s": 0}, {"first_s": 9, "longest_s": 8}])
def test_impossible_patience_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"tries|pause"):
        Patience(**wrong)  # type: ignore[arg-type]


EVENTS = st.lists(st.tuples(st.sampled_from(["raised", "blocked", "ok"]), st.integers(0, 100)))


@given(EVENTS)
def test_whatever_happens_pauses_are_bounded_and_only_a_success_makes_well(events) -> None:
    health, now_s, since_ok = WELL, 0.0, 0
    for event, passed_s in events:
        now_s += passed_s
        if route(health, now_s, is_stuck=False) == "aside":
            continue
        if event == "ok":
            health, since_ok = after_success(health), 0
        else:
            health, since_ok = after_failure(health, event, now_s, PATIENCE), since_ok + 1
        assert (health.state == "well") == (since_ok == 0)
        assert health.tries <= PATIENCE.tries
        if health.retry_at_s is not None:
            assert PATIENCE.first_s <= health.retry_at_s - now_s <= PATIENCE.longest_s


def test_what_one_kind_of_failure_took_in_vain_is_not_held_against_another() -> None:
    few, many = Patience(1.0, 8.0, tries=2), Patience(1.0, 2.0, tries=100)
    restarts = Restarts()
    for _ in range(10):
        assert not restarts.after_failure("r", 5, many, 0.0).given_up
    assert [restarts.after_failure("r", 5, few, 0.0).given_up for _ in range(3)] == [
        False,
        False,
        True,
    ]
    assert not restarts.after_failure("r", 6, few, 0.0).given_up  # it had worked in between
    assert not restarts.after_failure("other", 0, few, 0.0).given_up


def test_a_failure_of_long_ago_is_forgiven() -> None:
    few = Patience(1.0, 8.0, tries=1)
    restarts = Restarts()
    failures = [restarts.after_failure("r", 5, few, now_s) for now_s in (0.0, 500.0, 1200.0)]
    assert [health.given_up for health in failures] == [False, True, False]


def test_failures_of_two_kinds_in_turn_come_to_an_end() -> None:
    kinds = (Patience(1.0, 8.0, tries=5), Patience(1.0, 2.0, tries=20))
    restarts = Restarts()
    failures = [restarts.after_failure("r", 1, kinds[n % 2], 0.0) for n in range(12)]
    assert not any(health.given_up for health in failures[:10])
    assert failures[10].given_up
    restarts.forget("r")
    assert not restarts.after_failure("r", 0, kinds[0], 0.0).given_up
