"""The rules of the language for joins: how many streams, what their windows may say."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import QueryError
from penstock.language.ast import StreamRef
from penstock.plan.specs import WindowSpec

MOST_INPUTS = 16  # a bit vector of a join has 16 bits


def check_join(streams: Sequence[StreamRef]) -> None:
    """Refuse too many streams, and promises to the sources of one."""
    if len(streams) > MOST_INPUTS:
        raise QueryError(
            f"a join of {len(streams)} streams",
            f"join up to {MOST_INPUTS} streams",
            streams[MOST_INPUTS].span,
        )
    for ref in streams:
        if ref.window is not None and ref.window.drop_ratio_per is not None:
            raise QueryError(
                "PER is not supported in joins",
                "leave it out: DRATIO holds for the stream as a whole",
                ref.window.drop_ratio_per.span,
            )


def common_slide_us(streams: Sequence[StreamRef], windows: Sequence[WindowSpec | None]) -> int:
    """The SLIDE of an aggregated join: one for all streams, else their least RANGE."""
    ranges_us = [window.range_us for window in windows if window is not None]
    if not ranges_us:
        raise QueryError(
            "an aggregate over an unbounded window is never final",
            f"give a stream a RANGE: {streams[0].name} [RANGE 1 MINUTE]",
            streams[0].span,
        )
    slide_us: int | None = None
    for window in (ref.window for ref in streams):
        if window is None or window.slide_us is None:
            continue
        if slide_us not in (None, window.slide_us):
            raise QueryError(
                "the streams of an aggregated join have different SLIDEs",
                "write the same SLIDE everywhere, or once",
                window.span,
            )
        slide_us = window.slide_us
    return slide_us or min(ranges_us)
