"""The inputs of a join in an order that FROM has no part in."""

from __future__ import annotations

from dataclasses import replace

from penstock.language.ast import Column, Expr
from penstock.language.render import render
from penstock.language.tree import columns_of
from penstock.plan.bound import BoundQuery, BoundStream
from penstock.plan.joins import conjuncts_of
from penstock.plan.normal import oriented


def with_ordered_inputs(query: BoundQuery) -> BoundQuery:
    """The query with its inputs by stream; those of one stream by what the query says of them.

    Of two inputs of one stream of which the same is said the first in FROM comes first.
    """
    if len(query.inputs) == 1:
        return query
    streams = {source.alias: source.stream.name.lower() for source in query.inputs}
    said = [(expr, {c.qualifier for c in columns_of(expr)}) for expr in _shared(query)]

    def key(source: BoundStream) -> tuple[str, str, float, list[str]]:
        def role(c: Column) -> str:
            owner = "own" if c.qualifier == source.alias else streams.get(str(c.qualifier))
            return f"{owner}.{c.name}"

        texts = [render(oriented(e, role), role) for e, aliases in said if source.alias in aliases]
        stream, event_time = streams[source.alias], source.event_time or ""
        return stream, event_time, source.drop_ratio or 0.0, sorted(texts)

    return replace(query, inputs=tuple(sorted(query.inputs, key=key)))


def _shared(query: BoundQuery) -> list[Expr]:
    """What all queries of the composition say: conditions on one input are a query's own data."""
    between = [
        conjunct
        for conjunct in conjuncts_of(query.where)
        if len({c.qualifier for c in columns_of(conjunct)}) > 1
    ]
    having = () if query.having is None else (query.having,)
    return [*(item.expr for item in query.items), *query.keys, *having, *between]
