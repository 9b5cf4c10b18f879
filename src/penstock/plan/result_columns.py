"""Which columns a ring computes, and which of them a query shows, in which order and by what names.

Select lists and groups are sets to a ring: it computes each expression once, in an order that the
text has no part in, and every query picks its own columns out of the ring's rows. So queries share
a ring whatever they call their columns. Where all are columns of the stream as they came, nothing
is computed: then queries share a ring whatever they select.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.language.ast import Expr, Opaque
from penstock.language.render import quote_name, render
from penstock.language.tree import walk
from penstock.plan.bound import BoundItem, BoundQuery
from penstock.plan.catalog import Stream
from penstock.plan.scope import WINDOW_COLUMNS
from penstock.plan.specs import Composition, Output, Shown
from penstock.schema import Field, Schema, is_flat


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


def _is_plain(expr: Expr) -> bool:
    """Whether equal ones have equal values: a text that nobody looks into may draw at random."""
    return not any(isinstance(e, Opaque) for e in walk(expr))


def shown_schema(columns: tuple[Shown, ...], ring: Schema) -> Schema:
    """Names and types of a query's results."""
    return Schema(tuple(Field(c.name, ring.fields[c.place].type) for c in columns))
