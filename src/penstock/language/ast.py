"""What a statement says, as frozen values that know their place in the text.

Spans never take part in equality, so two texts that say the same compare equal.
An expression that penstock needs not look into is an `Opaque`: Spark SQL text with the columns and
aggregates inside it kept as nodes, so that they can be bound, renamed and rendered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal as OneOf

from penstock.errors import Span

NOWHERE = Span(0, 0)


def _span() -> Span:
    return field(default=NOWHERE, compare=False, repr=False)


Operator = OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    qualifier: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Literal:
    """A plain literal: number, string, TRUE/FALSE or NULL. `DATE '…'` and the like are Opaque.

    Numbers follow Spark: 5 is an int, 1.5 a Decimal, 1e3 a float; a sign is part of the value.
    """

    value: int | float | Decimal | str | bool | None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Comparison:
    op: Operator
    left: Expr
    right: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Not:
    part: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class InList:
    operand: Expr
    items: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Between:
    operand: Expr
    low: Expr
    high: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern ESCAPE escape`; without ESCAPE it is the backslash."""

    operand: Expr
    pattern: Expr
    escape: str = "\\"
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class StartsWith:
    """The call `startswith(operand, prefix)`."""

    operand: Expr
    prefix: Expr
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SpatialCall:
    """A call of a spatial function that penstock evaluates itself; `name` is lower case."""

    name: str
    arguments: tuple[Expr, ...]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate call; `name` is lower case; COUNT(*) has no arguments."""

    name: str
    arguments: tuple[Expr, ...]
    distinct: bool = False
    where: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Opaque:
    """Spark SQL text in pieces; joined (nodes rendered) it is the expression, safe to nest."""

    parts: tuple[str | Expr, ...]
    span: Span = _span()


Expr = (
    Column
    | Literal
    | Comparison
    | And
    | Or
    | Not
    | InList
    | Between
    | IsNull
    | Like
    | StartsWith
    | SpatialCall
    | Aggregate
    | Opaque
)


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One output: `name` is the alias, or None where the user gave none."""

    expr: Expr
    name: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Star:
    qualifier: str | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Window:
    """`[RANGE … SLIDE … WATTR column DRATIO p% PER column]`, `[NOW]` …; absent parts None."""

    kind: OneOf["range", "now", "unbounded"]
    range_us: int | None = None
    slide_us: int | None = None
    wattr: Column | None = None
    drop_ratio: float | None = None  # a fraction: 1% is 0.01
    drop_ratio_per: Column | None = None  # the source whose tuples the ratio is of
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class EventsOf:
    """`EVENTS OF stream BY column AT point IN regions [DWELL … DRATIO p%]`, but for the stream."""

    by: Column
    point: Expr
    regions: str
    dwell_us: int | None = None
    drop_ratio: float | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class StreamRef:
    """A stream in FROM, or its events; `name` may be a companion such as `Sensors.late`."""

    name: str
    alias: str | None = None
    window: Window | None = None
    span: Span = _span()
    events: EventsOf | None = None


@dataclass(frozen=True, slots=True)
class Select:
    items: tuple[SelectItem | Star, ...]
    streams: tuple[StreamRef, ...]
    where: Expr | None = None
    group_by: tuple[Expr, ...] = ()
    having: Expr | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Option:
    """`key = value` in WITH or INTO; keys are lower case."""

    key: str
    value: str | int | float | bool
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class ColumnDef:
    name: str
    type: str  # canonical, see penstock.schema
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class CreateStream:
    """Source-backed (columns and options) or derived (query)."""

    name: str
    columns: tuple[ColumnDef, ...] = ()
    options: tuple[Option, ...] = ()
    query: Select | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class CreateRegions:
    """Named areas with attributes, from a file."""

    name: str
    path: str
    options: tuple[Option, ...] = ()
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class CreateQuery:
    name: str
    select: Select
    options: tuple[Option, ...] = ()  # WITH ( … ) before AS
    sink: tuple[Option, ...] | None = None  # INTO ( … ) after the SELECT
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class BareSelect:
    select: Select
    sink: tuple[Option, ...] | None = None
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Drop:
    what: OneOf["stream", "regions", "query"]
    name: str
    cascade: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Resume:
    """`RESUME QUERY name`: try it again now."""

    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Show:
    what: OneOf["streams", "regions", "queries", "rings", "exchange"]
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Describe:
    name: str
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of a SELECT (with or without CREATE QUERY) or of a registered query's name."""

    select: Select | None
    name: str | None = None
    analyze: bool = False
    span: Span = _span()


@dataclass(frozen=True, slots=True)
class SetOption:
    """`SET key = value` for the engine, `SET stream.key = value` for one stream."""

    option: Option
    stream: str | None = None
    span: Span = _span()


Statement = (
    CreateStream
    | CreateRegions
    | CreateQuery
    | BareSelect
    | Drop
    | Resume
    | Show
    | Describe
    | Explain
    | SetOption
)
