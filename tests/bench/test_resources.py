"""Processor time of processes that come and go."""

from __future__ import annotations

import pytest

from penstock.bench.resources import ticks_between


def _stat(own: int, waited: int = 0) -> list[str]:
    return [*"S" * 11, str(own), "0", str(waited), "0"]


@pytest.mark.parametrize(
    ("before", "now", "used"),
    [
        ({1: _stat(5)}, {1: _stat(7)}, 2),
        ({1: _stat(5)}, {1: _stat(5), 2: _stat(3)}, 3),  # a new one
        ({1: _stat(5), 2: _stat(30)}, {1: _stat(6)}, 1),  # nobody waited for the other
        ({1: _stat(5), 2: _stat(30)}, {1: _stat(6, 32)}, 3),  # its parent did, 2 ticks later
        ({1: _stat(5, 10)}, {1: _stat(5, 14)}, 4),  # one that was never seen
    ],
)
def test_what_an_ended_process_had_used_is_neither_lost_nor_counted_again(
    before: dict[int, list[str]], now: dict[int, list[str]], used: int
) -> None:
    assert ticks_between(before, now) == used
