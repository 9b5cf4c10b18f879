"""EXPLAIN of a join that Spark does by itself: why, step by step, and how to do better."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.language.ast import Comparison, Expr
from penstock.language.render import render
from penstock.plan.bound import BoundQuery
from penstock.plan.explain import duration
from penstock.plan.joins import JoinScope, Node, conjuncts_of, equal_classes
from penstock.plan.specs import Join, JoinStep


def chain_lines(
    query: BoundQuery, join: Join, aliases: Sequence[str], spoken: Callable[[str], str]
) -> list[str]:
    """`spoken` puts SQL over the columns of combinations into the names of the query."""
    lines = ["a chain of Spark's own joins: no key that all streams share", *_classes(query)]
    for place, step in enumerate(join.steps[1:], start=1):
        before = [s.input for s in join.steps[:place]]
        lines.append(f"{place}. {_step(join, step, before, aliases)}")
        lines += [f"   where {spoken(text)}" for text in (*step.equalities, *step.conditions)]
        if not step.equalities:
            lines.append("   no equality: one task compares all with all")
    if len(join.steps) > 2:
        lines.append("what a step finds is kept for the next one")
    return [*lines, "for one operator instead, let equalities connect a column of every stream"]


def _step(join: Join, step: JoinStep, before: Sequence[int], aliases: Sequence[str]) -> str:
    names = ", ".join(aliases[i] for i in before)
    latest = "" if len(before) == 1 else "the latest of "
    nearest_us = min((r for i in before if (r := join.ranges_us[i]) is not None), default=None)
    older, newer = _bound(join.ranges_us[step.input]), _bound(nearest_us)
    return f"{aliases[step.input]}, {older} older and {newer} newer than {latest}{names}"


def _bound(range_us: int | None) -> str:
    return "any time" if range_us is None else f"at most {duration(range_us)}"


def _classes(query: BoundQuery) -> list[str]:
    """What is equal, and which streams that leaves out."""
    scope = JoinScope(tuple(source.alias for source in query.inputs))
    pairs = [pair for e in conjuncts_of(query.where) if (pair := _sides(e, scope)) is not None]
    return [_class(class_, scope) for class_ in equal_classes(pairs)]


def _sides(conjunct: Expr, scope: JoinScope) -> tuple[Node, Node] | None:
    match conjunct:
        case Comparison("=", left, right):
            one, other = scope.node(left), scope.node(right)
            return None if one is None or other is None or one[0] == other[0] else (one, other)
        case _:
            return None


def _class(nodes: set[Node], scope: JoinScope) -> str:
    def text(node: Node) -> str:
        return render(node[1], column=lambda c: f"{scope.aliases[node[0]]}.{c.name}")

    reached = {number for number, _ in nodes}
    others = [alias for number, alias in enumerate(scope.aliases) if number not in reached]
    why = f"leaves out {', '.join(others)}" if others else "compares columns of different types"
    return f"{' = '.join(sorted(map(text, nodes)))} {why}"
