"""Disjunctions of conjunctions of value sets: multiplied out and kept in normal form."""

from __future__ import annotations

from penstock.plan.specs import ValueSet
from penstock.plan.valuesets import EVERYTHING, NOTHING, intersect, is_subset, union

MAX_TERMS = 64
_MAX_PRODUCT = MAX_TERMS * MAX_TERMS

Sets = dict[str, ValueSet]  # one conjunction, by attribute


class TooManyTerms(Exception):
    """The condition multiplies out too far."""


def conjoin(left: list[Sets], right: list[Sets]) -> list[Sets]:
    if len(left) * len(right) > _MAX_PRODUCT:
        raise TooManyTerms
    return simplified(
        [
            {name: intersect(a.get(name, EVERYTHING), b.get(name, EVERYTHING)) for name in a | b}
            for a in left
            for b in right
        ]
    )


def simplified(conjunctions: list[Sets]) -> list[Sets]:
    """The same disjunction in canonical order, without empty, mergeable and implied parts."""
    terms = [_without_everything(sets) for sets in conjunctions if NOTHING not in sets.values()]
    if len(terms) <= 1:
        return terms
    names = sorted({name for sets in terms for name in sets})
    before = -1
    while before != len(terms):
        before = len(terms)
        for name in names:
            terms = _merged(terms, name)
    if len(terms) > _MAX_PRODUCT // 4:
        raise TooManyTerms
    terms.sort(key=_order)
    kept = [a for i, a in enumerate(terms) if not any(_implies(a, b) for b in terms[:i])]
    kept = [a for a in kept if not any(a is not b and _implies(a, b) for b in kept)]
    if len(kept) > MAX_TERMS:
        raise TooManyTerms
    return kept


def _merged(terms: list[Sets], name: str) -> list[Sets]:
    """Join conjunctions that differ in one attribute only: `a < 3 OR a > 10` is one set of a."""
    by_rest: dict[frozenset[tuple[str, ValueSet]], list[ValueSet]] = {}
    for sets in terms:
        rest = frozenset(item for item in sets.items() if item[0] != name)
        by_rest.setdefault(rest, []).append(sets.get(name, EVERYTHING))
    return [
        _without_everything({**dict(rest), name: union(*sets)}) for rest, sets in by_rest.items()
    ]


def _without_everything(sets: Sets) -> Sets:
    return {name: values for name, values in sets.items() if values != EVERYTHING}


def _implies(inner: Sets, outer: Sets) -> bool:
    return all(is_subset(inner.get(name, EVERYTHING), values) for name, values in outer.items())


def _order(sets: Sets) -> str:
    return repr(sorted(sets.items()))
