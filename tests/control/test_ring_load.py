"""What fills a ring: not its micro-batches, but what they do with tuples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.ring_load import Load, LoadWatch, Seen, load_between


def test_nothing_seen_is_no_load() -> None:
    assert LoadWatch().load(2) == Load()
    watch = LoadWatch()
    for second in range(3):
        watch.add(Seen(float(second), 0, 0.0))
    assert watch.load(2) == Load()


def test_micro_batches_that_take_as_long_as_empty_ones_fill_nothing() -> None:
    """Back to back all the time: with more tuples, each micro-batch would only be fuller."""
    watch = LoadWatch()
    for second in range(11):
        watch.add(Seen(float(second), 5 * second, float(second), 100 * second), [0.2] * 5)
    load = watch.load(2)
    assert load.capacity == pytest.approx(0.0, abs=0.06)
    assert load.tuples_per_s == 100


def test_time_that_grows_with_tuples_fills_a_ring() -> None:
    first, last = Seen(0, 0, 0), Seen(10, 10, 7.0, 1000, 1.0, 5.0)
    load = load_between(first, last, least_s=0.2, tasks=2)
    assert load.capacity == pytest.approx(0.5)
    assert load.fixed == pytest.approx(0.05)


def test_a_ring_that_does_not_keep_up_is_over_the_top() -> None:
    first = Seen(0, 0, 0, done=0, waiting=0)
    behind = load_between(first, Seen(10, 10, 10.0, done=100, waiting=50), 1.0, 2)
    assert (behind.capacity, behind.growth) == (1.5, 0.5)
    steady = load_between(first, Seen(10, 10, 10.0, done=100, waiting=0), 1.0, 2)
    assert (steady.capacity, steady.growth) == (0.0, 0.0)


def test_a_backlog_that_grows_by_little_is_that_of_the_moment() -> None:
    first = Seen(0, 0, 0, done=0, waiting=0)
    little = load_between(first, Seen(10, 10, 10.0, done=100, waiting=9), 1.0, 2)
    assert (little.capacity, little.growth) == (0.0, 0.0)


def test_what_waits_is_told_in_micro_batches_as_large_as_those_it_had() -> None:
    first = Seen(0, 0, 0, done=0, waiting=0)
    assert load_between(first, Seen(10, 5, 9.0, done=20, waiting=40), 0.2, 2).behind == 10
    assert load_between(first, Seen(10, 5, 9.0, done=20, waiting=0), 0.2, 2).behind == 0
    assert load_between(first, Seen(10, 5, 9.0, done=0, waiting=1), 0.2, 2).behind == float("inf")
    assert load_between(Seen(0, 0, 0), Seen(10, 5, 9.0), 0.2, 2).behind == 0  # nobody knows


def test_a_burst_does_not_fill_a_ring_with_time_to_spare() -> None:
    first = Seen(0, 0, 0, done=0, waiting=0)
    burst = load_between(first, Seen(10, 2, 3.0, done=8, waiting=56), 0.5, 2)
    assert burst.growth == 0
    assert burst.capacity == pytest.approx(0.2)
    assert burst.busy == pytest.approx(0.3)


def test_a_ring_that_catches_up_has_only_what_is_new_to_do() -> None:
    first = Seen(0, 0, 0, done=0, waiting=900)
    old = load_between(first, Seen(10, 5, 9, 1, 2, 3, done=400, waiting=500), 0.2, 2)
    assert (old.capacity, old.fixed, old.growth) == (0.0, 0.0, 0.0)
    half = load_between(first, Seen(10, 5, 9, 1, 2, 3, done=400, waiting=700), 0.2, 2)
    steady = load_between(first, Seen(10, 5, 9, 1, 2, 3, done=400, waiting=900), 0.2, 2)
    assert half.capacity == pytest.approx(steady.capacity / 2)
    assert half.fixed == pytest.approx(steady.fixed / 2)


def test_where_spark_reads_all_but_the_stage_is_reading() -> None:
    load = load_between(Seen(0, 0, 0), Seen(10, 5, 6.0, 1000, 0.0, 4.0), 0.2, 2)
    assert load.capacity - load.fixed == pytest.approx(0.2)


def test_only_the_last_seconds_count() -> None:
    watch = LoadWatch(over_s=5.0)
    for second in range(60):
        busy = 0.9 * min(second, 30)
        watch.add(Seen(float(second), min(second, 30), busy), [0.9] if second <= 30 else [])
    assert watch.watched_s == 5.0
    assert watch.load(1) == Load()


def test_the_quickest_micro_batch_is_forgotten_slowly() -> None:
    watch = LoadWatch()
    watch.add(Seen(0.0, 1, 0.1), [0.1])
    watch.add(Seen(1.0, 2, 1.1), [1.0])
    assert watch.least_s == pytest.approx(0.101)
    watch.add(Seen(2.0, 500, 500.0), [1.0] * 500)
    assert watch.least_s == 1.0


AMOUNTS = st.floats(0, 1e6)


@given(AMOUNTS, AMOUNTS, AMOUNTS, st.integers(0, 1000), st.integers(-50, 10**6), st.integers(1, 64))
def test_whatever_is_seen_the_parts_are_within_the_whole(
    busy: float, read: float, ran: float, batches: int, waiting: int, tasks: int
) -> None:
    first = Seen(0, 0, 0, done=0, waiting=50)
    last = Seen(10, batches, busy, 1, read, read + ran, 100, 50 + waiting)
    load = load_between(first, last, 0.1, tasks)
    assert 0 <= load.fixed <= load.capacity
    assert load.growth >= 0
