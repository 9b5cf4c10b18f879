"""The order in which Spark joins streams that share no key, and what it tests at each step.

Each step joins one more input to the combinations so far. An input that an equality connects with
them goes before one that all of them would have to meet, and a condition is tested at the first
step that has all its columns: so few combinations are kept on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from penstock.language.ast import Comparison, Expr
from penstock.language.render import render
from penstock.language.tree import columns_of
from penstock.plan.specs import JoinStep, input_of


def chain_steps(conjuncts: Sequence[Expr], inputs: int) -> tuple[JoinStep, ...]:
    """Steps that together test all conjuncts, over the columns of combinations."""
    order = _order(conjuncts, inputs)
    steps, waiting = [], list(conjuncts)
    for place, input_ in enumerate(order):
        before = frozenset(order[:place])
        ready = [c for c in waiting if _inputs(c) <= before | {input_} and _inputs(c)]
        if place == inputs - 1:
            ready = waiting  # what names no column is asked once for each result
        waiting = [c for c in waiting if c not in ready]
        equal = [c for c in ready if _connects(c, before, input_)]
        steps.append(JoinStep(input_, _texts(equal), _texts(c for c in ready if c not in equal)))
    return tuple(steps)


def _order(conjuncts: Sequence[Expr], inputs: int) -> list[int]:
    def next_of(rest: list[int], before: AbstractSet[int]) -> int | None:
        return next((i for i in rest if any(_connects(c, before, i) for c in conjuncts)), None)

    every = list(range(inputs))
    order = [next((i for i in every if next_of(every, {i}) is not None), 0)]
    while len(order) < inputs:
        rest = [i for i in every if i not in order]
        connected = next_of(rest, set(order))
        order.append(rest[0] if connected is None else connected)
    return order


def _connects(conjunct: Expr, before: AbstractSet[int], input_: int) -> bool:
    """Whether it says that an expression over the input equals one over those before."""
    match conjunct:
        case Comparison("=", left, right):
            sides = (_inputs(left), _inputs(right))
            return any(
                one == {input_} and other and other <= before
                for one, other in (sides, reversed(sides))
            )
        case _:
            return False


def _inputs(expr: Expr) -> frozenset[int]:
    return frozenset(input_of(c.name) for c in columns_of(expr))


def _texts(conjuncts: Iterable[Expr]) -> tuple[str, ...]:
    return tuple(render(c) for c in conjuncts)
