"""EXPLAIN of a join: each stream, how their tuples meet, what is kept of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.plan.bound import BoundQuery, BoundStream
from penstock.plan.composed import Composed
from penstock.plan.explain import (
    Place,
    disorder_lines,
    duration,
    labelled,
    result_lines,
    source_lines,
)
from penstock.plan.explain_chain import chain_lines
from penstock.plan.explain_ring import Sharing
from penstock.plan.specs import Composition, Join
from penstock.schema import Schema

_NAME = re.compile(r"`([^`]+)`")
_JOINED_NAME = re.compile(r"`(\d+)\.([^`]+)`")


@dataclass(frozen=True, slots=True)
class JoinCosts:
    """What the cost model expects per tuple: with bit vectors, and without them (MJoin)."""

    selectivity: float
    assumed: bool  # the selectivity is not measured
    with_bits: float
    without_bits: float


def explain_join(
    query: BoundQuery,
    composed: Composed,
    outputs: Schema,
    places: Sequence[Place],
    costs: JoinCosts,
    sharing: Sharing | None,
) -> str:
    """One line per step; `places` and the first steps are those of each input."""
    join = composed.composition.join
    assert join is not None
    lines: list[str] = []
    for source, part, place in zip(query.inputs, composed.inputs, places, strict=True):
        lines.append(_stream_line(source))
        lines += source_lines(part, place, None)
        if query.aggregated:
            lines += disorder_lines(source.stream, part.composition)
    aliases = [source.alias for source in query.inputs]
    lines += _join_lines(query, join, aliases)
    if not join.steps:
        lines.append(_cost_line(costs))
    if composed.window is not None:
        window = composed.window
        span = f"RANGE {duration(window.range_us)} SLIDE {duration(window.slide_us)}"
        lines.append(f"window    {span}: Spark aggregates the combinations of each window")
    return "\n".join([*lines, *result_lines(query, composed.composition, outputs, sharing)])


def _stream_line(source: BoundStream) -> str:
    stream = source.stream
    alias = "" if source.alias == stream.name else f" {source.alias}"
    span = "unbounded" if source.window is None else f"RANGE {duration(source.window.range_us)}"
    return f"stream    {stream.name}{alias} ({stream.source}), {span} on {source.event_time}"


def _join_lines(query: BoundQuery, join: Join, aliases: Sequence[str]) -> list[str]:
    if join.steps:
        lines = chain_lines(query, join, aliases, lambda sql: _spoken(sql, aliases))
    else:
        lines = [f"{len(aliases)}-way, one look at a bit vector tells whether all streams match"]
        keys = [_key_text(join, number, aliases) for number in range(len(join.inputs[0].keys))]
        lines.append(f"on {' and '.join(keys)}")
    residual = [] if join.residual is None else [_spoken(join.residual, aliases)]
    return [
        *labelled("join", lines),
        *labelled("keeps", _kept(join, aliases)),
        *labelled("residual", residual),
    ]


def _key_text(join: Join, number: int, aliases: Sequence[str]) -> str:
    sides = [_key_side(i, number, a) for i, a in zip(join.inputs, aliases, strict=True)]
    return f"{' = '.join(sides)} ({join.inputs[0].key_types[number]})"


def _key_side(composition: Composition, number: int, alias: str) -> str:
    name = composition.keys[number]
    sql = next((a.sql for a in composition.derived if a.name == name), f"`{name}`")
    return _NAME.sub(rf"{alias}.\1", sql)


def _spoken(sql: str, aliases: Sequence[str]) -> str:
    """SQL over the columns of combinations, in the names of the query."""
    return _JOINED_NAME.sub(lambda m: f"{aliases[int(m[1])]}.{m[2]}", sql)


def _kept(join: Join, aliases: Sequence[str]) -> list[str]:
    columns = [[c for c in i.shipped if c not in i.keys] for i in join.inputs]
    least = "times only" if join.steps else "keys and times only"
    if not any(columns):
        return [least]
    return [
        f"{alias}: {', '.join(names) or least}"
        for alias, names in zip(aliases, columns, strict=True)
    ]


def _cost_line(costs: JoinCosts) -> str:
    known = "assumed" if costs.assumed else "seen"
    steps = f"{costs.with_bits:.3g} steps with bit vectors, {costs.without_bits:.3g} without"
    return f"costs     per tuple {steps}, at selectivity {costs.selectivity:.3g} ({known})"
