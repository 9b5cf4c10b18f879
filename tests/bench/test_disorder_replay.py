import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.disorder.replay import (
    ConstantDelay,
    Outcome,
    Trace,
    oracle_delay,
    replay,
)


def trace_of(pairs: list[tuple[int, int]]) -> Trace:
    """From gaps between event times, and delays."""
    event = np.cumsum([gap for gap, _ in pairs])
    arrival = event + [delay for _, delay in pairs]
    order = np.argsort(arrival, kind="stable")
    return Trace("made", event[order].astype(np.int64), arrival[order].astype(np.int64))


traces = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 300)), min_size=1, max_size=60).map(
    trace_of
)


def run_slowly(trace: Trace, delay: int, step: int) -> dict[str, list[float]]:
    """Tuple by tuple: which are late, what waits after each step, how long each took."""
    closed, clock = -(2**62), -(2**62)
    late: list[float] = []
    waiting: list[tuple[int, int]] = []
    buffered: list[float] = []
    waits: list[float] = []
    completed: dict[int, int] = {}
    tuples = list(zip(trace.event_us.tolist(), trace.arrival_us.tolist(), strict=True))
    for first in range(0, len(tuples), step):
        for event, arrival in tuples[first : first + step]:
            late.append(event < closed)
            clock = max(clock, arrival)
            if event >= closed:
                waiting.append((event, arrival))
        closed = max(closed, clock - delay)
        waits += [clock - arrival for event, arrival in waiting if event <= closed]
        waiting = [(event, arrival) for event, arrival in waiting if event > closed]
        buffered.append(len(waiting))
        for event, _ in tuples:
            if event <= closed:
                completed.setdefault(event, clock)
    latencies = [completed[event] - event for event, _ in tuples if event in completed]
    return {"late": late, "buffered": buffered, "waits": waits, "latencies": latencies}


@given(trace=traces, delay=st.integers(0, 300), step=st.integers(1, 7))
def test_the_figures_of_a_replay_are_those_of_a_buffer_walked_through(trace, delay, step) -> None:
    outcome = replay(trace, ConstantDelay(delay), step)
    slow = run_slowly(trace, delay, step)
    assert outcome.late.tolist() == slow["late"]
    assert outcome.buffered().tolist() == slow["buffered"]
    assert outcome.drop_ratio == pytest.approx(np.mean(slow["late"]))
    for found, expected in (
        (outcome.latency_us(), slow["latencies"]),
        (outcome.waiting_us(), slow["waits"]),
    ):
        assert found == pytest.approx(np.mean(expected)) if expected else np.isnan(found)


@given(late=st.lists(st.booleans(), min_size=1, max_size=40), tuples=st.integers(1, 50))
def test_the_worst_stretch_is_the_worst_of_all_stretches(late, tuples) -> None:
    nothing = np.empty(0, np.int64)
    outcome = Outcome(Trace("", nothing, nothing), 1, np.array(late), nothing, nothing)
    size = min(tuples, len(late))
    starts = range(len(late) - size + 1)
    worst = max(sum(late[start : start + size]) / size for start in starts)
    assert outcome.worst_stretch(tuples) == pytest.approx(worst)


@given(trace=traces, step=st.integers(1, 7), ratio=st.sampled_from([0.0, 0.02, 0.1, 0.5]))
def test_no_smaller_constant_delay_keeps_the_promise_than_the_oracle(trace, step, ratio) -> None:
    def lost(delay: int) -> int:
        return sum(map(int, run_slowly(trace, delay, step)["late"]))

    allowed = int(ratio * trace.event_us.size)
    delay = oracle_delay(trace, step, ratio)
    assert lost(delay) <= allowed
    assert delay == 0 or lost(delay - 1) > allowed
