"""The demo's screen in words: the stream, and the promise with what it costs."""

from __future__ import annotations

from typing import Any

from penstock.console.demo import _bargain
from penstock.console.live import Figures, headline, promise, status_line

DISORDER: dict[str, Any] = {
    "target": 0.01,
    "ratio": 0.0094,
    "buffer_us": 1_900_000,
    "buffer_tuples": 3200,
    "delay_max_us": 8_000_000,
    "punctuation_us": 1_700_000_000_123_000,
}


def test_the_promise_says_what_is_allowed_what_happens_and_what_it_costs() -> None:
    assert promise(DISORDER) == (
        "too late: 0.94% of 1% allowed; windows wait 1.9 s (3,200 tuples), complete up to"
        " 22:13:20.123"
    )
    assert promise({**DISORDER, "target": None, "buffer_tuples": None, "ratio": None}) == (
        "too late: …; windows wait 1.9 s, complete up to 22:13:20.123"
    )


def test_before_the_first_punctuation_nothing_is_promised() -> None:
    figures = Figures(3.0, 0, 0.0, 0, None, {}, ())
    assert "no window can close yet" in status_line(figures, {})
    assert "by up to …" in headline(figures)
    assert promise({**DISORDER, "buffer_us": None}) == "no window can close yet"


def test_the_summary_says_what_a_drop_ratio_buys() -> None:
    assert _bargain(DISORDER) == (
        "DRATIO 1%: 0.94% of the tuples came too late, and windows wait 1.9 s instead of the 8.0 s"
        " that the slowest tuple took"
    )
