"""WHERE as a disjunction of conjunctions of value sets, under SQL's three-valued logic.

A condition is TRUE, FALSE or unknown, and a row is kept only when it is TRUE. "It is TRUE" and "it
is FALSE" are both ordinary two-valued statements about the row, and they push through the
connectives: AND is TRUE when all parts are TRUE and FALSE when some part is FALSE, OR the other way
round, and NOT swaps the two. So each leaf gives a pair of value sets, where it is TRUE and where it
is FALSE; unknown is where neither holds. Then only AND and OR of set memberships remain, and they
are multiplied out.

Leaves that compare an attribute with literals are sets of that attribute. `expr op literal` makes
`expr` a derived attribute, any other leaf is a derived boolean attribute that must be TRUE. Spark
computes derived attributes for every row, so a leaf that may raise an error must be the first one
that Spark itself would evaluate; otherwise the whole WHERE is derived, and Spark's own order holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from penstock.errors import QueryError
from penstock.language.ast import (
    And,
    Between,
    Column,
    Comparison,
    Expr,
    InList,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
)
from penstock.plan.comparisons import (
    compared,
    constant_of,
    is_comparable_type,
    literal_type,
    members,
)
from penstock.plan.failing import cannot_fail
from penstock.plan.specs import Attribute, Term, ValueSet
from penstock.plan.valuesets import (
    ALL_VALUES,
    EVERYTHING,
    NOTHING,
    ONLY_NULL,
    compare,
    complement,
    contains,
    intersect,
    is_subset,
    restrict,
    union,
)

# Names and types an expression that Spark computes as a column; None if it may not be one. Pure:
# the same expression gets the same answer, and only what `Predicate.derived` lists is really used.
Derive = Callable[[Expr], Attribute | None]

MAX_TERMS = 64
_MAX_PRODUCT = MAX_TERMS * MAX_TERMS
_Sets = dict[str, ValueSet]  # one conjunction, by attribute
_Pair = tuple[ValueSet, ValueSet]  # where a leaf is TRUE, where it is FALSE

_IS_TRUE, _IS_FALSE = restrict(compare("=", 1), 0, 1), restrict(compare("=", 0), 0, 1)
_UNKNOWN: _Pair = (NOTHING, NOTHING)
_FLIPPED: dict[Operator, Operator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: dict[Operator, Operator] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}


@dataclass(frozen=True, slots=True)
class Predicate:
    """A row is kept if any term holds: no terms, never; a term without sets, always."""

    terms: tuple[Term, ...]
    derived: tuple[Attribute, ...] = ()


class _NeedsWhole(Exception):
    """The condition cannot be taken apart: Spark has to evaluate it as it stands."""


def analyse(where: Expr | None, types: Mapping[str, str], derive: Derive) -> Predicate:
    """Take a bound WHERE apart; `types` are the canonical types of the stream's columns.

    Conditions that differ only in the order of AND, OR and IN give equal terms.
    """
    if where is None:
        return Predicate((Term(()),))
    analysis = _Analysis(types, derive, _first_leaf(where))
    try:
        conjunctions = analysis.holds(where, True)
    except _NeedsWhole:
        return _whole(where, derive)
    terms = tuple(Term(tuple(sorted(sets.items()))) for sets in conjunctions)
    used = {name for term in terms for name, _ in term.sets}
    derived = tuple(a for name, a in sorted(analysis.derived.items()) if name in used)
    return Predicate(terms, derived)


def _whole(where: Expr, derive: Derive) -> Predicate:
    attribute = derive(where)
    if attribute is None or attribute.type != "boolean":
        raise QueryError(
            "this condition cannot be evaluated",
            "WHERE takes a boolean expression of the stream's columns",
            where.span,
        )
    return Predicate((Term(((attribute.name, _IS_TRUE),)),), (attribute,))


@dataclass(slots=True)
class _Analysis:
    types: Mapping[str, str]
    derive: Derive
    first: Expr  # the leaf that Spark evaluates for every row
    derived: dict[str, Attribute] = field(default_factory=dict)

    def holds(self, expr: Expr, wanted: bool) -> list[_Sets]:
        """The conjunctions of which one holds exactly where the condition has the wanted truth."""
        match expr:
            case Not(part):
                return self.holds(part, not wanted)
            case And() | Or():
                branches = [self.holds(part, wanted) for part in _flat(expr)]
                if isinstance(expr, And) == wanted:
                    return reduce(_conjoin, sorted(branches, key=repr), [{}])
                return _simplified([sets for branch in branches for sets in branch])
            case Literal(value) if value is None or isinstance(value, bool):
                return [{}] if value is wanted else []
            case Comparison(op, left, right) if op != "<=>" and Literal(None) in (left, right):
                return []
            case Comparison() if (truth := _constant_truth(expr)) is not None:
                return [{}] if truth is wanted else []
            case _:
                name, true, false = self.leaf(expr)
                return _simplified([{name: true if wanted else false}])

    def leaf(self, expr: Expr) -> tuple[str, ValueSet, ValueSet]:
        """A leaf as an attribute and the sets of its values where the leaf is TRUE and FALSE."""
        operand = _operand(expr)
        if operand is not None and (attribute := self.attribute(operand)) is not None:
            name, type_ = attribute
            pair = _sets(expr, type_) if is_comparable_type(type_) else None
            if pair is not None:
                return name, *pair
        attribute = self.attribute(expr)
        if attribute is None or attribute[1] != "boolean":
            raise _NeedsWhole
        return attribute[0], _IS_TRUE, _IS_FALSE

    def attribute(self, expr: Expr) -> tuple[str, str] | None:
        """Name and type of the expression's value, if it may be computed for every row."""
        if isinstance(expr, Column):
            type_ = self.types.get(expr.name)
            return None if type_ is None else (expr.name, type_)
        if expr not in (self.first, _operand(self.first)) and not cannot_fail(expr, self.type_of):
            return None
        attribute = self.derive(expr)
        if attribute is None:
            return None
        self.derived[attribute.name] = attribute
        return attribute.name, attribute.type

    def type_of(self, expr: Expr) -> str | None:
        if isinstance(expr, Column):
            return self.types.get(expr.name)
        if (constant := constant_of(expr)) is not None:
            return literal_type(constant.value)
        attribute = self.derive(expr)
        return None if attribute is None else attribute.type


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


def _operand(leaf: Expr) -> Expr | None:
    """The expression that a leaf compares with literals only; None for other leaves."""
    others: tuple[Expr, ...]
    match leaf:
        case Comparison(_, left, right):
            operand, others = (right, (left,)) if constant_of(left) else (left, (right,))
        case Between(operand, low, high):
            others = (low, high)
        case InList(operand, items):
            others = items
        case IsNull(operand):
            others = ()
        case _:
            return leaf if isinstance(leaf, Column) else None
    if constant_of(operand) or not all(constant_of(other) for other in others):
        return None
    return operand


def _constant_truth(comparison: Comparison) -> bool | None:
    """What a comparison of two plain literals says (`1 = 1`); None for any other."""
    if not isinstance(comparison.left, Literal) or constant_of(comparison.right) is None:
        return None
    value = comparison.left.value
    type_ = literal_type(value)
    if type_ is None or not isinstance(value, int | str):
        return None
    pair = _comparison(type_, comparison.op, comparison.right)
    return None if pair is None else contains(pair[0], value)


def _sets(leaf: Expr, type_: str) -> _Pair | None:
    """Where a leaf with an operand of this type is TRUE and FALSE; None if Spark has to compare."""
    match leaf:
        case Column():
            return (_IS_TRUE, _IS_FALSE) if type_ == "boolean" else None
        case IsNull():
            return ONLY_NULL, ALL_VALUES
        case Comparison(op, left, right) if constant_of(left):
            return _comparison(type_, _FLIPPED.get(op, op), left)
        case Comparison(op, _, right):
            return _comparison(type_, op, right)
        case Between(_, low, high):
            above, below = _comparison(type_, ">=", low), _comparison(type_, "<=", high)
            if above is None or below is None:
                return None
            return intersect(above[0], below[0]), union(above[1], below[1])
        case InList(_, items):
            return _membership(type_, items)
    return None


def _comparison(type_: str, op: Operator, literal: Expr) -> _Pair | None:
    constant = constant_of(literal)
    assert constant is not None
    if constant.value is None:
        return (ONLY_NULL, ALL_VALUES) if op == "<=>" else _UNKNOWN
    if op == "<=>":
        equal = compared(type_, "=", constant.value)
        return None if equal is None else (equal, union(complement(equal), ONLY_NULL))
    true, false = (compared(type_, o, constant.value) for o in (op, _NEGATED[op]))
    return None if true is None or false is None else (true, false)


def _membership(type_: str, items: tuple[Expr, ...]) -> _Pair | None:
    values = [constant.value for item in items if (constant := constant_of(item))]
    found = members(type_, [value for value in values if value is not None])
    if found is None:
        return None
    # A value that equals no item may still equal the NULL among them: unknown.
    return found, NOTHING if None in values else complement(found)


def _conjoin(left: list[_Sets], right: list[_Sets]) -> list[_Sets]:
    if len(left) * len(right) > _MAX_PRODUCT:
        raise _NeedsWhole
    return _simplified(
        [
            {name: intersect(a.get(name, EVERYTHING), b.get(name, EVERYTHING)) for name in a | b}
            for a in left
            for b in right
        ]
    )


def _simplified(conjunctions: list[_Sets]) -> list[_Sets]:
    """The same disjunction in canonical order, without empty, mergeable and implied parts."""
    terms = [_without_everything(sets) for sets in conjunctions if NOTHING not in sets.values()]
    names = sorted({name for sets in terms for name in sets})
    before = -1
    while before != len(terms):
        before = len(terms)
        for name in names:
            terms = _merged(terms, name)
    if len(terms) > _MAX_PRODUCT // 4:
        raise _NeedsWhole
    terms.sort(key=_order)
    kept = [a for i, a in enumerate(terms) if not any(_implies(a, b) for b in terms[:i])]
    kept = [a for a in kept if not any(a is not b and _implies(a, b) for b in kept)]
    if len(kept) > MAX_TERMS:
        raise _NeedsWhole
    return kept


def _merged(terms: list[_Sets], name: str) -> list[_Sets]:
    """Join conjunctions that differ in one attribute only: `a < 3 OR a > 10` is one set of a."""
    by_rest: dict[frozenset[tuple[str, ValueSet]], list[ValueSet]] = {}
    for sets in terms:
        rest = frozenset(item for item in sets.items() if item[0] != name)
        by_rest.setdefault(rest, []).append(sets.get(name, EVERYTHING))
    return [
        _without_everything({**dict(rest), name: union(*sets)}) for rest, sets in by_rest.items()
    ]


def _without_everything(sets: _Sets) -> _Sets:
    return {name: values for name, values in sets.items() if values != EVERYTHING}


def _implies(inner: _Sets, outer: _Sets) -> bool:
    return all(is_subset(inner.get(name, EVERYTHING), values) for name, values in outer.items())


def _order(sets: _Sets) -> str:
    return repr(sorted(sets.items()))
