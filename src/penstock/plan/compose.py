"""A bound query to a composition and a slot: what is plan and what is data.

Everything that shapes the Spark plan goes into the composition; the predicate's constants, the
window, and attributes that Spark derives for the predicate without risk go into the slot. Windows
are pre-aggregated in the Arrow stage where every aggregate allows it; the rest is shipped row by
row and aggregated natively.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import QueryError
from penstock.language.ast import Aggregate, Column, Expr, Literal, Opaque
from penstock.language.render import render
from penstock.language.tree import rebuild, walk
from penstock.plan.aggregates import Merge, merge_of, native_call
from penstock.plan.bound import BoundQuery
from penstock.plan.compose_join import compose_join
from penstock.plan.composed import Composed, Deriver, TypeOf, composed_of, fixed_attributes
from penstock.plan.having import HavingConstants, with_parts_in_order
from penstock.plan.predicates import Fold, Predicate, analyse
from penstock.plan.result_columns import in_order, with_all_aggregates, with_all_columns
from penstock.plan.roles import in_roles
from penstock.plan.specs import Attribute, Composition, Output, Partial
from penstock.schema import is_groupable


def compose(query: BoundQuery, type_of: TypeOf, fold: Fold) -> Composed:
    """Split a bound query into composition and slot data."""
    if len(query.inputs) > 1:
        return compose_join(query, type_of, fold)
    query, columns = in_order(query)
    if (given := in_roles(query, columns)) is not None:
        composed = _compose(given.query, type_of, fold)
        if composed.composition.preaggregated:
            composition = replace(composed.composition, any_columns=True, in_roles=True)
            return replace(
                composed, composition=composition, columns=given.columns, roles=given.roles
            )
    if (widened := with_all_aggregates(query, columns)) is not None:
        composed = _compose(widened[0], type_of, fold)
        if composed.composition.preaggregated:
            composition = replace(composed.composition, any_columns=True)
            return replace(composed, composition=composition, columns=widened[1])
    composed = _compose(query, type_of, fold)
    composition, columns = with_all_columns(composed.composition, columns, query.source.stream)
    return replace(composed, composition=composition, columns=columns)


def _compose(query: BoundQuery, type_of: TypeOf, fold: Fold) -> Composed:
    stream = query.source.stream
    deriver = Deriver.over(stream.schema, type_of)
    types = deriver.types
    predicate = analyse(query.where, types, deriver.derive, fold)
    if query.source.following is not None:
        return composed_of(stream, _events(query, predicate, types), predicate, None)
    if not query.aggregated:
        return composed_of(stream, _selection(query, predicate, types), predicate, None)
    plan = _preaggregated(query, deriver, types) or _raw(query)
    per = query.source.drop_ratio_per
    composition = Composition(
        kind="window",
        stream=stream.name,
        regions=query.source.regions,
        spatial=query.source.spatial,
        derived=fixed_attributes(predicate, plan.derived, types),
        shipped=plan.shipped,
        outputs=plan.outputs,
        event_time=query.source.event_time,
        keys=plan.keys,
        key_types=plan.key_types,
        partials=plan.partials,
        partial_types=plan.partial_types,
        aggregates=plan.aggregates,
        having=plan.having,
        constants=tuple(plan.constants.types),
        preaggregated=bool(plan.partials),
        drop_ratio=query.source.drop_ratio,
        per=per,
        apart=per is not None and Column(per) in query.keys,
    )
    composed = composed_of(stream, composition, predicate, query.source.window)
    return replace(composed, constants=tuple(plan.constants.values))


def _selection(query: BoundQuery, predicate: Predicate, types: dict[str, str]) -> Composition:
    used = {c.name for i in query.items for c in walk(i.expr) if isinstance(c, Column)}
    shipped = tuple(n for n in types if n in used) or tuple(types)[:1]
    return Composition(
        kind="select",
        stream=query.source.stream.name,
        regions=query.source.regions,
        spatial=query.source.spatial,
        derived=fixed_attributes(predicate, (), types),
        shipped=shipped,
        outputs=tuple(Output(i.name, render(i.expr)) for i in query.items),
        event_time=query.source.stream.event_time,
    )


def _events(query: BoundQuery, predicate: Predicate, types: dict[str, str]) -> Composition:
    """A selection of events; they come out of the ring's state, where Spark computes nothing."""
    fenced = any(term.fences for term in predicate.terms)
    if predicate.derived or predicate.failing or query.source.spatial or fenced:
        hint = "WHERE compares columns of events with constants; SELECT may compute with them"
        span = None if query.where is None else query.where.span
        raise QueryError("this is more than can be asked of events", hint, span)
    return replace(
        _selection(query, predicate, types),
        kind="events",
        event_time=query.source.event_time,
        drop_ratio=query.source.drop_ratio,
        following=query.source.following,
    )


@dataclass(frozen=True, slots=True)
class _WindowPlan:
    shipped: tuple[str, ...] = ()
    derived: tuple[Attribute, ...] = ()
    keys: tuple[str, ...] = ()
    key_types: tuple[str, ...] = ()
    partials: tuple[Partial, ...] = ()
    partial_types: tuple[str, ...] = ()
    aggregates: tuple[Output, ...] = ()
    outputs: tuple[Output, ...] = ()
    having: str | None = None
    constants: HavingConstants = field(default_factory=HavingConstants)


def _preaggregated(
    query: BoundQuery, deriver: Deriver, types: dict[str, str]
) -> _WindowPlan | None:
    """The plan with partial aggregates, or None if some aggregate or key cannot be had that way."""
    keys = [deriver.attribute(k) for k in query.keys]
    if any(k is None or not is_groupable(k.type) for k in keys):
        return None
    calls: list[Aggregate] = []
    for expr in _expressions(query):
        calls += [e for e in walk(expr) if isinstance(e, Aggregate) and e not in calls]
    partials: dict[Partial, str] = {}
    arguments: list[Attribute] = []
    aggregates: list[Output] = []
    results: dict[Expr, Expr] = {key: Column(f"__k{i}") for i, key in enumerate(query.keys)}
    for number, call in enumerate(calls):
        argument = _argument(call, deriver)
        if argument == "unknown":
            return None
        attribute = argument if isinstance(argument, Attribute) else None
        merge = merge_of(call.name, None if attribute is None else attribute.type)
        if merge is None or call.distinct or call.where is not None:
            return None
        arguments += [] if attribute is None else [attribute]
        names = _partial_names(merge, attribute, partials)
        aggregates.append(Output(f"__a{number}", merge.sql.format(*names)))
        results.setdefault(call, _result(merge, Column(f"__a{number}")))
    outputs = []
    for item in query.items:
        text = _over_results(item.expr, results)
        if text is None:
            return None
        outputs.append(Output(item.name, text))
    having, constants = None, HavingConstants(types)
    if query.having is not None:
        tested = constants.taken_out(with_parts_in_order(query.having, types))
        having = _over_results(tested, results)
        if having is None:
            return None
    if not partials:  # GROUP BY without aggregates: a count keeps the groups alive
        partials[Partial("count_star", None, "__p0")] = "bigint"
    known = [k for k in keys if k is not None]
    return _WindowPlan(
        derived=tuple(a for a in (*known, *arguments) if a.name not in types),
        keys=tuple(k.name for k in known),
        key_types=tuple(k.type for k in known),
        partials=tuple(partials),
        partial_types=tuple(partials.values()),
        aggregates=tuple(aggregates),
        outputs=tuple(outputs),
        having=having,
        constants=constants,
    )


def _expressions(query: BoundQuery) -> list[Expr]:
    return [*(i.expr for i in query.items), *(() if query.having is None else (query.having,))]


def _argument(call: Aggregate, deriver: Deriver) -> Attribute | str | None:
    """The attribute an aggregate reads; None for COUNT(*); "unknown" if it cannot be one."""
    match call.arguments:
        case ():
            return None
        case (Literal(value),) if call.name == "count" and value is not None:
            return None  # COUNT(1) is COUNT(*)
        case (argument,):
            return deriver.attribute(argument) or "unknown"
        case _:
            return "unknown"


def _partial_names(
    merge: Merge, attribute: Attribute | None, partials: dict[Partial, str]
) -> list[str]:
    """Names of the partial columns that a merge needs; equal partials are kept once."""
    names = []
    for kind, type_, half in merge.partials:
        argument = None if attribute is None else attribute.name
        alike = (p for p in partials if (p.kind, p.argument, p.half) == (kind, argument, half))
        known = next((p for p in alike if partials[p] == type_), None)
        if known is None:
            known = Partial(kind, argument, f"__p{len(partials)}", half)
            partials[known] = type_
        names.append(known.name)
    return names


def _result(merge: Merge, aggregate: Column) -> Expr:
    """An aggregate as outputs have it."""
    return aggregate if merge.type is None else Opaque(("cast(", aggregate, f" AS {merge.type})"))


def _over_results(expr: Expr, results: Mapping[Expr, Expr]) -> str | None:
    """An output over the names of keys and aggregates; None if a column remains inside."""
    changed = rebuild(expr, results.get)
    columns = {e.name for e in walk(changed) if isinstance(e, Column)}
    foreign = {c for c in columns if not c.startswith("__")}
    return None if foreign else render(changed)


def _raw(query: BoundQuery) -> _WindowPlan:
    """Ship the columns that keys, aggregates and outputs use; Spark does the rest."""
    used: set[str] = set()
    for expr in (*query.keys, *_expressions(query)):
        used |= {e.name for e in walk(expr) if isinstance(e, Column)}
    names = query.source.stream.schema.names
    shipped = tuple(n for n in names if n in used) or names[:1]

    def text(expr: Expr) -> str:
        return render(expr, aggregate=native_call)

    return _WindowPlan(
        shipped=shipped,
        keys=tuple(text(k) for k in query.keys),
        outputs=tuple(Output(i.name, text(i.expr)) for i in query.items),
        having=None if query.having is None else text(query.having),
    )
