"""AST and catalog to a bound query: every name resolved, every rule of the language checked.

Binding is what turns a text that parses into one that means something: columns become the streams'
own names, `*` is spelled out, aliases and ordinals in GROUP BY and HAVING are replaced by what they
stand for. Types of expressions are Spark's business; the runtime asks Spark once per composition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import QueryError
from penstock.language.ast import (
    Aggregate,
    Column,
    Expr,
    Literal,
    Select,
    SelectItem,
    Star,
    StreamRef,
    Window,
)
from penstock.language.render import default_name
from penstock.language.tree import children, rebuild, walk
from penstock.plan.bind_join import check_join, common_slide_us
from penstock.plan.bind_places import (
    bind_events,
    following_in,
    with_spatial,
)
from penstock.plan.bound import BoundItem, BoundQuery, BoundStream
from penstock.plan.catalog import GEOMETRY, TIME_TYPES, Catalog, Stream
from penstock.plan.events import events_stream
from penstock.plan.geofences import refuse_spatial
from penstock.plan.normal import with_literals_right, without_parentheses
from penstock.plan.regions import region_join, regions_in, with_columns
from penstock.plan.scope import BOUND_WINDOW_COLUMNS, WINDOW_COLUMNS, Scope
from penstock.plan.spatial import SpatialColumns
from penstock.plan.specs import WindowSpec, region_column
from penstock.schema import Field, is_groupable

INSTANT_US = 1_000  # [NOW] is one tick of the engine's clock, a millisecond


def bind(select: Select, catalog: Catalog) -> BoundQuery:
    """Resolve a SELECT against the catalog, or raise a QueryError that names the place."""
    regions = regions_in(select, catalog)
    refs = [ref for ref in select.streams if regions is None or ref is not regions[0]]
    streams = [catalog.require(ref.name, ref.span) for ref in refs]
    following = following_in(select, streams, catalog)
    if following is not None:
        streams = [events_stream(streams[0], following)]
    scope = Scope(tuple(zip(refs, streams, strict=True)), regions)
    items = tuple(i for item in select.items for i in _bind_item(item, scope))
    where = None if select.where is None else scope.bind(select.where)
    if where is not None:
        _refuse_aggregates(where, "WHERE", "use HAVING for conditions on aggregates")
    bound_keys = [_bind_key(key, items, scope) for key in select.group_by]
    keys = tuple(k for k in bound_keys if not _is_window(k))  # windows are always keys
    having = None if select.having is None else _bind_having(select.having, items, scope)
    aggregated = (
        bool(bound_keys) or any(_has_aggregate(i.expr) for i in items) or having is not None
    )
    if following is not None and aggregated:
        hint = "make a stream of them (CREATE STREAM … AS SELECT …), and aggregate that"
        raise QueryError("events cannot be aggregated", hint, refs[0].span)
    inputs = _bind_streams(scope, aggregated)
    if following is not None:
        inputs = (bind_events(inputs[0], refs[0], following, catalog),)
    if regions is not None:
        [source] = inputs
        join, where = region_join(where, regions, source.stream)
        joined = with_columns(source.stream, join.columns)
        inputs = (replace(source, stream=joined, regions=join),)
    if len(inputs) == 1:
        functions = SpatialColumns({f.name: f.type for f in inputs[0].stream.schema.fields})
        items = tuple(replace(i, expr=functions.anywhere(i.expr)) for i in items)
        keys = tuple(map(functions.anywhere, keys))
        having = None if having is None else functions.anywhere(having)
        where = None if where is None else functions.in_where(where)
        inputs = (with_spatial(inputs[0], tuple(functions.found.values())),)
    else:
        for expr in (*(i.expr for i in items), *keys, *(() if having is None else (having,))):
            refuse_spatial(expr)
    if aggregated:
        items = tuple(i for i in items if not _names_window(i))
        _check_grouping(items, keys, having)
    _refuse_window_columns(items, where, having, aggregated)
    _check_names(items)
    return BoundQuery(inputs, items, where, keys, having, aggregated, _notes(refs, aggregated))


def _bind_item(item: SelectItem | Star, scope: Scope) -> list[BoundItem]:
    if isinstance(item, SelectItem):
        return [BoundItem(item.name or default_name(item.expr), scope.bind(item.expr))]
    found = []
    for ref, stream in scope.streams:
        alias = ref.alias or ref.name
        if item.qualifier is not None and item.qualifier.lower() != alias.lower():
            continue
        qualifier = alias if len(scope.streams) > 1 else None
        found += [BoundItem(n, Column(n, qualifier, item.span)) for n in stream.schema.names]
    if scope.regions is not None:
        ref, regions = scope.regions
        if item.qualifier is None or item.qualifier.lower() == (ref.alias or ref.name).lower():
            names = [n for n in regions.schema.names if n != GEOMETRY]
            columns = {n: Column(region_column(regions.name, n), None, item.span) for n in names}
            found += [BoundItem(n, column) for n, column in columns.items()]
    if not found:
        raise QueryError(f"{item.qualifier} is not a stream of this query", None, item.span)
    return found


def _bind_key(key: Expr, items: tuple[BoundItem, ...], scope: Scope) -> Expr:
    """A GROUP BY expression; as in Spark it may be an ordinal or an alias of the select list."""
    if isinstance(key, Literal) and isinstance(key.value, int) and not isinstance(key.value, bool):
        if not 1 <= key.value <= len(items):
            hint = f"the select list has {len(items)} columns"
            raise QueryError(f"GROUP BY {key.value} is not in the select list", hint, key.span)
        expr = items[key.value - 1].expr
    elif isinstance(key, Column) and key.qualifier is None and not scope.candidates(key):
        expr = _alias(key, items) or scope.bind(key)
    else:
        expr = scope.bind(key)
    _refuse_aggregates(expr, "GROUP BY", "group by columns or by expressions over columns")
    return expr


def _bind_having(having: Expr, items: tuple[BoundItem, ...], scope: Scope) -> Expr:
    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Column):
            return None
        if expr.qualifier is None and not scope.candidates(expr):
            return _alias(expr, items) or scope.resolve(expr)
        return scope.resolve(expr)

    return with_literals_right(without_parentheses(rebuild(having, change)))


def _alias(column: Column, items: tuple[BoundItem, ...]) -> Expr | None:
    return next((i.expr for i in items if i.name.lower() == column.name.lower()), None)


def _bind_streams(scope: Scope, aggregated: bool) -> tuple[BoundStream, ...]:
    refs = [ref for ref, _ in scope.streams]
    if len(refs) > 1:
        check_join(refs)
    inputs = tuple(_bind_stream(ref, stream, aggregated, scope) for ref, stream in scope.streams)
    if len(refs) == 1 or not aggregated:
        return inputs
    slide_us = common_slide_us(refs, [i.window for i in inputs])
    return tuple(
        i if i.window is None else replace(i, window=replace(i.window, slide_us=slide_us))
        for i in inputs
    )


def _bind_stream(ref: StreamRef, stream: Stream, aggregated: bool, scope: Scope) -> BoundStream:
    window = ref.window
    event_time = stream.event_time
    if window is not None and window.wattr is not None:
        found = _own_field(window.wattr, ref, stream, scope)
        if found is None or found.type not in TIME_TYPES:
            kind = "not a column of this stream" if found is None else f"of type {found.type}"
            raise QueryError(
                f"WATTR {window.wattr.name} is {kind}",
                "the windowing attribute is a TIMESTAMP column",
                window.wattr.span,
            )
        event_time = found.name
    spec = _window_spec(window)
    joined = len(scope.streams) > 1
    if aggregated and not joined and spec is None:
        what = "an aggregate over an unbounded window is never final"
        raise QueryError(
            what if window else "an aggregate over a stream needs a window",
            f"write {ref.name} [RANGE 1 MINUTE] or [RANGE 5 MINUTES SLIDE 1 MINUTE]",
            window.span if window else ref.span,
        )
    if (aggregated or joined) and event_time is None:
        raise QueryError(
            f"stream {stream.name} has no event time to {'join' if joined else 'cut windows'} by",
            "give it one: WITH (…, event_time = 'column'), or write WATTR column in the window",
            ref.span,
        )
    ratio = None if window is None else window.drop_ratio
    per = None if window is None else _bind_per(window.drop_ratio_per, ref, stream, scope)
    return BoundStream(stream, ref.alias or ref.name, spec, event_time, ratio, per)


def _own_field(column: Column, ref: StreamRef, stream: Stream, scope: Scope) -> Field | None:
    """The field of this stream that a column in its window clause names."""
    if column.qualifier is None and (field := stream.schema.field(column.name)) is not None:
        return field
    resolved = scope.resolve(column)
    own = resolved.qualifier in (None, ref.alias or ref.name)
    return stream.schema.field(resolved.name) if own else None


def _bind_per(column: Column | None, ref: StreamRef, stream: Stream, scope: Scope) -> str | None:
    if column is None:
        return None
    found = _own_field(column, ref, stream, scope)
    if found is None or not is_groupable(found.type):
        kind = "not a column of this stream" if found is None else f"of type {found.type}"
        raise QueryError(
            f"PER {column.name} is {kind}",
            "the source of a tuple is a column of plain values, such as an id",
            column.span,
        )
    return found.name


def _window_spec(window: Window | None) -> WindowSpec | None:
    if window is None or window.kind == "unbounded":
        return None
    if window.kind == "now":
        return WindowSpec(INSTANT_US, INSTANT_US)
    if window.range_us is None:
        return None
    return WindowSpec(window.range_us, window.slide_us or window.range_us)


def _names_window(item: BoundItem) -> bool:
    """Selecting window_start or window_end adds nothing: every window result starts with them."""
    return (
        isinstance(item.expr, Column)
        and item.expr.name in BOUND_WINDOW_COLUMNS
        and item.expr.name == f"__{item.name.lower()}"
    )


def _is_window(expr: Expr) -> bool:
    return isinstance(expr, Column) and expr.name in BOUND_WINDOW_COLUMNS


def _refuse_window_columns(
    items: tuple[BoundItem, ...], where: Expr | None, having: Expr | None, aggregated: bool
) -> None:
    """Window columns exist in results only: not before the aggregation, not without one."""
    results = [*(i.expr for i in items), *(() if having is None else (having,))]
    before = [] if where is None else [where]
    if aggregated:
        calls = [a for e in results for a in walk(e) if isinstance(a, Aggregate)]
        before += [part for call in calls for part in children(call)]
    else:
        before += results
    for column in (node for expr in before for node in walk(expr) if _is_window(node)):
        assert isinstance(column, Column)
        raise QueryError(
            f"column {column.name.removeprefix('__')} not found",
            "window_start and window_end are columns of windowed results: use them beside the"
            " aggregates or in HAVING",
            column.span,
        )


def _has_aggregate(expr: Expr) -> bool:
    return any(isinstance(e, Aggregate) for e in walk(expr))


def _refuse_aggregates(expr: Expr, clause: str, hint: str) -> None:
    for node in walk(expr):
        if isinstance(node, Aggregate):
            raise QueryError(f"{node.name}() cannot be used in {clause}", hint, node.span)


def _check_names(items: tuple[BoundItem, ...]) -> None:
    if not items:
        raise QueryError("the query selects nothing", "name at least one column or aggregate")
    seen: dict[str, Expr] = {}
    for item in items:
        folded = item.name.lower()
        if folded in seen:
            hint = _other_name(item.name, seen[folded], item.expr)
            raise QueryError(f"two columns are named {item.name}", hint, item.expr.span)
        seen[folded] = item.expr


def _other_name(name: str, first: Expr, second: Expr) -> str:
    match first, second:
        case Column(a, str(one)), Column(b, str(other)) if one != other:
            return f"name the columns: SELECT {one}.{a}, {other}.{b} AS {name}_2"
        case _:
            return f"give one of them another name: … AS {name}_2"


def _check_grouping(
    items: tuple[BoundItem, ...], keys: tuple[Expr, ...], having: Expr | None
) -> None:
    """Plain columns outside aggregates must be grouping keys; what is nested, Spark judges."""
    for item in items:
        if item.name.lower() in WINDOW_COLUMNS:
            hint = "window results start with them already; choose another alias"
            raise QueryError(f"the name {item.name} is taken", hint, item.expr.span)
    for expr in (*(i.expr for i in items), *(() if having is None else (having,))):
        if (column := _ungrouped(expr, keys)) is not None:
            raise QueryError(
                f"column {column.name} is neither grouped nor aggregated",
                f"add it to GROUP BY, or aggregate it: max({column.name})",
                column.span,
            )


def _ungrouped(expr: Expr, keys: tuple[Expr, ...]) -> Column | None:
    if expr in keys or isinstance(expr, Aggregate):
        return None
    if isinstance(expr, Column):
        if expr.name in BOUND_WINDOW_COLUMNS:
            return None
        within = any(expr in walk(key) for key in keys)  # e.g. hour(ts) + 1 with GROUP BY hour(ts)
        return None if within else expr
    return next((c for e in children(expr) if (c := _ungrouped(e, keys)) is not None), None)


def _notes(refs: Sequence[StreamRef], aggregated: bool) -> tuple[str, ...]:
    notes = []
    joined = len(refs) > 1
    for ref in refs:
        if not aggregated and not joined and ref.window is not None:
            notes.append("a selection keeps no window: its window clause has no effect")
        if joined and _window_spec(ref.window) is None:
            notes.append(f"{ref.name} has no RANGE: its join state grows without bound")
        if joined and not aggregated and ref.window is not None and ref.window.slide_us is not None:
            notes.append(
                f"a join without aggregates reports at once: SLIDE of {ref.name} is unused"
            )
    return tuple(notes)
