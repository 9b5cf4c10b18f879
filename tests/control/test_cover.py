"""The smallest set of attributes of which every term uses one."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.cover import Cover, Usage, by_terms, minimum_cover

usages = st.dictionaries(st.frozensets(st.sampled_from("abcdef")), st.integers(1, 5), max_size=12)


def is_cover(attributes: tuple[str, ...], usage: Usage) -> bool:
    return all(not signature.isdisjoint(attributes) for signature in usage if signature)


def smallest_covers(usage: Usage) -> list[tuple[str, ...]]:
    """All of them, by trying; attributes of most terms first."""
    names = by_terms(usage)
    for size in range(len(names) + 1):
        if found := [c for c in combinations(names, size) if is_cover(c, usage)]:
            return found
    raise AssertionError("all attributes together are a cover")


@given(usages)
def test_the_cover_is_the_first_of_the_smallest(usage: dict[frozenset[str], int]) -> None:
    assert minimum_cover(usage) == Cover(smallest_covers(usage)[0], exact=True)


@given(usages)
def test_without_time_to_search_the_cover_is_greedy(usage: dict[frozenset[str], int]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("penstock.control.cover._LOOKS", 0)
        cover = minimum_cover(usage)
    assert is_cover(cover.attributes, usage)
    assert not cover.exact
    assert set(cover.attributes) <= set(by_terms(usage))
    assert len(cover.attributes) >= len(smallest_covers(usage)[0])


@pytest.mark.parametrize(
    ("usage", "attributes"),
    [
        ({"ab": 1, "bc": 1}, "b"),
        ({"ab": 1}, "a"),  # by name
        ({"ab": 1, "bx": 5, "x": 2}, "xb"),  # by terms
        ({"": 9}, ""),
        ({"": 9, "c": 1}, "c"),
        ({}, ""),
    ],
)
def test_ties_go_to_attributes_of_most_terms_then_by_name(
    usage: dict[str, int], attributes: str
) -> None:
    found = minimum_cover({frozenset(names): used for names, used in usage.items()})
    assert found == Cover(tuple(attributes), exact=True)


def test_the_greedy_cover_takes_what_hits_most_signatures(monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.control.cover._LOOKS", 0)
    often = {frozenset("bm"): 5, frozenset("bn"): 5}  # b is used by most terms
    usage = {**often, **dict.fromkeys(map(frozenset, ("mp", "mq", "nr", "ns")), 1)}
    assert minimum_cover(usage) == Cover(("m", "n"), exact=False)


def test_a_hard_case_is_given_up_and_covered_all_the_same() -> None:
    usage: dict[frozenset[Any], int] = dict.fromkeys(
        map(frozenset, combinations([f"a{i:02}" for i in range(20)], 2)), 1
    )
    cover = minimum_cover(usage)
    assert not cover.exact
    assert len(cover.attributes) == 19


def test_one_attribute_in_thousands_of_signatures_is_found() -> None:
    pairs = combinations([f"a{i}" for i in range(80)], 2)
    usage = {frozenset(("key", *pair)): 1 for pair in pairs}
    assert minimum_cover(usage) == Cover(("key",), exact=True)
