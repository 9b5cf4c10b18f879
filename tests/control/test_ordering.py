"""The order of a ring's attributes: what is decided from what was measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.cover import Cover, minimum_cover
from penstock.control.ordering import (
    OrderFacts,
    Ordering,
    OrderRules,
    merge_order_facts,
    order_facts_from,
    plain,
)
from penstock.kernels.jit import Flags

PERIOD = 1_000

# a naive evaluator: which terms hold for which rows, attribute by attribute

Test = Callable[[Any], Flags]


@dataclass(frozen=True)
class Terms:
    """Terms as tests of one attribute's values each."""

    tests: Sequence[Mapping[str, Test]]

    @property
    def usage(self) -> dict[frozenset[str], int]:
        return dict(Counter(frozenset(term) for term in self.tests))

    def holding(self, name: str, values: Any) -> Flags:
        """Whether each row (first axis) leaves each term possible, as far as one attribute goes."""
        all_rows = np.ones(len(values), np.bool_)
        return np.stack([t[name](values) if name in t else all_rows for t in self.tests], axis=1)


def facts_of(
    terms: Terms,
    columns: Mapping[str, Any],
    order: Sequence[str],
    prefix: int | None,
) -> OrderFacts:
    holding = {name: terms.holding(name, columns[name]) for name in order}
    rows = len(next(iter(columns.values())))
    left = np.ones((rows, len(terms.tests)), np.bool_)
    after, visits, candidates = [], 0, {}
    for place, name in enumerate(order):
        if place == prefix:
            candidates = {n: int((left & holding[n]).sum()) for n in order[place:]}
        visits += int(left.any(axis=1).sum())
        left &= holding[name]
        after.append(int(left.sum()))
    return OrderFacts(
        rows,
        len(terms.tests),
        tuple(order),
        tuple(after),
        prefix,
        candidates,
        rows,
        visits,
        terms.usage,
    )


def equals(value: Any) -> Test:
    return lambda values: np.equal(values, value)


# the paper's example

PAPER = Terms(
    [
        {"A1": equals(20), "A2": equals("C02"), "A3": equals(50)},
        {"A1": lambda v: v > 10, "A2": equals("C04")},
        {"A1": equals(30), "A3": lambda v: (v >= 30) & (v <= 50)},
    ]
)
PAPER_ROWS = {
    "A1": np.array([40, 20, 10]),
    "A2": np.array(["C04", "C02", "C04"]),
    "A3": np.array([50, 50, 20]),
}


def test_the_papers_example_is_ordered_as_in_the_paper() -> None:
    ordering = Ordering(OrderRules(period=3))
    ordering.observe(OrderFacts(usage=PAPER.usage))
    assert minimum_cover(PAPER.usage) == Cover(("A1",), exact=True)
    assert (ordering.order, ordering.prefix) == (("A1", "A2", "A3"), 1)  # one period is needed
    facts = facts_of(PAPER, PAPER_ROWS, ordering.order, ordering.prefix)
    shares = {name: Fraction(bits, int(facts.bits)) for name, bits in facts.candidates.items()}
    assert shares == {"A2": Fraction(2, 9), "A3": Fraction(1, 3)}
    ordering.observe(facts)
    assert (ordering.order, ordering.prefix) == (("A1", "A2", "A3"), None)
    assert facts.visits == 3 + 2 + 2  # the third tuple is dropped after A1


def test_the_papers_example_is_found_from_another_order_too() -> None:
    ordering = Ordering(OrderRules(period=3))
    ordering.observe(OrderFacts(usage={**PAPER.usage, frozenset({"A1", "A3"}): 2}))
    assert ordering.order == ("A1", "A3", "A2")  # by their terms
    ordering.observe(facts_of(PAPER, PAPER_ROWS, ordering.order, ordering.prefix))
    assert ordering.order == ("A1", "A2", "A3")


# facts

signatures = st.dictionaries(st.frozensets(st.sampled_from("abc")), st.integers(1, 9), max_size=4)


@st.composite
def measured(draw: st.DrawFn, order: str = "abc", prefix: int | None = 1) -> OrderFacts:
    bits = st.integers(0, 1_000)
    return OrderFacts(
        draw(st.integers(1, 100)),
        draw(st.integers(1, 10)),
        tuple(order),
        tuple(draw(bits) for _ in order),
        prefix,
        {} if prefix is None else {name: draw(bits) for name in order[prefix:]},
        draw(st.integers(0, 10_000)),
        draw(st.integers(0, 10_000)),
        draw(signatures),
    )


@given(measured())
def test_facts_survive_as_plain_data(facts: OrderFacts) -> None:
    assert order_facts_from(json.loads(json.dumps(plain(facts)))) == facts


@given(measured(), measured(), measured())
def test_facts_of_the_same_order_are_summed(a: OrderFacts, b: OrderFacts, c: OrderFacts) -> None:
    all_three = merge_order_facts(merge_order_facts(a, b), c)
    other_way = merge_order_facts(a, merge_order_facts(b, c))
    assert replace(all_three, terms=0) == replace(other_way, terms=0)
    assert all_three.bits == pytest.approx(a.bits + b.bits + c.bits)
    assert all_three.after == tuple(map(sum, zip(a.after, b.after, c.after, strict=True)))
    assert all_three.candidates["b"] == sum(f.candidates["b"] for f in (a, b, c))
    assert all_three.tuples == a.tuples + b.tuples + c.tuples


@given(measured(), measured("bca"))
def test_of_different_orders_the_one_of_more_rows_is_kept(a: OrderFacts, b: OrderFacts) -> None:
    merged = merge_order_facts(a, b)
    kept = a if a.rows >= b.rows else b
    assert (merged.order, merged.after, merged.rows) == (kept.order, kept.after, kept.rows)
    assert (merged.tuples, merged.visits) == (a.tuples + b.tuples, a.visits + b.visits)


@given(measured())
def test_facts_without_rows_add_nothing(facts: OrderFacts) -> None:
    assert merge_order_facts(OrderFacts(), facts) == facts
    assert merge_order_facts(facts, OrderFacts()) == facts


# decisions


def settle(ordering: Ordering, feed: Callable[[Ordering], object], most: int = 30) -> int:
    """Feed periods until the order is decided and known; how many that took to decide."""
    taken = 0
    while ordering.prefix is not None:
        feed(ordering)
        taken += 1
        assert taken < most
    feed(ordering)
    return taken


def chances(left: Mapping[str, float], terms: int = 10) -> Callable[[Ordering], None]:
    """A period of a stream whose attributes leave these parts of the terms, independently."""

    def feed(ordering: Ordering) -> None:
        order, prefix, rows = ordering.order, ordering.prefix, 1_000_000
        bits = rows * terms * np.cumprod([1.0, *(left[name] for name in order)])
        asked = order[prefix:] if prefix is not None else ()
        ordering.observe(
            OrderFacts(
                rows,
                terms,
                order,
                tuple(map(round, bits[1:])),
                prefix,
                {name: round(bits[prefix or 0] * left[name]) for name in asked},
                PERIOD,
                PERIOD,
            )
        )

    return feed


def ordering_of(method: Any, *names: str, change: float = 0.1) -> Ordering:
    ordering = Ordering(OrderRules(method, PERIOD, change))
    ordering.observe(OrderFacts(usage=dict.fromkeys(map(frozenset, names), 1)))
    return ordering


FIVE = ("abcde", "abc", "bd")  # b is in all of them, a in two


@pytest.mark.parametrize(
    ("method", "order", "periods"),
    [
        ("macssas", "bedca", 3),  # the paper: |A_p| - 2
        ("sas", "edcba", 4),
        ("macs", "bacde", 0),
    ],
)
def test_each_method_decides_what_it_may(method: str, order: str, periods: int) -> None:
    ordering = ordering_of(method, *FIVE)
    assert "".join(ordering.order) == ("bacde")
    feed = chances({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5})
    assert settle(ordering, feed) == periods
    assert "".join(ordering.order) == order
    assert ordering.metrics()["cover"] == ([] if method == "sas" else ["b"])


def test_within_the_cover_the_measured_order_counts_too() -> None:
    ordering = ordering_of("macssas", "ax", "bx", "cx", "a", "b", "c")
    assert set(ordering.order[:3]) == set("abc") == set(ordering.cover.attributes)
    settle(ordering, chances({"a": 0.9, "b": 0.5, "c": 0.7, "x": 0.1}))
    assert "".join(ordering.order) == "bcax"  # x would be first, but covers nothing alone


def test_each_position_is_used_as_soon_as_it_is_decided() -> None:
    ordering = ordering_of("sas", "abcd")
    feed = chances({"a": 0.9, "b": 0.7, "c": 0.8, "d": 0.1})
    seen = []
    while ordering.prefix is not None:
        feed(ordering)
        seen.append(("".join(ordering.order), ordering.prefix))
    assert seen == [("dabc", 1), ("dbac", 2), ("dbca", None)]


def test_nothing_is_decided_before_a_period_is_full() -> None:
    ordering = ordering_of("sas", "ab")
    facts = OrderFacts(10, 2, ("a", "b"), (10, 1), 0, {"a": 10, "b": 2}, PERIOD // 2 - 1)
    for _ in range(2):
        ordering.observe(facts)
        assert ordering.order == ("a", "b")
    ordering.observe(facts)
    assert ordering.order == ("b", "a")


def test_what_was_measured_of_another_order_does_not_count() -> None:
    ordering = ordering_of("sas", "ab")
    ordering.observe(OrderFacts(10, 2, ("b", "a"), (10, 1), 0, {"a": 10, "b": 2}, PERIOD))
    ordering.observe(OrderFacts(10, 2, ("a", "b"), (10, 1), None, {}, PERIOD))
    assert (ordering.order, ordering.prefix) == (("a", "b"), 0)


def test_a_period_without_sampled_rows_waits_for_some() -> None:
    ordering = ordering_of("sas", "ab")
    ordering.observe(OrderFacts(order=("a", "b"), prefix=0, tuples=9 * PERIOD))
    assert ordering.prefix == 0
    ordering.observe(OrderFacts(1, 2, ("a", "b"), (2, 1), 0, {"a": 2, "b": 1}, 1))
    assert ordering.order == ("b", "a")


def test_attributes_that_change_roles_are_noticed_although_the_end_is_the_same() -> None:
    ordering = ordering_of("sas", "abc")
    settle(ordering, chances({"a": 0.2, "b": 0.5, "c": 0.9}))
    assert "".join(ordering.order) == "abc"
    before = ordering.metrics()["selectivity"]
    swapped = chances({"a": 0.9, "b": 0.5, "c": 0.2})
    swapped(ordering)
    assert ordering.metrics()["selectivity"] == pytest.approx(before)
    assert ordering.metrics()["reordering"]
    assert ordering.tolerance == 0.2
    settle(ordering, swapped)
    assert "".join(ordering.order) == "cba"
    assert ordering.tolerance == 0.1  # it was worth it


@pytest.mark.parametrize(("factor", "noticed"), [(1.08, False), (1.13, True), (0.86, True)])
def test_a_change_is_noticed_from_the_threshold_on(factor: float, noticed: bool) -> None:
    ordering = ordering_of("sas", "abc")
    settle(ordering, chances({"a": 0.5, "b": 0.6, "c": 0.7}, terms=100))
    chances({"a": 0.5 * factor, "b": 0.6, "c": 0.7}, terms=100)(ordering)
    assert (ordering.prefix is not None) == noticed


def test_a_stream_that_changes_while_its_order_is_decided_is_begun_anew() -> None:
    ordering = ordering_of("sas", "abcde")
    first = chances({"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.8, "e": 0.9})
    then = chances({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5})
    first(ordering)
    first(ordering)
    assert ordering.prefix == 2
    then(ordering)
    assert ordering.prefix == 0
    settle(ordering, then)
    assert "".join(ordering.order) == "edcba"


def test_streams_that_match_nothing_are_watched_without_a_division_by_zero() -> None:
    ordering = ordering_of("sas", "abc")
    nothing = chances({"a": 0.0, "b": 0.0, "c": 0.0})
    settle(ordering, nothing)
    nothing(ordering)
    assert not ordering.metrics()["reordering"]
    assert ordering.metrics()["selectivity"] == ordering.metrics()["selectivity_then"] == 0.0
    chances({"a": 0.5, "b": 0.5, "c": 0.5})(ordering)
    assert ordering.metrics()["reordering"]


def test_fruitless_reorderings_grow_rare_and_calm_makes_it_attentive_again() -> None:
    ordering = ordering_of("sas", "abc")
    low, high = ({"a": 0.1 * f, "b": 0.6, "c": 0.7} for f in (1, 1.3))
    settle(ordering, chances(low, terms=100))
    for step in range(40):
        chances(high if step % 4 < 2 else low, terms=100)(ordering)
    assert ordering.metrics()["reorders"] <= 4
    assert "".join(ordering.order) == "abc"
    assert ordering.tolerance > 0.15
    for _ in range(200):
        chances(low, terms=100)(ordering)
    assert ordering.tolerance == 0.1


def test_a_place_is_lost_only_to_one_that_is_clearly_better() -> None:
    ordering = ordering_of("sas", "abc")
    settle(ordering, chances({"a": 0.5, "b": 0.495, "c": 0.4}))
    assert "".join(ordering.order) == "cab"


# queries that come and go


def test_new_attributes_are_put_behind_the_known_ones_and_decided_anew() -> None:
    ordering = ordering_of("macssas", *FIVE)
    left = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5, "f": 0.1}
    settle(ordering, chances(left))
    ordering.observe(OrderFacts(usage=dict.fromkeys(map(frozenset, (*FIVE, "bf")), 1)))
    assert ("".join(ordering.order), ordering.prefix) == ("bedcaf", 1)
    settle(ordering, chances(left))
    assert "".join(ordering.order) == "bfedca"


def test_a_new_cover_comes_first_and_the_order_is_decided_anew() -> None:
    ordering = ordering_of("macssas", *FIVE)
    settle(ordering, chances({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5}))
    ordering.observe(OrderFacts(usage=dict.fromkeys(map(frozenset, (*FIVE, "c")), 1)))
    assert ("".join(ordering.order), ordering.prefix) == ("bceda", 0)


def test_a_cover_is_kept_while_no_smaller_one_exists() -> None:
    ordering = ordering_of("macssas", "ab", "abc")
    assert ordering.cover == Cover(("a",))
    settle(ordering, chances({"a": 0.9, "b": 0.5, "c": 0.5}))
    usage = {frozenset("ab"): 1, frozenset("abc"): 1, frozenset("b"): 9}
    ordering.observe(OrderFacts(usage=usage))
    assert (ordering.cover, ordering.prefix) == (Cover(("b",)), 1)
    settle(ordering, chances({"a": 0.9, "b": 0.5, "c": 0.5}))
    ordering.observe(OrderFacts(usage={frozenset("ab"): 1, frozenset("abc"): 1}))
    assert minimum_cover({frozenset("ab"): 1, frozenset("abc"): 1}) == Cover(("a",))
    assert (ordering.cover, ordering.prefix) == (Cover(("b",)), None)


def test_a_greedy_cover_keeps_no_attribute_that_nobody_uses(monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.control.cover._LOOKS", 0)
    ordering = ordering_of("macssas", "a", "b", "c")
    names = ("ag1", "ag2", "ah", "bg1", "bg2", "bi")
    ordering.observe(OrderFacts(usage=dict.fromkeys(map(frozenset, names), 1)))
    assert ordering.cover == Cover(("a", "b"), exact=False)  # a new one would begin with g


def test_attributes_nobody_uses_any_more_leave_without_a_new_decision() -> None:
    ordering = ordering_of("macssas", "ab", "ac", "ad", "ae")
    left = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.5}
    chances(left)(ordering)
    assert ("".join(ordering.order), ordering.prefix) == ("aebcd", 2)
    ordering.observe(OrderFacts(usage=dict.fromkeys(map(frozenset, ("ab", "ac", "ad")), 1)))
    assert ("".join(ordering.order), ordering.prefix) == ("abcd", 1)
    settle(ordering, chances(left))
    ordering.observe(OrderFacts(usage=dict.fromkeys(map(frozenset, ("ab", "ad")), 1)))
    assert ("".join(ordering.order), ordering.prefix) == ("adb", None)


def test_more_queries_of_the_same_kind_disturb_no_period() -> None:
    ordering = ordering_of("sas", "ab")
    for used in (1, 2, 3):
        facts = OrderFacts(10, used, ("a", "b"), (10 * used, used), 0, {"a": 10 * used, "b": used})
        ordering.observe(replace(facts, tuples=PERIOD // 3 + 1, usage={frozenset("ab"): used}))
    assert ordering.order == ("b", "a")
    assert ordering.then == (0.1,)


def test_without_attributes_there_is_nothing_to_order() -> None:
    ordering = ordering_of("macssas", "")
    ordering.observe(OrderFacts(10, 1, tuples=PERIOD))
    assert (ordering.order, ordering.prefix) == ((), None)


@st.composite
def epochs(draw: st.DrawFn) -> list[tuple[dict[frozenset[str], int], int]]:
    """Usage and a seed of what is measured, epoch by epoch."""
    names = st.frozensets(st.sampled_from("abcde"))
    usage = st.dictionaries(names, st.integers(1, 3), min_size=1, max_size=5)
    known = draw(st.lists(usage, min_size=1, max_size=3))
    return draw(st.lists(st.tuples(st.sampled_from(known), st.integers(0, 99)), max_size=25))


def random_facts(ordering: Ordering, usage: dict[frozenset[str], int], seed: int) -> OrderFacts:
    random = np.random.default_rng(seed)
    order, prefix = ordering.order, ordering.prefix
    after = sorted((int(bits) for bits in random.integers(0, 400, len(order))), reverse=True)
    asked = order[prefix:] if prefix is not None else ()
    return OrderFacts(
        100,
        4,
        order,
        tuple(after),
        prefix,
        {name: int(random.integers(0, 400)) for name in asked},
        int(random.integers(PERIOD // 3, PERIOD)),
        100,
        usage,
    )


methods = st.sampled_from(["macssas", "macs", "sas"])


@given(methods, epochs(), st.sampled_from([0, 20_000]))
def test_the_order_is_always_of_the_attributes_in_use(
    method: Any, seen: list[tuple[dict[frozenset[str], int], int]], looks: int
) -> None:
    ordering = Ordering(OrderRules(method, PERIOD))
    for usage, seed in seen:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("penstock.control.cover._LOOKS", looks)
            ordering.observe(random_facts(ordering, usage, seed))
        used = set().union(*usage)
        assert sorted(ordering.order) == sorted(used)
        cover = set(ordering.cover.attributes)
        assert set(ordering.order[: len(cover)]) == cover
        if method != "sas":
            assert all(cover & signature for signature in usage if signature)
            assert not looks or len(cover) == len(minimum_cover(usage).attributes)
        if ordering.prefix is not None:
            assert ordering.prefix not in (len(cover) - 1, len(used) - 1)
        assert json.loads(json.dumps(ordering.metrics())) == ordering.metrics()


@given(methods, epochs(), st.integers(0, 25))
def test_a_restored_state_decides_the_same(
    method: Any, seen: list[tuple[dict[frozenset[str], int], int]], at: int
) -> None:
    ordering = again = Ordering(OrderRules(method, PERIOD))
    for step, (usage, seed) in enumerate(seen):
        if step == at:
            again = Ordering(ordering.rules)
            again.restore(json.loads(json.dumps(ordering.state())))
        facts = random_facts(ordering, usage, seed)
        ordering.observe(facts)
        if again is not ordering:
            again.observe(facts)
        assert again.state() == ordering.state()
        assert again.metrics() == ordering.metrics()


def test_the_state_of_another_method_is_not_taken_over() -> None:
    ordering = ordering_of("sas", "abcd")
    other = Ordering(OrderRules("macs", PERIOD))
    other.restore(ordering.state())
    assert (other.order, other.prefix) == ((), None)


# a stream whose distribution changes


def test_a_changed_stream_is_reordered_and_its_cost_comes_back() -> None:
    random = np.random.default_rng(7)
    names = [f"a{i}" for i in range(8)]

    def low(values: Any) -> Flags:
        below: Flags = np.less(values, 30)
        return below

    tests: list[dict[str, Test]] = []
    for number in range(40):
        used = map(str, random.choice(names[1:], 3, replace=False))
        tests.append({"a0": equals(number % 20), **dict.fromkeys(used, low)})
    terms, rows = Terms(tests), 300

    def epoch(changed: bool) -> dict[str, Any]:
        """The attributes' means are turned round."""
        means = range(85, 15, -10) if changed else range(25, 95, 10)
        columns = {n: random.normal(m, 20, rows) for n, m in zip(names[1:], means, strict=True)}
        return {"a0": random.integers(0, 20, rows), **columns}

    def cost(order: Sequence[str], changed: bool) -> int:
        return sum(facts_of(terms, epoch(changed), order, None).visits for _ in range(20))

    def run(ordering: Ordering, changed: bool, epochs: int) -> None:
        for _ in range(epochs):
            ordering.observe(facts_of(terms, epoch(changed), ordering.order, ordering.prefix))

    ordering = Ordering(OrderRules(period=rows))
    run(ordering, False, 12)
    assert ordering.prefix is None
    old = ordering.order
    assert old[0] == "a0"
    run(ordering, False, 20)
    assert ordering.order == old
    assert ordering.metrics()["reorders"] <= 4  # of 300 sampled rows: some noise
    run(ordering, True, 16)
    assert ordering.order != old
    fresh = Ordering(OrderRules(period=rows))
    run(fresh, True, 12)
    assert cost(ordering.order, True) < 0.9 * cost(old, True)
    assert cost(ordering.order, True) < 1.03 * cost(fresh.order, True)
