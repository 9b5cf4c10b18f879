"""The WHERE of a join taken apart: what each input decides alone, what makes the key, the rest.

A combination is kept where every conjunct is TRUE, so conjuncts may be tested in different places.
Those over one input are tested on its tuples. Equalities between two inputs make classes of equal
expressions; a class that reaches every input is part of the key, with one expression of each input
as its representative. Equality is transitive among the types that a key allows, so all
representatives are equal wherever the WHERE is TRUE, and an equality of two representatives needs
no further test. Everything else remains, to be tested on combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.language.ast import And, Column, Comparison, Expr
from penstock.language.render import render
from penstock.language.tree import columns_of, rebuild
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, is_groupable

Node = tuple[int, Expr]  # an input, and an expression over its columns without qualifiers
TypeOfNode = Callable[[Node], str]
# Whether a node is computed without an error for every tuple.
IsSafe = Callable[[Node], bool]
# Whether an expression without columns has the same value for good.
IsConstant = Callable[[Expr], bool]


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Expressions, one of each input, that are equal in all combinations; NULL is never equal."""

    exprs: tuple[Expr, ...]
    types: tuple[str, ...]

    @property
    def type(self) -> str:
        """The type in which the expressions are compared."""
        if len(set(self.types)) == 1:
            return self.types[0]
        return "bigint" if INTEGER_TYPES.issuperset(self.types) else "double"

    def stands_for(self, one: int, other: int) -> bool:
        """Whether an input's value is another's in every respect: 0.0 and -0.0 are only equal."""
        return self.types[one] == self.types[other] and self.types[one] not in FLOAT_TYPES


@dataclass(frozen=True, slots=True)
class JoinCondition:
    """Conjuncts by input, the parts of the key, and conjuncts on combinations.

    Columns of `pushed` and `key` have no qualifier.
    """

    pushed: tuple[tuple[Expr, ...], ...]
    key: tuple[KeyPart, ...]
    residual: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class JoinScope:
    """The inputs of a join by their aliases."""

    aliases: tuple[str, ...]

    def node(self, expr: Expr) -> Node | None:
        """An expression over the columns of one input, None for any other."""
        qualifiers = {c.qualifier for c in columns_of(expr)}
        if len(qualifiers) != 1 or None in qualifiers:
            return None
        return self.aliases.index(qualifiers.pop()), _renamed(expr, {})


def take_apart(
    where: Expr | None,
    scope: JoinScope,
    type_of: TypeOfNode,
    is_safe: IsSafe,
    is_constant: IsConstant,
) -> JoinCondition:
    """Split a bound WHERE; all that comes of it together is equivalent to it."""
    conjuncts = conjuncts_of(where)
    equalities = {c: pair for c in conjuncts if (pair := _equality(c, scope, type_of)) is not None}
    key = _key(equal_classes(equalities.values()), len(scope.aliases), type_of)
    chosen = {(number, expr) for part in key for number, expr in enumerate(part.exprs)}
    pushed: list[list[Expr]] = [[] for _ in scope.aliases]
    residual: list[Expr] = []
    for conjunct in conjuncts:
        node = scope.node(conjunct)
        if node is not None:
            pushed[node[0]].append(node[1])
        elif not columns_of(conjunct) and is_constant(conjunct):
            pushed[0].append(conjunct)
        elif conjunct not in equalities or not chosen.issuperset(equalities[conjunct]):
            residual.append(conjunct)
    for number, exprs in enumerate(pushed):
        for expr in tuple(exprs):
            for other, implied in _implied((number, expr), key, is_safe):
                if implied not in pushed[other]:
                    pushed[other].append(implied)
    return JoinCondition(tuple(map(tuple, pushed)), key, tuple(residual))


def conjuncts_of(where: Expr | None) -> list[Expr]:
    """The conditions that AND connects."""
    if where is None:
        return []
    if not isinstance(where, And):
        return [where]
    return [conjunct for part in where.parts for conjunct in conjuncts_of(part)]


def _equality(conjunct: Expr, scope: JoinScope, type_of: TypeOfNode) -> tuple[Node, Node] | None:
    """The sides of an equality that can be part of a key."""
    match conjunct:
        case Comparison("=", left, right):
            one, other = scope.node(left), scope.node(right)
            if one is None or other is None or one[0] == other[0]:
                return None
            families = {_family(type_of(one)), _family(type_of(other))}
            return (one, other) if len(families) == 1 and None not in families else None
        case _:
            return None


def _family(type_: str) -> str | None:
    """Types inside a family are compared without loss; None for types that cannot be keys."""
    if not is_groupable(type_):
        return None
    return "integer" if type_ in INTEGER_TYPES else "float" if type_ in FLOAT_TYPES else type_


def equal_classes(pairs: Iterable[tuple[Node, Node]]) -> list[set[Node]]:
    """Nodes that are equal to each other, by way of others too."""
    classes: list[set[Node]] = []
    for pair in pairs:
        touched = [c for c in classes if not c.isdisjoint(pair)]
        classes = [c for c in classes if c not in touched]
        classes.append(set(pair).union(*touched))
    return classes


def _key(classes: Iterable[set[Node]], inputs: int, type_of: TypeOfNode) -> tuple[KeyPart, ...]:
    """A part for each class that reaches all inputs, in an order that the text has no part in."""
    parts = []
    for class_ in classes:
        by_input = [[e for n, e in class_ if n == number] for number in range(inputs)]
        if all(by_input):
            exprs = tuple(min(found, key=_rank) for found in by_input)
            types = tuple(type_of(node) for node in enumerate(exprs))
            parts.append(KeyPart(exprs, types))
    return tuple(sorted(parts, key=lambda part: [_rank(e) for e in part.exprs]))


def _rank(expr: Expr) -> tuple[bool, str]:
    """Plain columns come first."""
    return not isinstance(expr, Column), render(expr)


def _implied(node: Node, key: Sequence[KeyPart], is_safe: IsSafe) -> Iterable[Node]:
    """What a condition on an input's key columns alone says of other inputs."""
    number, expr = node
    columns = set(columns_of(expr))
    parts = {p.exprs[number]: p for p in key if p.exprs[number] in columns}
    if not columns or len(parts) < len(columns) or not is_safe(node):
        return
    for other in range(len(key[0].exprs)):
        names = {
            own.name: there.name
            for own, part in parts.items()
            if isinstance(own, Column)
            and isinstance(there := part.exprs[other], Column)
            and part.stands_for(number, other)
        }
        if other != number and len(names) == len(columns):
            yield other, _renamed(expr, names)


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over columns without qualifiers, some of them under other names."""

    def change(e: Expr) -> Expr | None:
        return Column(names.get(e.name, e.name), None, e.span) if isinstance(e, Column) else None

    return rebuild(expr, change)
