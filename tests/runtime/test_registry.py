"""The registry: what the specs of a ring's queries have in common, found in their text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.plan.codec import dumps, slot_from
from penstock.plan.explain_ring import Company, Sharing
from penstock.plan.specs import Attribute, Interval, SlotSpec, Term, ValueSet, WindowSpec
from penstock.plan.valuesets import compare
from penstock.runtime.registry import Registry
from penstock.runtime.sharing import sharing_of

HOT, COLD, HALL = compare(">", 40.0), compare("<", 0.0), compare("=", "hall")


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    found = Registry(tmp_path / "catalog.sqlite")
    yield found
    found.close()


def register(registry: Registry, name: str, *sets: tuple[str, ValueSet], ring: str = "r") -> int:
    slot = registry.add_query(name, "", ring, "")
    registry.publish(slot, dumps(SlotSpec(slot, (Term(sets),), WindowSpec(10, 10))))
    return slot


def test_queries_that_compare_the_same_attribute_are_counted(registry: Registry) -> None:
    own = register(registry, "own", ("temp", HOT), ("room", HALL))
    register(registry, "same", ("temp", HOT))
    register(registry, "other", ("temp", COLD), ("room", HALL))
    register(registry, "longer name", ("temperature", HOT))
    register(registry, "elsewhere", ("temp", HOT), ring="another")
    registry.drop_query(register(registry, "dropped", ("temp", HOT)))
    terms = (Term((("temp", HOT),)), Term((("room", HALL),)))
    company = {("temp", HOT): Company(1, 1), ("room", HALL): Company(1, 0)}
    assert sharing_of(registry, "r", terms, own) == Sharing(
        "r", 4, company, ("same", "other", "longer name"), True
    )
    with_own = {("temp", HOT): Company(2, 1), ("room", HALL): Company(2, 0)}
    assert sharing_of(registry, "r", terms, None).company == with_own


def test_a_later_start_leaves_the_text_of_a_spec_canonical(registry: Registry) -> None:
    slot = register(registry, "q", ("temp", HOT))
    registry.start_after("r", 0, registry.version, 5)
    text = registry.query_by_slot(slot).spec
    assert slot_from(text).from_us == 5
    assert text == dumps(slot_from(text))


def test_derived_attributes_are_found_beside_constants_that_json_does_not_know(
    registry: Registry,
) -> None:
    nan = ValueSet((Interval(float("nan"), True, float("inf"), True),), False)
    lower = Attribute("__d_1", "string", "lower(s)")
    for number, derived in enumerate([(), (lower,), (lower,)]):
        slot = registry.add_query(f"q{number}", "", "r", "{}")
        spec = SlotSpec(slot, (Term((("a", nan),)),), derived=derived)
        registry.publish(slot, dumps(spec))
    assert registry.derived_of("r") == [{"name": "__d_1", "type": "string", "sql": "lower(s)"}]
    assert registry.derived_of("other") == []
