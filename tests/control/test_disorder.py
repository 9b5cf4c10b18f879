"""A ring's disorder as a whole: clock, idle streams, sources, state, figures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from penstock.control.closing import closed_end
from penstock.control.disorder import Disorder, Rules, has_begun, inherited, nothing_seen
from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import UNKNOWN_US, DelayFacts, disorder_facts

S = 1_000_000
DAY = 86_400 * S


def seen(disorder: Disorder, times: list[tuple[float, float]]) -> DelayFacts:
    """Facts of tuples given as (event, arrival) in seconds."""
    event = np.array([round(e * S) for e, _ in times], np.int64)
    arrival = np.array([round(a * S) for _, a in times], np.int64)
    valid = np.ones(event.size, np.bool_)
    return disorder_facts(
        event,
        valid,
        arrival,
        disorder.clock_us,
        DAY,
        disorder.punctuation_us,
        disorder.rules.newest,
    )


def feed(
    disorder: Disorder, times: list[tuple[float, float]], now_s: float = 0, source: str = ""
) -> int:
    facts = seen(disorder, times)
    disorder.observe(facts, {source: facts} if source else {}, round(now_s * S))
    return disorder.decide(round(now_s * S), 10 * S)


def test_the_punctuation_never_goes_back() -> None:
    disorder = Disorder(Rules("max", live=True))
    assert disorder.decide(0, 10 * S) == NEVER_US
    assert feed(disorder, [(10, 10), (9, 11)]) == 9 * S
    assert feed(disorder, [(3, 12)]) == 9 * S  # nine seconds late
    assert feed(disorder, [(20, 20)]) == 11 * S


@pytest.mark.parametrize(
    ("rules", "at", "now", "reached"),
    [
        (Rules("max", live=True), 100, 129, 95),  # not yet idle
        (Rules("max", live=True), 100, 131, 110),  # idle: everything seen is closed, no further
        (Rules("max", live=True), 500, 531, 95),  # arrivals do not follow the engine's clock
        (Rules("max", live=False), 100, 131, 95),
        (Rules("max", idle_us=5 * S), 500, 504, 95),
        (Rules("max", idle_us=5 * S), 500, 506, 101),
    ],
)
def test_an_idle_stream_moves_on_with_the_engines_clock(
    rules: Rules, at: float, now: float, reached: float
) -> None:
    disorder = Disorder(rules)
    feed(disorder, [(100, 100), (95, 100)], now_s=at)
    assert disorder.decide(round(now * S), 10 * S, S) // S == reached


def test_an_idle_stream_stops_where_its_plausible_tuples_end() -> None:
    disorder = Disorder(Rules("max", idle_us=5 * S))
    feed(disorder, [(100, 100), (100, 100), (10**9, 100)])
    assert disorder.decide(1_000 * S, 10 * S, S) // S == 110
    assert disorder.end(10 * S) // S == 10**9 + 10


def test_a_clock_that_really_jumped_is_followed_after_some_tuples() -> None:
    disorder = Disorder(Rules("max", live=True))
    feed(disorder, [(10, 10)])
    later = 10 + 3 * 86_400
    for tuples in range(63):
        assert feed(disorder, [(later + tuples, later + tuples)]) == 10 * S
    assert feed(disorder, [(later + 63, later + 63)]) >= later * S
    assert disorder.ahead == 64


def test_a_jump_goes_no_further_than_the_least_of_the_times_that_convince() -> None:
    disorder = Disorder(Rules("max", live=True))
    feed(disorder, [(10, 10)])
    later, absurd = 10 + 3 * 86_400, 10**11
    for _ in range(2):
        feed(disorder, [(absurd, absurd), *[(later + i, later + i) for i in range(40)]])
    assert disorder.clock_us == later * S


def test_one_stray_time_does_not_count_towards_a_jump() -> None:
    disorder = Disorder(Rules("max", live=True))
    feed(disorder, [(10, 10)])
    for number in range(200):
        feed(disorder, [(10, 10 + 3 * 86_400)])
        feed(disorder, [(11 + number, 11 + number)])
    assert disorder.clock_us == 210 * S
    assert disorder.ahead == 200


def test_sources_apart_close_by_their_own_lag() -> None:
    disorder = Disorder(Rules("quantile", 0.01, live=True, per=True, apart=True))
    for second in range(400):
        fast = seen(disorder, [(second + i / 100, second + i / 100 + 0.5) for i in range(100)])
        slow = seen(disorder, [(second + i / 10 - 30, second + i / 10 + 0.5) for i in range(10)])
        disorder.observe(fast, {"=fast": fast, "=slow": slow}, 0)
        disorder.decide(0, 2 * S)
    clock = disorder.punctuation_us
    closed = {k: closed_end(s.schedule, clock) for k, s in disorder.sources.items()}
    assert 0 <= (clock - closed["=fast"]) / S < 3
    assert 30 <= (clock - closed["=slow"]) / S < 33
    assert disorder.end(2 * S) >= disorder.last_event_us + 32 * S


def test_mixed_sources_wait_for_the_slowest_that_is_not_silent() -> None:
    disorder = Disorder(Rules("max", live=True, per=True))
    assert feed(disorder, [(100, 101)], source="=fast") == 100 * S
    feed(disorder, [(110, 140)], source="=slow")
    for second in range(140, 175):
        reached = feed(disorder, [(second, second + 1)], source="=fast")
        if second < 169:
            assert reached <= (second + 1 - 30) * S
    assert reached == 174 * S  # the slow one is silent for longer than its delay


def test_one_future_time_does_not_freeze_the_lag_of_a_source() -> None:
    disorder = Disorder(Rules("max", live=True, per=True, apart=True))
    for second in range(200):
        delay = 0.5 if second < 100 else 20
        times = [(second + i / 10 - delay, second + i / 10) for i in range(10)]
        if second == 3:
            times.append((50 * 365 * 86_400, second + 1))
        facts = seen(disorder, times)
        disorder.observe(facts, {"=a": facts}, 0)
        disorder.decide(0, 2 * S)
    assert disorder.sources["=a"].schedule[-1].lag_us >= 20 * S
    assert disorder.others[-1].lag_us >= 20 * S
    assert disorder.end(2 * S) > 50 * 365 * 86_400 * S


def test_mixed_sources_are_followed_when_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.control.disorder.SOURCES", 3)
    disorder = Disorder(Rules("max", live=True, per=True))
    for second in range(300):  # every minute three others
        feed(disorder, [(second, second + 1)], source=f"={second // 60}-{second % 3}")
    assert disorder.punctuation_us >= 290 * S
    assert len(disorder.sources) == 3


def test_a_source_with_open_windows_is_not_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.control.disorder.SOURCES", 1)
    disorder = Disorder(Rules("max", live=True, per=True, apart=True))
    feed(disorder, [(100, 101)], source="=a")
    feed(disorder, [(105, 106)], source="=b")
    assert list(disorder.sources) == ["=a"]  # RANGE is 10 s: its window may still be open
    feed(disorder, [(500, 501)], source="=b")
    feed(disorder, [(501, 502)], source="=b")
    assert list(disorder.sources) == ["=b"]


def test_a_slack_is_the_same_for_every_source() -> None:
    disorder = Disorder(Rules("fixed", slack_us=5 * S, live=True, per=True, apart=True))
    for second in range(100):
        feed(disorder, [(second, second + 1)], source=f"={second % 2}")
    lags = {s.schedule[-1].lag_us for s in disorder.sources.values()}
    assert lags == {6 * S} == {disorder.others[-1].lag_us}
    mixed = Disorder(Rules("fixed", slack_us=5 * S, live=True, per=True))
    assert feed(mixed, [(100, 101)], source="=a") == 95 * S


def test_many_sources_keep_their_lags_over_a_restart() -> None:
    disorder = Disorder(Rules("quantile", 0.05, live=True, per=True, apart=True))
    random = np.random.default_rng(2)
    for second in range(60):
        facts = {}
        for number in range(70):
            event = second + np.sort(random.uniform(0, 1, 10)) - random.exponential(3, 10)
            facts[f"={number}"] = seen(disorder, [(e, second + 1) for e in event])
        disorder.observe(facts["=0"], facts, 0)
        disorder.decide(0, S)
    again = Disorder(disorder.rules)
    again.restore(json.loads(json.dumps(disorder.state())))
    calm = seen(again, [(60.9, 61)])
    again.observe(calm, dict.fromkeys(again.sources, calm), 0)
    for key, source in disorder.sources.items():
        before, after = source.estimator.lag_us, again.sources[key].estimator.lag_us  # type: ignore[attr-defined]
        assert after >= 0.8 * before


def test_an_idle_stream_is_idle_after_a_restart_too() -> None:
    disorder = Disorder(Rules("max", live=True))
    feed(disorder, [(100, 100), (95, 100)], now_s=100)
    again = Disorder(Rules("max", idle_us=5 * S, live=True))
    again.restore(json.loads(json.dumps(disorder.state())))
    assert again.decide(106 * S, 10 * S, S) == 101 * S


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Rules("fixed", slack_us=S), Rules("fixed", slack_tuples=3)),
        (Rules("fixed", slack_tuples=3), Rules("fixed", slack_us=S)),
        (Rules("quantile", 0.01), Rules("max")),
        (Rules("normal", 0.01), Rules("quantile", 0.01)),
    ],
)
def test_another_estimator_takes_over_without_going_back(before: Rules, after: Rules) -> None:
    disorder = Disorder(before)
    for second in range(50):
        reached = feed(disorder, [(second + i / 10 - 2, second + i / 10) for i in range(10)])
    other = Disorder(after)
    other.restore(json.loads(json.dumps(disorder.state())))
    assert feed(other, [(50 + i / 10, 50 + i / 10) for i in range(10)]) >= reached
    if after.estimator == "max":
        assert other.punctuation_us <= 49 * S  # it knows the largest delay so far


def test_times_near_the_end_of_an_integer_can_be_stored() -> None:
    disorder = Disorder(Rules("max"))
    facts = DelayFacts(1, clock_us=0, event_us=0, last_event_us=2**63 - 1)
    disorder.observe(facts, {}, 0)
    assert disorder.end(10 * S) < 2**63


def _states() -> list[Disorder]:
    made = []
    for name in ("max", "fixed", "normal", "quantile"):
        for per in (False, True):
            rules = Rules(name, 0.05, S, None, None, True, per, per)
            made.append(Disorder(rules))
    return [*made, Disorder(Rules("fixed", slack_tuples=3))]


@pytest.mark.parametrize("disorder", _states(), ids=lambda d: f"{d.rules.estimator}-{d.rules.per}")
def test_a_restored_state_decides_the_same(disorder: Disorder) -> None:
    random = np.random.default_rng(5)
    again: Disorder | None = None
    for step in range(40):
        event = step + random.uniform(0, 1, 50)
        delay = random.exponential(0.3, 50)
        times = sorted(zip(event, event + delay, strict=True), key=lambda t: t[1])
        if step == 20:
            again = Disorder(disorder.rules)
            again.restore(json.loads(json.dumps(disorder.state())))
        reached = feed(disorder, times, source="=a" if disorder.rules.per else "")
        if again is not None:
            assert feed(again, times, source="=a" if disorder.rules.per else "") == reached
            assert again.schedules() == disorder.schedules()
            assert again.metrics() == disorder.metrics()


def test_a_new_ring_inherits_times_and_delays_but_no_promise() -> None:
    old = Disorder(Rules("quantile", 0.01, live=True))
    for second in range(20):
        feed(old, [(second + i / 50, second + i / 50 + 0.2) for i in range(50)])
    new = Disorder(Rules("normal", 0.05, live=True))
    new.restore(json.loads(json.dumps(inherited(old.state()))))
    assert (new.event_us, new.clock_us) == (old.event_us, old.clock_us)
    assert (new.punctuation_us, new.rows, new.tally.rows) == (NEVER_US, 0, 0)
    assert new.metrics()["delay_p50_us"] == old.metrics()["delay_p50_us"]


def test_states_of_before_estimators_are_understood() -> None:
    disorder = Disorder(Rules("max", live=True))
    old: dict[str, Any] = {
        "rows": 7,
        "max_event_us": 20 * S,
        "max_arrival_us": 22 * S,
        "max_delay_us": 3 * S,
    }
    disorder.restore(old)
    assert has_begun(old)
    assert not has_begun(nothing_seen())
    assert (disorder.rows, disorder.event_us) == (7, 20 * S)
    assert disorder.decide(0, 10 * S) == 19 * S
    disorder.restore({**old, "max_event_us": None, "max_arrival_us": None, "max_delay_us": None})
    assert disorder.event_us == UNKNOWN_US


def test_figures_before_anything_was_seen() -> None:
    disorder = Disorder(Rules("quantile", 0.01))
    disorder.restore(nothing_seen())
    figures = disorder.metrics()
    assert json.loads(json.dumps(figures)) == figures
    assert figures["rows"] == 0
    assert figures["punctuation_us"] is figures["delay_p99_us"] is figures["ratio"] is None


def test_figures_tell_delays_buffer_and_ratio() -> None:
    disorder = Disorder(Rules("quantile", 0.01, live=True))
    random = np.random.default_rng(3)
    event = np.sort(random.uniform(0, 400, 40_000))
    arrival = event + random.exponential(2, event.size)
    order = np.argsort(arrival)
    order = order[
        arrival[order] < 400
    ]  # what comes after the last event comes more and more slowly
    for first in range(0, order.size, 200):
        rows = order[first : first + 200]
        feed(disorder, list(zip(event[rows], arrival[rows], strict=True)))
    figures = disorder.metrics()
    assert figures["delay_p50_us"] / S == pytest.approx(2 * np.log(2), rel=0.05)
    assert figures["delay_p99_us"] / S == pytest.approx(2 * np.log(100), rel=0.1)
    assert 0.005 <= figures["ratio"] <= 0.0102
    # tuples come at 100/s and wait (lag - delay) where that is positive
    lag = figures["buffer_us"] / S
    waiting = 100 * (lag - 2 * (1 - np.exp(-lag / 2)))
    assert figures["buffer_tuples"] == pytest.approx(waiting, rel=0.25)
