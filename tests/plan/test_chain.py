"""Chains of joins: in which order, on what, and that every condition is tested once."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.language.ast import Column, Comparison, Expr, Opaque
from penstock.language.render import render
from penstock.language.tree import columns_of
from penstock.plan.chain import chain_steps
from penstock.plan.specs import input_of, joined_name


def side(*inputs: int) -> Expr:
    """An expression over columns of these inputs."""
    first, *others = [Column(joined_name(i, "x")) for i in inputs]
    return Opaque(("f(", first, *(part for c in others for part in (", ", c)), ")"))


def compare(left: tuple[int, ...], op: str, right: tuple[int, ...]) -> Expr:
    return Comparison(op, side(*left), side(*right))


def shown(conjuncts: list[Expr], inputs: int) -> str:
    """The steps as `input on equalities where conditions`, all of them by their place."""
    names = {render(c): str(number) for number, c in enumerate(conjuncts)}
    return " ".join(
        f"{step.input}"
        + "".join(f" on {names[e]}" for e in step.equalities)
        + "".join(f" where {names[c]}" for c in step.conditions)
        for step in chain_steps(conjuncts, inputs)
    )


@pytest.mark.parametrize(
    ("conjuncts", "inputs", "steps"),
    [
        ([], 3, "0 1 2"),
        ([compare((0,), "=", (1,)), compare((1,), "=", (2,))], 3, "0 1 on 0 2 on 1"),
        ([compare((2,), "=", (0,)), compare((1,), "=", (2,))], 3, "0 2 on 0 1 on 1"),
        ([compare((1,), "=", (2,))], 3, "1 2 on 0 0"),
        ([compare((0,), "=", (3,)), compare((1,), "=", (2,))], 4, "0 3 on 0 1 2 on 1"),
        ([compare((0,), "<", (1,)), compare((0,), "=", (2,))], 3, "0 2 on 1 1 where 0"),
        ([compare((0, 1), "=", (2,))], 3, "0 1 2 on 0"),
        ([compare((0, 2), "=", (1,)), compare((0,), "=", (1,))], 3, "0 1 on 1 2 where 0"),
        ([compare((0,), "=", (1,)), compare((0,), "=", (1,))], 2, "0 1 on 1 on 1"),
        ([compare((0,), "=", (1,)), Opaque(("rand() < 1",))], 3, "0 1 on 0 2 where 1"),
    ],
)
def test_steps_follow_the_equalities(conjuncts: list[Expr], inputs: int, steps: str) -> None:
    assert shown(conjuncts, inputs) == steps


INPUTS = 5
sides = st.lists(st.integers(0, INPUTS - 1), min_size=1, max_size=3, unique=True).map(tuple)
conjuncts_of_all = st.lists(
    st.builds(compare, sides, st.sampled_from("=<"), sides).filter(
        lambda c: len({input_of(column.name) for column in columns_of(c)}) > 1
    ),
    max_size=8,
    unique=True,
)


@given(conjuncts_of_all)
def test_every_condition_is_tested_once_and_as_soon_as_it_can_be(conjuncts: list[Expr]) -> None:
    steps = chain_steps(conjuncts, INPUTS)
    assert sorted(step.input for step in steps) == list(range(INPUTS))
    texts = [text for step in steps for text in (*step.equalities, *step.conditions)]
    assert Counter(texts) == Counter(map(render, conjuncts))
    places = {step.input: place for place, step in enumerate(steps)}
    for conjunct in conjuncts:
        last = max(places[input_of(c.name)] for c in columns_of(conjunct))
        assert render(conjunct) in steps[last].equalities + steps[last].conditions


@given(conjuncts_of_all)
def test_no_input_comes_without_an_equality_while_another_has_one(conjuncts: list[Expr]) -> None:
    steps = chain_steps(conjuncts, INPUTS)
    for place, step in enumerate(steps[1:], start=1):
        before = {s.input for s in steps[:place]}
        single = [
            {input_of(c.name) for c in columns_of(side)}
            for conjunct in conjuncts
            if isinstance(conjunct, Comparison) and conjunct.op == "="
            for side in (conjunct.left, conjunct.right)
        ]
        pairs = zip(single[::2], single[1::2], strict=True)
        connected = {
            min(new)
            for left, right in pairs
            for old, new in ((left, right), (right, left))
            if old <= before and len(new) == 1 and not new <= before
        }
        assert bool(step.equalities) == bool(connected)
        assert not connected or step.input in connected
