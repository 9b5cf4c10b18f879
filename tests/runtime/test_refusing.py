"""Which of the queries that wait for a plan are refused, and who registers together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.specs import Attribute
from penstock.runtime.rings.refusing import Group, refused_slots
from penstock.runtime.rings.together import Blocks


def group(number: int) -> Group:
    return Group((Attribute(f"a{number}", "int", f"f{number}(x)"),), (number, 100 + number))


@given(st.integers(0, 20), st.sets(st.integers(0, 19)))
def test_only_those_whose_own_plan_is_refused_go(count: int, bad: set[int]) -> None:
    accepted: list[int] = []

    def attempt(groups: Sequence[Group]) -> str | None:
        wrong = [g.slots[0] for g in groups if g.slots[0] in bad]
        if wrong:
            return f"no {wrong[-1]}"
        accepted.extend(g.slots[0] for g in groups)
        return None

    groups = [group(number) for number in range(count)]
    if attempt(groups) is None:
        return
    refused = refused_slots(groups, "none of these", attempt)
    expected = {n for n in bad if n < count}
    assert refused.keys() == expected | {100 + n for n in expected}
    assert sorted(accepted) == [n for n in range(count) if n not in expected]
    if count > 1:
        assert refused == {slot: f"no {slot % 100}" for slot in refused}


def test_one_of_many_costs_few_tries() -> None:
    tries = 0

    def attempt(groups: Sequence[Group]) -> str | None:
        nonlocal tries
        tries += 1
        return "no" if any(37 in g.slots for g in groups) else None

    assert refused_slots([group(n) for n in range(64)], "no", attempt).keys() == {37, 137}
    assert tries == 12


def test_a_block_is_its_threads_own() -> None:
    blocks = Blocks()
    answers: list[bool] = []

    def register() -> None:
        answers.append(blocks.add(2))
        blocks.hold("other")

    with blocks.block() as slots:
        assert blocks.add(1)
        blocks.hold("mine")
        other = Thread(target=register)
        other.start()
        other.join()
        assert blocks.holds("mine")
        with blocks.block() as inner:
            assert blocks.add(3)
        assert inner == []
        assert blocks.holds("mine")
    assert answers == [False]
    assert slots == [1, 3]
    assert not blocks.holds("mine")
    assert not blocks.holds("other")


def test_what_a_block_that_fails_has_registered_is_nobody_elses() -> None:
    blocks = Blocks()
    with suppress(KeyError), blocks.block():
        blocks.add(1)
        raise KeyError
    with blocks.block() as slots:
        pass
    assert slots == []
    assert not blocks.add(2)
