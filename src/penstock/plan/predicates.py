"""WHERE as a disjunction of conjunctions of value sets, under SQL's three-valued logic.

A condition is TRUE, FALSE or unknown, and a row is kept only when it is TRUE. "It is TRUE" and "it
is FALSE" are both ordinary two-valued statements about the row, and they push through the
connectives: AND is TRUE when all parts are TRUE and FALSE when some part is FALSE, OR the other way
round, and NOT swaps the two. So each leaf gives a pair of value sets, where it is TRUE and where it
is FALSE; unknown is where neither holds. Then only AND and OR of set memberships remain, and they
are multiplied out.

Leaves that compare an attribute with constants are sets of that attribute; a part without columns
counts as the constant that Spark makes of it. `expr op constant` makes `expr` a derived attribute,
any other leaf is a derived boolean attribute that must be TRUE. Spark computes derived attributes
for every row, so a leaf that may raise an error must be the first one that Spark itself would
evaluate; otherwise the whole WHERE is derived, and Spark's own order holds. A WHERE that multiplies
out too far keeps its plain conjuncts and derives the rest, if the rest cannot fail. A geofence is a
boolean attribute too, but the stage computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from penstock.errors import QueryError
from penstock.language.ast import (
    And,
    Column,
    Comparison,
    Expr,
    InList,
    Literal,
    Not,
    Or,
    SpatialCall,
)
from penstock.language.render import render
from penstock.language.tree import columns_of, rebuild, walk
from penstock.plan.comparisons import (
    compare_alike,
    constant_of,
    is_comparable_type,
    literal_type,
)
from penstock.plan.conjunctions import MAX_TERMS, Sets, TooManyTerms, conjoin, simplified
from penstock.plan.failing import cannot_fail
from penstock.plan.geofences import fence_test
from penstock.plan.leaves import IS_FALSE, IS_TRUE, constant_truth, operand_of, sets_of
from penstock.plan.normal import oriented
from penstock.plan.specs import Attribute, FenceTest, Term, ValueSet

# Names and types an expression that Spark computes as a column; None if it may not be one. Pure:
# the same expression gets the same answer, and only what the `Predicate` lists is really used.
Derive = Callable[[Expr], Attribute | None]
# The literal (one that `constant_of` reads) that SQL without columns stands for, for good; or None.
Fold = Callable[[str], Expr | None]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A row is kept if any term holds: no terms, never; a term without sets, always.

    Attributes in `derived` have a value for every row, those in `failing` may raise an error.
    """

    terms: tuple[Term, ...]
    derived: tuple[Attribute, ...] = ()
    failing: tuple[Attribute, ...] = ()


class _NeedsSpark(Exception):
    """The condition cannot be taken apart: Spark has to evaluate it as it stands."""


def analyse(where: Expr | None, types: Mapping[str, str], derive: Derive, fold: Fold) -> Predicate:
    """Take a bound WHERE apart; `types` are the canonical types of the stream's columns.

    Conditions that differ only in the order of AND, OR and IN give equal terms.
    """
    if where is None:
        return Predicate((Term(()),))
    first = _first_leaf(where)
    always = (first, operand_of(_with_constants(first, fold)))
    analysis = _Analysis(types, derive, fold, always)
    try:
        conjunctions = analysis.holds(where, True)
    except (_NeedsSpark, TooManyTerms):
        conjunctions = analysis.holds_in_part(where)
    terms = tuple(_term(sets, analysis.fences) for sets in conjunctions)
    used = {name for term in terms for name, _ in term.sets}
    derived, failing = (
        tuple(a for name, a in sorted(found.items()) if name in used)
        for found in (analysis.derived, analysis.failing)
    )
    return Predicate(terms, derived, failing)


@dataclass(slots=True)
class _Analysis:
    types: Mapping[str, str]
    derive: Derive
    fold: Fold
    always: tuple[Expr | None, ...]  # what Spark evaluates for every row, whatever comes of it
    derived: dict[str, Attribute] = field(default_factory=dict)
    failing: dict[str, Attribute] = field(default_factory=dict)
    fences: dict[str, FenceTest] = field(default_factory=dict)

    def holds(self, expr: Expr, wanted: bool) -> list[Sets]:
        """The conjunctions of which one holds exactly where the condition has the wanted truth."""
        match expr:
            case Not(part):
                return self.holds(part, not wanted)
            case And() | Or():
                branches = [self.holds(part, wanted) for part in _flat(expr)]
                if isinstance(expr, And) == wanted:
                    return reduce(conjoin, sorted(branches, key=repr), [{}])
                return simplified([sets for branch in branches for sets in branch])
            case Literal(value) if value is None or isinstance(value, bool):
                return [{}] if value is wanted else []
            case Comparison(op, left, right) if op != "<=>" and Literal(None) in (left, right):
                return []
            case InList() if (alternatives := self.split(expr)) is not None:
                return self.holds(alternatives, wanted)
            case _ if (truth := self.truth(expr)) is not None:
                return [{}] if truth is wanted else []
            case _:
                name, true, false = self.leaf(expr)
                return simplified([{name: true if wanted else false}])

    def holds_in_part(self, where: Expr) -> list[Sets]:
        """Conjuncts that are plain sets, and one derived boolean for the rest or for all."""
        plain: list[list[Sets]] = []
        rest: list[Expr] = []
        for part in _flat(where) if isinstance(where, And) else ():
            try:
                found = self.holds(part, True)
            except (_NeedsSpark, TooManyTerms):
                found = None
            if found is not None and len(found) <= 1:
                plain.append(found)
            else:
                rest.append(part)
        remaining = rest[0] if len(rest) == 1 else And(tuple(rest))
        if not plain or not self.cannot_fail(remaining):
            plain, remaining = [], where
        if any(isinstance(node, SpatialCall) for node in walk(remaining)):
            raise QueryError(
                "this condition would be left to Spark, which knows no geofences",
                "what may fail, such as a division, has to come first; where there are more than"
                f" {MAX_TERMS} alternatives, unite areas in one MULTIPOLYGON",
                where.span,
            )
        attribute = self.attribute(remaining, demanded=True)
        if attribute is None or attribute[1] != "boolean":
            raise QueryError(
                "this condition cannot be evaluated",
                "WHERE takes a boolean expression of the stream's columns",
                where.span,
            )
        return reduce(conjoin, [*plain, [{attribute[0]: IS_TRUE}]], [{}])

    def split(self, expr: InList) -> Or | None:
        """`x IN (1, b)` as `x IN (1) OR x = b`, where both compare alike; else None."""
        operand = expr.operand
        items = [(item, _folded(item, self.fold) or item) for item in expr.items]
        constants = tuple(item for item, plain in items if constant_of(plain) is not None)
        others = [item for item, plain in items if constant_of(plain) is None]
        if not isinstance(operand, Column) or not constants or not others:
            return None
        compared = [operand, *(plain for _, plain in items if plain != Literal(None))]
        types = [type_ for e in compared if (type_ := self.type_of(e)) is not None]
        if len(types) < len(compared) or not compare_alike(types):
            return None
        if not all(self.cannot_fail(other) for other in others):
            return None
        return Or((InList(operand, constants), *(Comparison("=", operand, o) for o in others)))

    def truth(self, expr: Expr) -> bool | None:
        """What a condition without columns says; None if it is unknown or not always the same."""
        if isinstance(expr, Comparison) and (known := constant_truth(expr)) is not None:
            return known
        match _folded(expr, self.fold):
            case Literal(bool(value)):
                return value
        return None

    def leaf(self, expr: Expr) -> tuple[str, ValueSet, ValueSet]:
        """A leaf as an attribute and the sets of its values where the leaf is TRUE and FALSE."""
        plain = _with_constants(expr, self.fold)
        operand = operand_of(plain)
        if operand is not None and (attribute := self.attribute(operand)) is not None:
            name, type_ = attribute
            pair = sets_of(plain, type_) if is_comparable_type(type_) else None
            if pair is not None:
                return name, *pair
        attribute = self.attribute(oriented(expr) if self.cannot_fail(expr) else expr)
        if attribute is None or attribute[1] != "boolean":
            raise _NeedsSpark
        return attribute[0], IS_TRUE, IS_FALSE

    def attribute(self, expr: Expr, demanded: bool = False) -> tuple[str, str] | None:
        """Name and type of the expression's value, if it may be computed for every row."""
        if isinstance(expr, Column):
            type_ = self.types.get(expr.name)
            return None if type_ is None else (expr.name, type_)
        if isinstance(expr, SpatialCall):
            test = fence_test(expr, self.types)
            self.fences[test.name] = test
            return test.name, "boolean"
        safe = self.cannot_fail(expr)
        if not (safe or demanded or expr in self.always):
            return None
        attribute = self.derive(expr)
        if attribute is None:
            return None
        (self.derived if safe else self.failing)[attribute.name] = attribute
        return attribute.name, attribute.type

    def cannot_fail(self, expr: Expr) -> bool:
        return cannot_fail(rebuild(expr, lambda e: _folded(e, self.fold)), self.type_of)

    def type_of(self, expr: Expr) -> str | None:
        if isinstance(expr, Column):
            return self.types.get(expr.name)
        if (constant := constant_of(expr)) is not None:
            return literal_type(constant.value)
        if isinstance(expr, SpatialCall):
            return "boolean"
        attribute = self.derive(expr)
        return None if attribute is None else attribute.type


def _term(sets: Sets, fences: Mapping[str, FenceTest]) -> Term:
    ordered = sorted(sets.items())
    return Term(
        tuple((name, values) for name, values in ordered if name not in fences),
        tuple((fences[name], values) for name, values in ordered if name in fences),
    )


def _folded(expr: Expr, fold: Fold) -> Expr | None:
    """The literal of an expression without columns; None if it has none or is one."""
    if isinstance(expr, SpatialCall) or columns_of(expr) or constant_of(expr) is not None:
        return None
    return fold(render(expr))


def _with_constants(leaf: Expr, fold: Fold) -> Expr:
    """The leaf with literals for those of its operands that have no columns."""
    return rebuild(leaf, lambda part: None if part is leaf else _folded(part, fold) or part)


def _first_leaf(expr: Expr) -> Expr:
    while isinstance(expr, And | Or | Not):
        expr = expr.part if isinstance(expr, Not) else expr.parts[0]
    return expr


def _flat(expr: And | Or) -> Iterator[Expr]:
    for part in expr.parts:
        if isinstance(part, And | Or) and type(part) is type(expr):
            yield from _flat(part)
        else:
            yield part
