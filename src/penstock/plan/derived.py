"""The times of a derived stream: which of its columns they are, and what its punctuation follows.

A punctuation P of the inputs says that all their tuples before P are here. Results of windows that
close later end after P; selected tuples keep their time. A combination is found when its latest
tuple comes, so its time is not before P, and that of another of its tuples at most the RANGE of
that tuple's window before. So the derived stream is complete up to P, or some fixed time behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.language.ast import Column, Expr
from penstock.plan.bound import BoundQuery, BoundStream
from penstock.plan.events import TIME
from penstock.plan.scope import WINDOW_COLUMNS


@dataclass(frozen=True, slots=True)
class Times:
    """behind_us: of the inputs' punctuation; None: its own has to be estimated from its tuples."""

    event_time: str | None
    arrival_time: str | None = None
    behind_us: int | None = None


def derived_times(query: BoundQuery, chosen: str | None = None) -> Times:
    """The event time as the user has chosen it, or the first column that can be one."""
    known = _event_times(query)
    if chosen is None:
        event_time = next(iter(known), None)
    else:
        event_time = next((name for name in known if name.lower() == chosen.lower()), chosen)
    arrival_time = None if query.aggregated else _arrival_time(query)
    return Times(event_time, arrival_time, known.get(str(event_time)))


def _event_times(query: BoundQuery) -> dict[str, int | None]:
    """Columns that are event times, and how far behind the inputs' punctuation they may be."""
    if query.aggregated:
        ranges = [i.window.range_us for i in query.inputs if i.window is not None]
        start, end = WINDOW_COLUMNS
        return {end: 0, start: max(ranges, default=0)}
    times = {_column(query, i, _time_of(i)): _behind(query, i) for i in query.inputs}
    return {item.name: times[item.expr] for item in query.items if item.expr in times}


def _time_of(given: BoundStream) -> str | None:
    """Of events it is their own: all before the punctuation of the tuples have been told."""
    return given.event_time if given.following is None else TIME


def _behind(query: BoundQuery, given: BoundStream) -> int | None:
    if len(query.inputs) == 1:
        return 0
    return None if given.window is None else given.window.range_us


def _arrival_time(query: BoundQuery) -> str | None:
    if len(query.inputs) > 1:
        return None
    column = _column(query, query.source, query.source.stream.arrival_time)
    return next((item.name for item in query.items if item.expr == column), None)


def _column(query: BoundQuery, given: BoundStream, name: str | None) -> Expr | None:
    if name is None:
        return None
    return Column(name, given.alias if len(query.inputs) > 1 else None)
