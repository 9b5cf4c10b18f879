"""What a query shares with the others of its ring, counted for EXPLAIN.

Specs are canonical text, so a comparison stands in each of them in the same words: counting is one
search through the texts, some tenths of a second for 100,000 of them.
"""

from __future__ import annotations

from penstock.plan.codec import attribute_text, comparison_text
from penstock.plan.explain import Company, Sharing
from penstock.plan.specs import Term
from penstock.runtime.registry import Registry


def sharing_of(
    registry: Registry, ring: str, terms: tuple[Term, ...], besides: int | None
) -> Sharing:
    """How a query with these terms fits into a ring; `besides` is its own slot if it runs."""
    company = {}
    for name, values in {pair for term in terms for pair in term.sets}:
        attribute, comparison = attribute_text(name), comparison_text(name, values)
        comparing, same = registry.count_specs(ring, attribute, comparison, besides)
        company[name, values] = Company(same, comparing - same)
    return Sharing(ring, registry.count_queries(ring), company)
