"""The columns that a query can name, and what a name stands for."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import QueryError
from penstock.language.ast import Column, Expr, StreamRef
from penstock.language.tree import rebuild
from penstock.plan.catalog import RegionSet, Stream, did_you_mean
from penstock.plan.normal import without_parentheses
from penstock.plan.specs import region_column
from penstock.schema import Schema

WINDOW_COLUMNS = ("window_start", "window_end")
# what these names are bound to; a stream's own column of such a name is another thing
BOUND_WINDOW_COLUMNS = tuple(f"__{name}" for name in WINDOW_COLUMNS)


@dataclass(frozen=True, slots=True)
class Scope:
    """The columns in sight; names lose their qualifier with one stream and gain it with several.

    Attributes of regions have names that no column of a stream has.
    """

    streams: tuple[tuple[StreamRef, Stream], ...]
    regions: tuple[StreamRef, RegionSet] | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for ref, _ in self._tables:
            alias = (ref.alias or ref.name).lower()
            if alias in seen:
                hint = f"write {ref.name} A, {ref.name} B and use A.column, B.column"
                raise QueryError(f"{ref.alias or ref.name} is used twice", hint, ref.span)
            seen.add(alias)

    @property
    def _tables(self) -> list[tuple[StreamRef, Schema]]:
        found = [(ref, stream.schema) for ref, stream in self.streams]
        return (
            found if self.regions is None else [*found, (self.regions[0], self.regions[1].schema)]
        )

    def candidates(self, column: Column) -> list[tuple[StreamRef, str]]:
        found = []
        for ref, schema in self._tables:
            if column.qualifier is not None and column.qualifier.lower() not in (
                (ref.alias or ref.name).lower(),
                ref.name.lower() if ref.alias is None else "",
            ):
                continue
            if (field := schema.field(column.name)) is not None:
                found.append((ref, field.name))
        return found

    def resolve(self, column: Column) -> Column:
        found = self.candidates(column)
        if len(found) == 1:
            ref, name = found[0]
            if self.regions is not None and ref is self.regions[0]:
                return Column(region_column(self.regions[1].name, name), None, column.span)
            qualifier = (ref.alias or ref.name) if len(self.streams) > 1 else None
            return Column(name, qualifier, column.span)
        if found:
            options = " or ".join(f"{ref.alias or ref.name}.{name}" for ref, name in found)
            raise QueryError(f"column {column.name} is ambiguous", f"write {options}", column.span)
        if self._is_window_column(column):
            return Column(f"__{column.name.lower()}", None, column.span)
        aliases = {(ref.alias or ref.name).lower() for ref, _ in self._tables}
        if column.qualifier is not None and column.qualifier.lower() not in aliases:
            names = [ref.alias or ref.name for ref, _ in self._tables]
            hint = did_you_mean(column.qualifier, names, "streams of this query")
            raise QueryError(f"{column.qualifier} is not a stream of this query", hint, column.span)
        names = sorted({n for _, schema in self._tables for n in schema.names})
        where = " or ".join(ref.name for ref, _ in self._tables)
        hint = did_you_mean(column.name, names, "columns")
        raise QueryError(f"column {column.name} not found in {where}", hint, column.span)

    def _is_window_column(self, column: Column) -> bool:
        """`window_start`, `window_end` of window results, unless the stream has such columns."""
        return column.qualifier is None and column.name.lower() in WINDOW_COLUMNS

    def bind(self, expr: Expr) -> Expr:
        found = rebuild(expr, lambda e: self.resolve(e) if isinstance(e, Column) else None)
        return without_parentheses(found)
