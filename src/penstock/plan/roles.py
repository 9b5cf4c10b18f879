"""Which columns a window query groups by and aggregates is data.

Queries that group by plain columns and show the usual aggregates of plain columns do the same with
other names. A ring of them therefore speaks of *roles*: so many keys and arguments, each of one of
two types that hold all others of their sort. A query's slot says which column of the stream has
which role; roles that it needs none for are NULL in its rows. There are one, two, four or eight of
a sort, so that queries of a few columns all share a ring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.language.ast import Aggregate, Column, Expr
from penstock.language.tree import rebuild, walk
from penstock.plan.bound import BoundItem, BoundQuery
from penstock.plan.result_columns import spelled, usual, usual_aggregates
from penstock.plan.scope import WINDOW_COLUMNS
from penstock.plan.specs import Shown
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, Field, Schema

WHOLE_KEY, TEXT_KEY = "__gi", "__gs"  # what names of roles begin with
WHOLE_VALUE, FLOAT_VALUE = "__vi", "__vf"
_MOST = 8  # of a sort
_WHOLE = INTEGER_TYPES | {"boolean", "date", "timestamp", "timestamp_ntz"}


@dataclass(frozen=True, slots=True)
class InRoles:
    """A query over roles, what it shows of its ring's columns, and who has which role."""

    query: BoundQuery
    columns: tuple[Shown, ...]
    roles: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Sort:
    """Roles `prefix0` … of one type, which holds the values of some columns."""

    prefix: str
    type: str
    taken_by: tuple[str, ...]

    @property
    def fields(self) -> list[Field]:
        """As many as it takes, and no number that nobody else has."""
        count = 1 << (max(1, len(self.taken_by)) - 1).bit_length()
        return [Field(f"{self.prefix}{number}", self.type) for number in range(count)]

    @property
    def roles(self) -> dict[str, str]:
        """The role of each column."""
        return {name: f"{self.prefix}{number}" for number, name in enumerate(self.taken_by)}


def in_roles(query: BoundQuery, columns: tuple[Shown, ...]) -> InRoles | None:
    """A window query as that of all with roles as many as its own; None if it does more."""
    source = query.source
    if not query.aggregated:
        return None
    if source.following is not None or source.regions is not None or source.spatial:
        return None
    if source.drop_ratio_per is not None and Column(source.drop_ratio_per) in query.keys:
        return None  # windows of sources that close on their own
    roles = _Roles.of(query)
    if roles is None:
        return None
    family = roles.family
    items = [roles.taken(item.expr) for item in query.items]
    having = None if query.having is None else rebuild(query.having, roles.tested)
    if None in items or not (having is None or roles.are_all_of(having)):
        return None
    fixed = len(WINDOW_COLUMNS)
    places = [fixed + family.index(item) for item in items if item is not None]
    shown = tuple(
        column
        if column.place < fixed
        else Shown(
            column.name,
            places[column.place - fixed],
            roles.own_type(query.items[column.place - fixed].expr),
        )
        for column in columns
    )
    stream = replace(source.stream, schema=Schema((*source.stream.schema.fields, *roles.fields)))
    widened = replace(
        query,
        inputs=(replace(source, stream=stream),),
        items=tuple(BoundItem(f"__o{place}", expr) for place, expr in enumerate(family)),
        keys=tuple(Column(field.name) for sort in roles.groups for field in sort.fields),
        having=having,
    )
    return InRoles(widened, shown, roles.given)


@dataclass(frozen=True, slots=True)
class _Roles:
    """The roles of a query's keys and of the columns that it aggregates, which are of `types`."""

    groups: tuple[_Sort, ...]
    values: tuple[_Sort, ...]
    types: Mapping[str, str]

    @classmethod
    def of(cls, query: BoundQuery) -> _Roles | None:
        """None if some column can have none."""
        types = {field.name: field.type for field in query.source.stream.schema.fields}
        keys = [key.name for key in query.keys if isinstance(key, Column)]
        arguments = list(usual_aggregates(query))

        def taking(prefix: str, type_: str, names: list[str], held: frozenset[str]) -> _Sort:
            return _Sort(prefix, type_, tuple(sorted(n for n in names if types[n] in held)))

        groups = (
            taking(WHOLE_KEY, "bigint", keys, _WHOLE),
            taking(TEXT_KEY, "string", keys, frozenset({"string"})),
        )
        values = (
            taking(WHOLE_VALUE, "bigint", arguments, _WHOLE),
            taking(FLOAT_VALUE, "double", arguments, FLOAT_TYPES),
        )
        numbers = [len(sort.taken_by) for sort in (*groups, *values)]
        whole = len(query.keys) + len(arguments)
        return (
            cls(groups, values, types) if sum(numbers) == whole and max(numbers) <= _MOST else None
        )

    @property
    def fields(self) -> list[Field]:
        return [field for sort in (*self.groups, *self.values) for field in sort.fields]

    @property
    def given(self) -> tuple[tuple[str, str], ...]:
        """The roles that the query needs, and who has them."""
        sorts = (*self.groups, *self.values)
        return tuple(sorted((role, name) for sort in sorts for name, role in sort.roles.items()))

    @property
    def family(self) -> list[Expr]:
        """All that a ring of these roles has."""
        found: list[Expr] = [Column(field.name) for sort in self.groups for field in sort.fields]
        found.append(Aggregate("count", ()))
        for field in (field for sort in self.values for field in sort.fields):
            found += [Aggregate(name, (Column(field.name),)) for name in usual(field.type)]
        return found

    def taken(self, expr: Expr) -> Expr | None:
        """A key or an aggregate in roles; None if it is neither, or an unusual one."""
        match expr if isinstance(expr, Column) else spelled(expr):
            case Column(name):
                return _role(self.groups, name)
            case Aggregate("count", ()) as count:
                return count
            case Aggregate(name, (Column(argument),)):
                role = _role(self.values, argument)
                known = role is not None and name in usual(self.types[argument])
                return Aggregate(name, (role,)) if role is not None and known else None
        return None

    def tested(self, expr: Expr) -> Expr | None:
        """A part of HAVING in roles, if it is of the same type there."""
        return self.taken(expr) if self.own_type(expr) is None else None

    def are_all_of(self, having: Expr) -> bool:
        """Whether nothing is left in HAVING that a ring of roles has not."""
        parts = [part for part in walk(having) if isinstance(part, Aggregate | Column)]
        names = {field.name for field in self.fields} | {f"__{name}" for name in WINDOW_COLUMNS}
        return all(
            part in self.family if isinstance(part, Aggregate) else part.name in names
            for part in parts
        )

    def own_type(self, expr: Expr) -> str | None:
        """What a query shows a value as; None: it is of the type that its ring has."""
        match expr:
            case Column(name) | Aggregate("min" | "max", (Column(name),)):
                own = self.types.get(name)  # those of the window have none
                return None if own in ("bigint", "double", "string") else own
        return None


def _role(sorts: Sequence[_Sort], name: str) -> Column | None:
    """The role that a column has among some."""
    found = (sort.roles[name] for sort in sorts if name in sort.roles)
    return next((Column(role) for role in found), None)
