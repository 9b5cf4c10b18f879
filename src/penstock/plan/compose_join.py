"""A bound join to a composition and a slot.

Each input is a composition of its own: it selects its tuples, computes the key and ships what
results need. Constants of conditions on one input and all RANGEs are data of the slot. Without a
key that all inputs share, Spark joins by itself, and RANGEs are plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.errors import QueryError, Span
from penstock.language.ast import And, Column, Expr, Opaque
from penstock.language.render import render
from penstock.language.tree import columns_of, rebuild
from penstock.plan.aggregates import native_call
from penstock.plan.bound import BoundQuery, BoundStream
from penstock.plan.chain import chain_steps
from penstock.plan.comparisons import constant_of
from penstock.plan.composed import Composed, Deriver, TypeOf, composed_of, fixed_attributes
from penstock.plan.failing import cannot_fail
from penstock.plan.geofences import refuse_spatial
from penstock.plan.joins import JoinCondition, JoinScope, KeyPart, Node, conjuncts_of, take_apart
from penstock.plan.normal import oriented
from penstock.plan.predicates import Fold, analyse
from penstock.plan.result_columns import in_order
from penstock.plan.specs import (
    Attribute,
    Composition,
    Join,
    Output,
    Term,
    WindowSpec,
    joined_name,
)
from penstock.schema import has_arrow_type


def compose_join(query: BoundQuery, type_of: TypeOf, fold: Fold) -> Composed:
    """Split a bound join into composition and slot data."""
    scope = JoinScope(tuple(source.alias for source in query.inputs))
    derivers = [Deriver.over(source.stream.schema, type_of) for source in query.inputs]
    condition = _condition(query.where, scope, derivers, fold)
    query, columns = in_order(_over_joined_names(query, scope, condition))
    used = {c.name for expr in _expressions(query) for c in columns_of(expr)}
    inputs = tuple(
        _input(number, source, deriver, fold, condition, used)
        for number, (source, deriver) in enumerate(zip(query.inputs, derivers, strict=True))
    )
    return Composed(
        composition=_composition(query, inputs, bool(condition.key)),
        terms=(Term(()),),
        window=_window(query) if query.aggregated else None,
        derived=(),
        inputs=inputs,
        columns=columns,
    )


def _condition(
    where: Expr | None, scope: JoinScope, derivers: Sequence[Deriver], fold: Fold
) -> JoinCondition:
    def type_of(node: Node) -> str:
        type_ = derivers[node[0]].type(node[1])
        assert type_ is not None  # every column is known, and there are no aggregates
        return type_

    def type_of_column(expr: Expr) -> str | None:
        node = scope.node(expr) if isinstance(expr, Column) else None
        return None if node is None else type_of(node)

    condition = take_apart(
        where,
        scope,
        type_of,
        is_safe=lambda node: derivers[node[0]].cannot_fail(node[1]),
        is_constant=lambda e: constant_of(e) is not None or fold(render(e)) is not None,
    )
    for conjunct in condition.residual:
        refuse_spatial(conjunct)
    if not all(cannot_fail(e, type_of_column) for e in condition.residual):
        return condition  # what is evaluated first may keep the rest from failing
    return replace(condition, residual=_normal(condition.residual, scope))


def _normal(conjuncts: Sequence[Expr], scope: JoinScope) -> tuple[Expr, ...]:
    """Conditions on combinations in an order that the text has no part in, nor the aliases."""

    def column(c: Column) -> str:
        return joined_name(scope.aliases.index(str(c.qualifier)), c.name)

    sides = [oriented(conjunct, column) for conjunct in conjuncts]
    return tuple(sorted(sides, key=lambda conjunct: render(conjunct, column)))


def _over_joined_names(query: BoundQuery, scope: JoinScope, condition: JoinCondition) -> BoundQuery:
    """The query over the columns of combinations, with the residual as its WHERE."""
    columns = _equal_columns(condition.key)

    def change(expr: Expr) -> Expr | None:
        node = scope.node(expr)
        if node is None:
            return None
        number, equal = columns.get(node, node)
        if not isinstance(equal, Column):
            return None
        return Column(joined_name(number, equal.name), None, expr.span)

    def joined(expr: Expr) -> Expr:
        return rebuild(expr, change)

    return replace(
        query,
        items=tuple(replace(i, expr=joined(i.expr)) for i in query.items),
        where=_all([joined(e) for e in condition.residual]),
        keys=tuple(joined(k) for k in query.keys),
        having=None if query.having is None else joined(query.having),
    )


def _equal_columns(key: Sequence[KeyPart]) -> dict[Node, Node]:
    """For each expression of the key the first column that always has the same value.

    Where results need nothing but keys, one input ships them and the others ship nothing.
    """
    found: dict[Node, Node] = {}
    for part in key:
        for number, expr in enumerate(part.exprs):
            for other, column in enumerate(part.exprs):
                if isinstance(column, Column) and part.stands_for(number, other):
                    found.setdefault((number, expr), (other, column))
    return found


def _expressions(query: BoundQuery) -> list[Expr]:
    optional = (query.where, query.having)
    return [*(i.expr for i in query.items), *query.keys, *(e for e in optional if e is not None)]


def _input(
    number: int,
    source: BoundStream,
    deriver: Deriver,
    fold: Fold,
    condition: JoinCondition,
    used: set[str],
) -> Composed:
    where = _all(condition.pushed[number])
    predicate = analyse(where, deriver.types, deriver.derive, fold)
    keys = tuple(_key_attribute(part.exprs[number], where, deriver) for part in condition.key)
    shipped = tuple(n for n in deriver.types if joined_name(number, n) in used)
    if condition.key:
        _check_types(source, shipped, deriver.types)
    composition = Composition(
        kind="input",
        stream=source.stream.name,
        derived=fixed_attributes(predicate, keys, deriver.types),
        shipped=shipped,
        outputs=(),
        event_time=source.event_time,
        keys=tuple(k.name for k in keys),
        key_types=tuple(part.type for part in condition.key),
        drop_ratio=source.drop_ratio,
    )
    derived = (*composition.derived, *predicate.derived)  # the plan of a join does not change
    composition = replace(composition, derived=tuple(dict.fromkeys(derived)))
    return composed_of(source.stream, composition, predicate, source.window)


def _check_types(source: BoundStream, shipped: Sequence[str], types: Mapping[str, str]) -> None:
    """Tuples of a join are kept as Arrow."""
    for name in shipped:
        if not has_arrow_type(types[name]):
            raise QueryError(
                f"a join cannot keep {source.alias}.{name}, which is of type {types[name]}",
                "make columns of the parts that you need, in the DataFrame that the stream is of",
            )


def _key_attribute(expr: Expr, where: Expr | None, deriver: Deriver) -> Attribute:
    """What may raise an error is computed only for tuples that Spark would compute it for."""
    attribute = deriver.attribute(expr)
    if attribute is None:
        guarded = expr if where is None else Opaque(("if(", where, ", ", expr, ", NULL)"))
        attribute = deriver.derive(guarded)
    assert attribute is not None  # there are no aggregates in a WHERE
    return attribute


def _composition(query: BoundQuery, inputs: Sequence[Composed], keyed: bool) -> Composition:
    ranges_us = tuple(None if s.window is None else s.window.range_us for s in query.inputs)
    sources = tuple(i.composition for i in inputs)
    if keyed:
        join = Join(sources, None if query.where is None else render(query.where))
    else:
        steps = chain_steps(conjuncts_of(query.where), len(inputs))
        join = Join(sources, ranges_us=ranges_us, steps=steps)
    shipped = (joined_name(n, c) for n, i in enumerate(join.inputs) for c in i.shipped)

    def text(expr: Expr) -> str:
        return render(expr, aggregate=native_call)

    return Composition(
        kind="window" if query.aggregated else "select",
        stream=", ".join(i.stream for i in join.inputs),
        derived=(),
        shipped=tuple(shipped),
        outputs=tuple(Output(i.name, text(i.expr)) for i in query.items),
        keys=tuple(dict.fromkeys(text(k) for k in query.keys)),
        having=None if query.having is None else text(query.having),
        join=join,
    )


def _window(query: BoundQuery) -> WindowSpec:
    """Windows of combinations: as long as the longest of the inputs'."""
    windows = [source.window for source in query.inputs if source.window is not None]
    return max(windows, key=lambda window: window.range_us)


def _all(conjuncts: Sequence[Expr]) -> Expr | None:
    if len(conjuncts) < 2:
        return conjuncts[0] if conjuncts else None
    spans = [e.span for e in conjuncts]
    return And(tuple(conjuncts), Span(min(s.start for s in spans), max(s.end for s in spans)))
