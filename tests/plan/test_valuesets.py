"""The algebra of value sets against membership, value by value."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.language.ast import Operator
from penstock.plan.specs import Constant, Interval, ValueSet
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
    normalise,
    one_of,
    restrict,
    union,
)

INTEGERS: list[Constant] = list(range(-2, 6))
FLOATS: list[Constant] = [-math.inf, -1.5, -0.0, 0.0, 2.0, 1e300, math.inf, math.nan]
STRINGS: list[Constant] = ["", "a", "ab", "b", "é", "\U0001f600"]
OPERATORS: list[Operator] = ["=", "<>", "<", "<=", ">", ">=", "<=>"]


def _sets(constants: list[Constant]) -> st.SearchStrategy[ValueSet]:
    leaves = st.builds(compare, st.sampled_from(OPERATORS), st.sampled_from(constants))
    leaves |= st.sampled_from([ALL_VALUES, EVERYTHING, NOTHING, ONLY_NULL])
    return st.recursive(
        leaves,
        lambda s: st.builds(union, s, s) | st.builds(intersect, s, s) | st.builds(complement, s),
        max_leaves=6,
    )


def _pairs_with_values() -> st.SearchStrategy[tuple[ValueSet, ValueSet, list[Constant]]]:
    return st.one_of(
        [
            st.tuples(_sets(constants), _sets(constants), st.just(constants))
            for constants in (INTEGERS, FLOATS, STRINGS)
        ]
    )


def _key(value: Constant) -> tuple[bool, Constant]:
    is_nan = isinstance(value, float) and math.isnan(value)
    return (is_nan, 0.0 if is_nan else value)


SIGNS: dict[Operator, Callable[[tuple[bool, Constant], tuple[bool, Constant]], bool]] = {
    "=": lambda a, b: a == b,
    "<=>": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@pytest.mark.parametrize("constants", [INTEGERS, FLOATS, STRINGS], ids=["int", "float", "str"])
@pytest.mark.parametrize("op", OPERATORS)
def test_a_comparison_holds_the_values_that_compare_so(
    op: Operator, constants: list[Constant]
) -> None:
    for constant in constants:
        found = compare(op, constant)
        assert not found.null
        for value in constants:
            assert contains(found, value) == SIGNS[op](_key(value), _key(constant))


@given(_pairs_with_values())
def test_union_intersection_and_complement_agree_with_membership(
    case: tuple[ValueSet, ValueSet, list[Constant]],
) -> None:
    a, b, values = case
    for value in [*values, None]:
        assert contains(union(a, b), value) == (contains(a, value) or contains(b, value))
        assert contains(intersect(a, b), value) == (contains(a, value) and contains(b, value))
        assert contains(complement(a), value) == (value is not None and not contains(a, value))


@given(_pairs_with_values())
def test_equal_sets_have_equal_representations(
    case: tuple[ValueSet, ValueSet, list[Constant]],
) -> None:
    a, b, _ = case
    without_null = ValueSet(a.intervals, False)
    assert normalise(a) == a
    assert complement(complement(a)) == without_null
    assert union(a, b) == union(b, a)
    assert intersect(a, union(a, b)) == a
    assert union(a, intersect(a, b)) == a
    assert complement(union(a, b)) == intersect(complement(a), complement(b))
    assert is_subset(intersect(a, b), b)


@given(st.lists(st.sampled_from(INTEGERS)), st.lists(st.sampled_from(INTEGERS)))
def test_integer_sets_are_equal_exactly_if_they_hold_the_same_numbers(
    a: list[Constant], b: list[Constant]
) -> None:
    assert (one_of(a) == one_of(b)) == (set(a) == set(b))
    assert is_subset(one_of(a), one_of(b)) == (set(a) <= set(b))


def test_neighbouring_integers_become_one_interval() -> None:
    assert one_of([3, 1, 2, 7]).intervals == (
        Interval(1, True, 3, True),
        Interval(7, True, 7, True),
    )
    assert compare(">", 5) == compare(">=", 6)
    assert union(compare("<=", 5), compare(">=", 6)) == ALL_VALUES


def test_nan_is_above_infinity_and_equals_itself() -> None:
    assert compare("=", math.nan) == compare(">", math.inf)
    assert compare("<", math.nan) == compare("<=", math.inf)
    assert compare("<=", math.nan) == ALL_VALUES
    assert compare(">", math.nan) == NOTHING


def test_negative_zero_is_zero() -> None:
    (interval,) = compare(">=", -0.0).intervals
    assert math.copysign(1.0, float(interval.low or 0.0)) == 1.0


def test_bounds_outside_a_type_are_left_out() -> None:
    assert restrict(compare("<", 300), -128, 127) == ALL_VALUES
    assert restrict(compare(">", 300), -128, 127) == NOTHING
    assert restrict(compare("<>", 127), -128, 127) == compare("<", 127)
    assert restrict(union(compare("=", 0), compare("=", 1)), 0, 1) == ALL_VALUES


def test_overlapping_intervals_are_joined() -> None:
    made = ValueSet((Interval(1.0, True, 5.0, False), Interval(3.0, True, 9.0, True)), True)
    assert normalise(made) == ValueSet((Interval(1.0, True, 9.0, True),), True)
