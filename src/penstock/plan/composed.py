"""What composing a query gives, and what it takes: names and types for derived attributes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.errors import QueryError
from penstock.language.ast import Aggregate, Column, Expr
from penstock.language.render import render
from penstock.language.tree import walk
from penstock.plan.catalog import Stream
from penstock.plan.failing import cannot_fail
from penstock.plan.geofences import refuse_spatial
from penstock.plan.predicates import Predicate
from penstock.plan.specs import Attribute, Composition, Constant, Shown, Term, WindowSpec
from penstock.schema import Schema

# Spark's type of an SQL expression over these columns; raises QueryError if it has none.
TypeOf = Callable[[str, Schema], str]


@dataclass(frozen=True, slots=True)
class Composed:
    """Where a query runs (composition) and what makes it itself there (the rest).

    In a join, `inputs` are what its inputs contribute. `columns`: its results, in its own order.
    `constants`: those of its HAVING that are data. `roles`: of which columns its ring speaks.
    """

    composition: Composition
    terms: tuple[Term, ...]
    window: WindowSpec | None
    derived: tuple[Attribute, ...]
    inputs: tuple[Composed, ...] = ()
    columns: tuple[Shown, ...] = ()
    constants: tuple[Constant, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()


def composed_of(
    stream: Stream, composition: Composition, predicate: Predicate, window: WindowSpec | None
) -> Composed:
    """Attributes that the composition does not know are the slot's own."""
    derived = tuple(a for a in predicate.derived if a not in composition.derived)
    in_reader = stream.source != "dataframe" and not composition.derived
    placed = bool(composition.placed)
    fenced = composition.kind == "select" and any(term.fences for term in predicate.terms)
    composition = replace(
        composition,
        computed=(in_reader or placed) and bool(derived),
        fenced=placed or (fenced and (not in_reader or bool(derived))),
    )
    return Composed(composition, predicate.terms, window, derived)


def fixed_attributes(
    predicate: Predicate, more: tuple[Attribute, ...], types: dict[str, str]
) -> tuple[Attribute, ...]:
    """Derived attributes that belong to the composition."""
    found = {a.name: a for a in (*predicate.failing, *more) if a.name not in types}
    return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, slots=True)
class Deriver:
    """Names expressions over a stream's columns: the same expression, the same name."""

    types: dict[str, str]
    type_of: Callable[[str], str]

    @classmethod
    def over(cls, schema: Schema, type_of: TypeOf) -> Deriver:
        return cls({f.name: f.type for f in schema.fields}, lambda sql: type_of(sql, schema))

    def derive(self, expr: Expr) -> Attribute | None:
        if any(isinstance(e, Aggregate) for e in walk(expr)):
            return None
        refuse_spatial(expr)
        sql = render(expr)
        name = f"__d_{hashlib.sha256(sql.encode()).hexdigest()[:12]}"
        try:
            return Attribute(name, self.type_of(sql), sql)
        except QueryError as error:
            if error.span is None:
                error.span = expr.span
            raise

    def attribute(self, expr: Expr) -> Attribute | None:
        """An expression as a column of the stage's input, if every row may compute it."""
        if isinstance(expr, Column):
            return Attribute(expr.name, self.types[expr.name], "")
        return self.derive(expr) if self.cannot_fail(expr) else None

    def cannot_fail(self, expr: Expr) -> bool:
        return cannot_fail(expr, self.type)

    def type(self, expr: Expr) -> str | None:
        if isinstance(expr, Column):
            return self.types.get(expr.name)
        attribute = self.derive(expr)
        return None if attribute is None else attribute.type
