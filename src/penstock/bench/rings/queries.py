"""Continuous queries of many kinds, as texts: what they compute is drawn, and so is the wording.

A shape is what a ring computes: streams, results, groups. A text of a shape has constants, windows,
aliases, an order and a spelling of its own: the planner has to find out that it is the same.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from penstock.errors import QueryError
from penstock.language import parse
from penstock.language.ast import BareSelect
from penstock.plan.bind import bind
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.input_order import with_ordered_inputs
from penstock.schema import Schema

_NUMBERS = ("x", "y", "z", "speed", "load")
_TEXTS = ("name", "place")
_COLUMNS = (
    "id INT, "
    + "".join(f"{name} DOUBLE, " for name in _NUMBERS)
    + "".join(f"{name} STRING, " for name in _TEXTS)
    + "ts TIMESTAMP"
)
STREAMS = ("Sensors", "Doors", "Meters", "Trucks", "Orders", "Calls")
CATALOG = Catalog.of([Stream(name, Schema.of(_COLUMNS), "file", "ts") for name in STREAMS])
_AGGREGATES = ("min", "max", "sum", "avg", "count", "stddev")
_COMPUTED = re.compile(r"\(`(\w+)` [+*-] `(\w+)`\)")


@dataclass(frozen=True, slots=True)
class Shape:
    """results and groups speak of the streams' columns as `0.x`, `1.x`, by number of the stream."""

    streams: tuple[str, ...]
    results: tuple[str, ...]
    groups: tuple[str, ...] = ()
    aggregated: bool = False


def draw_shape(rng: random.Random) -> Shape:
    """What a query computes: a selection, an aggregate in windows, a join, or both of these."""
    streams = tuple(rng.sample(STREAMS, rng.choices((1, 2, 3), (6, 3, 1))[0]))
    if rng.random() < 0.5:
        return Shape(streams, _some(rng, lambda: _value(rng, len(streams)), 1, 5))
    groups = _some(rng, lambda: _key(rng, len(streams)), 0, 3)
    calls = _some(rng, lambda: f"{rng.choice(_AGGREGATES)}({_value(rng, len(streams))})", 1, 4)
    return Shape(streams, groups + calls, groups, aggregated=True)


def _some(rng: random.Random, draw, least: int, most: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(draw() for _ in range(rng.randint(least, most))))


def _value(rng: random.Random, streams: int) -> str:
    stream, (one, other) = rng.randrange(streams), rng.sample(_NUMBERS, 2)
    if rng.random() < 0.3:
        return f"{stream}.{one} {rng.choice('+-*')} {stream}.{other}"
    return f"{stream}.{one}"


def _key(rng: random.Random, streams: int) -> str:
    column = f"{rng.randrange(streams)}.{rng.choice(_TEXTS)}"
    return f"upper({column})" if rng.random() < 0.3 else column


def text_of(shape: Shape, rng: random.Random) -> str:
    """One query of a shape, in words of its own."""
    aliases = [f"{rng.choice('abcdefg')}{number}" for number in range(len(shape.streams))]
    results = [
        f"{_spelled(result, aliases, rng)} AS {_cased(f'r{rng.randrange(9)}_{number}', rng)}"
        for number, result in enumerate(shape.results)
    ]
    text = f"SELECT {', '.join(_shuffled(results, rng))} FROM "
    text += ", ".join(
        f"{_cased(stream, rng)} {alias}{_window(shape, rng)}"
        for stream, alias in _shuffled(zip(shape.streams, aliases, strict=True), rng)
    )
    conditions = [_predicate(rng.choice(aliases), rng) for _ in range(rng.randint(0, 3))]
    for number in range(1, len(aliases)):
        sides = (f"{aliases[number]}.id", f"{aliases[rng.randrange(number)]}.id")
        conditions.append(" = ".join(_shuffled(sides, rng)))
    if conditions:
        text += f" WHERE {' AND '.join(_shuffled(conditions, rng))}"
    if shape.groups:
        groups = [_spelled(group, aliases, rng) for group in shape.groups]
        text += f" GROUP BY {', '.join(_shuffled(groups, rng))}"
    return text


def _window(shape: Shape, rng: random.Random) -> str:
    if not (shape.aggregated or len(shape.streams) > 1):
        return ""
    return f" [RANGE {rng.randint(1, 60)} SECONDS SLIDE 1 SECOND]"


def _predicate(alias: str, rng: random.Random) -> str:
    """A condition on one stream, in one of the ways to write it."""
    column, low = f"{alias}.{rng.choice(_NUMBERS)}", rng.randrange(1000)
    high = low + rng.randrange(100)
    return rng.choice(
        (
            f"{column} > {low}",
            f"{low} < {column}",
            f"({column}) BETWEEN {low} AND {high}",
            f"{column} <= {high} AND {low} <= {column}",
            f"{column} IN ({low}, {high})",
            f"({column} = {low} OR {column} = {high})",
            f"{alias}.{rng.choice(_TEXTS)} LIKE 'p{low}%'",
        )
    )


def _spelled(expression: str, aliases: list[str], rng: random.Random) -> str:
    def column(match: re.Match[str]) -> str:
        name = f"{aliases[int(match[1])]}.{_cased(match[2], rng)}"
        return f"({name})" if rng.random() < 0.2 else name

    return _cased_function(re.sub(r"(\d)\.(\w+)", column, expression), rng)


def _cased(name: str, rng: random.Random) -> str:
    return rng.choice((name, name.upper(), name.lower()))


def _cased_function(text: str, rng: random.Random) -> str:
    head, bracket, rest = text.partition("(")
    return f"{_cased(head, rng)}{bracket}{rest}" if head.isalpha() else text


def _shuffled(items, rng: random.Random) -> list:
    given = list(items)
    return rng.sample(given, len(given))


def composed(text: str) -> Composed:
    """What the planner makes of a query, without Spark."""
    (statement,) = parse(text)
    assert isinstance(statement, BareSelect)
    return compose(with_ordered_inputs(bind(statement.select, CATALOG)), _type_of, lambda _: None)


def _type_of(sql: str, _: Schema) -> str:
    """Spark's type of the expressions that these queries have; it would say the same."""
    if _COMPUTED.fullmatch(sql):
        return "double"
    if sql.startswith("upper("):
        return "string"
    raise QueryError(f"{sql} is not among the expressions of this benchmark")
