"""Queries of the experiments: conjunctions of comparisons with integers, as slots and as text.

The paper states of its query sets how many queries, attributes, predicates (comparisons: a range
is two) and minimum covers there are, but no constants. Here every query has a home, one of the
attributes of the cover, and other attributes at random. Half of the uses of an attribute are
ranges, a quarter equalities, a quarter bounds near an end of the domain. Ranges and bounds admit up
to three tenths of the domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.kernels.jit import Ints
from penstock.plan.specs import Interval, SlotSpec, Term, ValueSet

WIDEST = 0.3  # of the domain: a range or a bound admits no more


@dataclass(frozen=True, slots=True)
class Predicate:
    """Values from `low` to `high`, both included; None is unbounded."""

    attribute: str
    low: int | None
    high: int | None

    @property
    def comparisons(self) -> int:
        two_sided = self.low is not None and self.high is not None
        return 2 if two_sided and self.low != self.high else 1

    @property
    def text(self) -> str:
        if self.low is None:
            return f"{self.attribute} <= {self.high}"
        if self.high is None:
            return f"{self.attribute} >= {self.low}"
        if self.low == self.high:
            return f"{self.attribute} = {self.low}"
        return f"{self.attribute} BETWEEN {self.low} AND {self.high}"

    @property
    def values(self) -> ValueSet:
        interval = Interval(self.low, self.low is not None, self.high, self.high is not None)
        return ValueSet((interval,), null=False)


Query = tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the paper states of a query set: its numbers, and those of its minimum covers."""

    queries: int
    attributes: int
    predicates: int
    cover: int  # attributes in a minimum cover
    covers: int = 1  # minimum covers: 1 or 2


ORDERS = Shape(50, 10, 204, cover=3)
CENSUS = Shape(30, 7, 104, cover=2, covers=2)
DROPPING = Shape(40, 20, 236, cover=5)


def slots(queries: Sequence[Query]) -> list[SlotSpec]:
    return [
        SlotSpec(number, (Term(tuple((p.attribute, p.values) for p in query)),))
        for number, query in enumerate(queries)
    ]


def where(query: Query) -> str:
    return " AND ".join(predicate.text for predicate in query)


def types(names: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(names, "bigint")


def equalities(count: int, domain: int, seed: int) -> list[Query]:
    random = np.random.default_rng([seed, count, 0])
    return [(Predicate("a", c, c),) for c in random.integers(0, domain, count).tolist()]


def lower_bounds(count: int, domain: int, seed: int) -> list[Query]:
    random = np.random.default_rng([seed, count, 1])
    return [(Predicate("a", c, None),) for c in random.integers(0, domain, count).tolist()]


def ranges(count: int, domain: int, seed: int) -> list[Query]:
    random = np.random.default_rng([seed, count, 2])
    ends = np.sort(random.integers(0, domain, (count, 2)), axis=1)
    return [(Predicate("a", low, high),) for low, high in ends.tolist()]


def query_set(shape: Shape, domains: Mapping[str, int], seed: int) -> list[Query]:
    """Queries of this shape on the attributes of `domains` (name -> number of values)."""
    random = np.random.default_rng([seed, shape.queries, shape.attributes])
    names = list(domains)
    uses = _uses(shape, random)
    size = sum(len(attributes) for attributes in uses)
    two_sided = np.arange(size) < shape.predicates - size
    random.shuffle(two_sided)
    which = iter(two_sided.tolist())
    return [
        tuple(_predicate(names[a], domains[names[a]], next(which), random) for a in attributes)
        for attributes in uses
    ]


def _uses(shape: Shape, random: np.random.Generator) -> list[list[int]]:
    """The attributes of each query, its home first: in all, two uses for three predicates.

    Where there are two minimum covers, the last home has a twin: all its queries use that, too.
    """
    order = random.permutation(shape.attributes).tolist()
    twins = {order[shape.cover - 1]: order[shape.cover]} if shape.covers == 2 else {}
    least, more = divmod(round(shape.predicates * 2 / 3), shape.queries)
    uses = []
    for query in range(shape.queries):
        home = order[query % shape.cover]
        mine = [home, twins[home]] if home in twins else [home]
        others = [a for a in order if a not in mine]
        size = least + (1 if query < more else 0)
        uses.append(mine + random.choice(others, size - len(mine), replace=False).tolist())
    return uses


def _predicate(name: str, domain: int, two_sided: bool, random: np.random.Generator) -> Predicate:
    width = int(random.integers(2 if two_sided else 1, max(2, round(WIDEST * domain)) + 1))
    if two_sided:
        first = int(random.integers(0, domain - width + 1))
        return Predicate(name, first, first + width - 1)
    kind = random.integers(4)
    if kind == 0:
        return Predicate(name, domain - width, None)
    if kind == 1:
        return Predicate(name, None, width - 1)
    constant = int(random.integers(0, domain))
    return Predicate(name, constant, constant)


def bounds(queries: Sequence[Query], highest: int) -> tuple[Ints, Ints]:
    """Low and high of queries with one predicate each; unbounded ones reach from 0 to `highest`."""
    low = [0 if query[0].low is None else query[0].low for query in queries]
    high = [highest if query[0].high is None else query[0].high for query in queries]
    return np.array(low, np.int64), np.array(high, np.int64)
