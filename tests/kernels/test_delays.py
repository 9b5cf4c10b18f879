from __future__ import annotations

from dataclasses import astuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests import reference

from penstock.kernels.delays import disorder_facts

times = st.integers(-(10**6), 10**6)


@given(st.lists(st.tuples(times, times)), st.booleans(), st.none() | times)
def test_delay_facts_agree_with_their_twin(
    rows: list[tuple[int, int]], has_arrival: bool, previous_max_us: int | None
) -> None:
    events, arrivals = [e for e, _ in rows], [a for _, a in rows]
    facts = disorder_facts(
        np.array(events, np.int64),
        np.array(arrivals, np.int64) if has_arrival else None,
        previous_max_us,
    )
    expected = reference.disorder_facts(events, arrivals if has_arrival else None, previous_max_us)
    assert astuple(facts) == expected


def test_without_rows_there_are_no_maxima() -> None:
    nothing = np.empty(0, np.int64)
    assert astuple(disorder_facts(nothing, nothing, 5)) == (0, None, None, None)
