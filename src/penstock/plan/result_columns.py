"""Which columns a ring computes, and which of them a query shows, in which order and by what names.

Select lists and groups are sets to a ring: it computes each expression once, in an order that the
text has no part in, and every query picks its own columns out of the ring's rows. So queries share
a ring whatever they call their columns. Where all are columns of the stream as they came, nothing
is computed: then queries share a ring whatever they select. And where all are keys of a window's
groups and the usual aggregates of columns, queries share a ring whichever of these they select.
"""

from __future__ import annotations

import re
from dataclasses import replace

from penstock.language.ast import Aggregate, Column, Expr, Literal, Opaque
from penstock.language.render import quote_name, render
from penstock.language.tree import rebuild, walk
from penstock.plan.aggregates import merge_of
from penstock.plan.bound import BoundItem, BoundQuery
from penstock.plan.catalog import Stream
from penstock.plan.scope import WINDOW_COLUMNS
from penstock.plan.specs import Composition, Output, Partial, Shown
from penstock.schema import Field, Schema, is_flat

_USUAL = ("count", "sum", "avg", "min", "max")
_PARTIAL, _AGGREGATE = re.compile(r"__p\d+"), re.compile(r"__a\d+")


def in_order(query: BoundQuery) -> tuple[BoundQuery, tuple[Shown, ...]]:
    """The query with its items and keys in the ring's order, and what it shows of them."""
    ranked = sorted(query.items, key=lambda item: render(item.expr))
    items: list[BoundItem] = []
    places: dict[str, int] = {}
    for item in ranked:
        if not items or item.expr != items[-1].expr or not _is_plain(item.expr):
            items.append(BoundItem(f"__o{len(items)}", item.expr))
        places[item.name] = len(items) - 1
    keys = {render(key): key for key in query.keys}
    windows = WINDOW_COLUMNS if query.aggregated else ()
    shown = [Shown(name, place) for place, name in enumerate(windows)]
    shown += [Shown(item.name, len(windows) + places[item.name]) for item in query.items]
    ordered = replace(query, items=tuple(items), keys=tuple(keys[text] for text in sorted(keys)))
    return ordered, tuple(shown)


def with_all_columns(
    composition: Composition, columns: tuple[Shown, ...], stream: Stream
) -> tuple[Composition, tuple[Shown, ...]]:
    """A selection of columns as that of all of them, if its ring can leave out those that nobody
    shows: where the stage is in the reader, and what it ships goes past Spark unseen."""
    if composition.kind != "select" or stream.source == "dataframe":
        return composition, columns
    if composition.derived or composition.computed or composition.placed:
        return composition, columns
    shipped = tuple(field.name for field in stream.schema.fields if is_flat(field.type))
    places = {quote_name(name): place for place, name in enumerate(shipped)}
    wanted = [output.sql for output in composition.outputs]
    if not places.keys() >= set(wanted):
        return composition, columns
    outputs = tuple(Output(f"__o{place}", sql) for sql, place in places.items())
    shown = tuple(Shown(c.name, places[wanted[c.place]]) for c in columns)
    return replace(composition, outputs=outputs, shipped=shipped, any_columns=True), shown


def with_all_aggregates(
    query: BoundQuery, columns: tuple[Shown, ...]
) -> tuple[BoundQuery, tuple[Shown, ...]] | None:
    """A window query with all of its keys and all the usual aggregates of the columns that it
    aggregates; None if it has others, for which its ring would have to compute more."""
    source = query.source
    if not query.aggregated:
        return None
    if source.following is not None or source.regions is not None or source.spatial:
        return None
    wanted = [item.expr if item.expr in query.keys else spelled(item.expr) for item in query.items]
    having = None if query.having is None else rebuild(query.having, spelled)
    tested = [] if having is None else [e for e in walk(having) if isinstance(e, Aggregate)]
    family: list[Expr] = [*query.keys, Aggregate("count", ())]
    for column, names in usual_aggregates(query).items():
        family += [Aggregate(name, (Column(column),)) for name in names]
    if any(expr not in family for expr in (*wanted, *tested)):
        return None
    items = tuple(BoundItem(f"__o{place}", expr) for place, expr in enumerate(family))
    places = {place: family.index(expr) for place, expr in enumerate(wanted) if expr is not None}
    fixed = len(WINDOW_COLUMNS)
    shown = tuple(
        c if c.place < fixed else Shown(c.name, fixed + places[c.place - fixed]) for c in columns
    )
    return replace(query, items=items, having=having), shown


def usual_aggregates(query: BoundQuery) -> dict[str, list[str]]:
    """Of each column that a query aggregates, what its ring has of it."""
    exprs = [item.expr for item in query.items]
    exprs += [] if query.having is None else [query.having]
    calls = [e for expr in exprs for e in walk(expr) if isinstance(e, Aggregate)]
    arguments = {argument for call in calls for argument in call.arguments}
    fields = [f for f in query.source.stream.schema.fields if Column(f.name) in arguments]
    return {field.name: usual(field.type) for field in fields}


def spelled(expr: Expr) -> Aggregate | None:
    """An aggregate in the one way in which its ring has it."""
    if not isinstance(expr, Aggregate) or expr.distinct or expr.where is not None:
        return None
    match expr.name, expr.arguments:
        case "count", (Literal(value),) if value is not None:
            return Aggregate("count", ())
        case "mean", arguments:
            return Aggregate("avg", arguments)
    return expr


def usual(type_: str) -> list[str]:
    """Aggregates of a column of which a ring has all if it has one: numbers of fixed width."""
    names = _USUAL[:1] if type_ == "string" else _USUAL
    return [name for name in names if merge_of(name, type_) is not None]


def places_needed(composition: Composition, columns: tuple[Shown, ...]) -> tuple[int, ...]:
    """The places of what a query shows, and of what its HAVING speaks of."""
    found = {column.place for column in columns}
    if (having := composition.having) is not None:
        outputs = enumerate(composition.outputs, len(WINDOW_COLUMNS))
        found |= {place for place, output in outputs if output.sql in having}
    return tuple(sorted(found))


def partials_of(composition: Composition) -> dict[str, list[Partial]]:
    """What each aggregate of a window ring is made of, by its name."""
    known = {partial.name: partial for partial in composition.partials}
    return {
        aggregate.name: [known[name] for name in _PARTIAL.findall(aggregate.sql)]
        for aggregate in composition.aggregates
    }


def partials_shown(composition: Composition) -> dict[int, frozenset[str]]:
    """The partials behind each of a window ring's columns, by place."""
    of = partials_of(composition)
    outputs = enumerate(composition.outputs, len(WINDOW_COLUMNS))
    return {
        place: frozenset(p.name for call in _AGGREGATE.findall(output.sql) for p in of[call])
        for place, output in outputs
    }


def partials_kept(composition: Composition, columns: tuple[Shown, ...]) -> list[Partial]:
    """The partials that a window ring keeps for a query."""
    if not composition.any_columns:
        return list(composition.partials)
    behind = partials_shown(composition)
    kept = set().union(*(behind.get(p, ()) for p in places_needed(composition, columns)))
    return [partial for partial in composition.partials if partial.name in kept]


def _is_plain(expr: Expr) -> bool:
    """Whether equal ones have equal values: a text that nobody looks into may draw at random."""
    return not any(isinstance(e, Opaque) for e in walk(expr))


def shown_schema(columns: tuple[Shown, ...], ring: Schema) -> Schema:
    """Names and types of a query's results."""
    return Schema(tuple(Field(c.name, c.type or ring.fields[c.place].type) for c in columns))
