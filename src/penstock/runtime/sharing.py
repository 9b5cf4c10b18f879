"""What a query shares with the others of its ring, counted for EXPLAIN.

Specs are canonical text, so a comparison stands in each of them in the same words: counting is one
search through the texts, some tenths of a second for 100,000 of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.codec import attribute_text, comparison_text, fence_text, point_text
from penstock.plan.explain_ring import NAMED, Company, Sharing
from penstock.plan.specs import Term, ValueSet
from penstock.runtime.registry import Registry


def sharing_of(
    registry: Registry, ring: str, terms: tuple[Term, ...], besides: int | None
) -> Sharing:
    """How a query with these terms fits into a ring; `besides` is its own slot if it runs."""
    asked = {
        (name, values): (attribute_text(name), comparison_text(name, values))
        for term in terms
        for name, values in term.sets
    }
    asked |= {
        (test.name, values): (point_text(test), fence_text(test, values))
        for term in terms
        for test, values in term.fences
    }
    company = {}
    for pair, (attribute, comparison) in asked.items():
        comparing, same = registry.count_specs(ring, attribute, comparison, besides)
        company[pair] = Company(same, comparing - same)
    return joint(registry, ring, besides, company)


def joint(
    registry: Registry,
    ring: str,
    besides: int | None,
    company: Mapping[tuple[str, ValueSet], Company] | None = None,
) -> Sharing:
    """A ring with the names of some of its queries."""
    others = registry.names_in(ring, besides, NAMED)
    queries = registry.count_queries(ring)
    return Sharing(ring, queries, company or {}, tuple(others), besides is not None)
