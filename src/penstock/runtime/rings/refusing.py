"""Which of the queries that wait for another plan cannot have it.

Spark refuses a plan as a whole, for one expression in it. Queries that need the same attributes
share their fate. If there are others, each half of them is tried by itself, on top of what runs by
then, until a plan that is refused was for one group only. A try is a restart of the ring: one group
of n that is refused costs about 2 log n of them, not n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.plan.specs import Attribute


@dataclass(frozen=True, slots=True)
class Group:
    """Slots that wait for the same attributes."""

    derived: tuple[Attribute, ...]
    slots: tuple[int, ...]


def refused_slots(
    groups: Sequence[Group], error: str, attempt: Callable[[Sequence[Group]], str | None]
) -> dict[int, str]:
    """Those whose own plan is refused, with the error; the plan for all of them was.

    attempt: let the ring go on with a plan for these, too; why that cannot be.
    """
    if len(groups) < 2:
        return {slot: error for group in groups for slot in group.slots}
    refused: dict[int, str] = {}
    middle = len(groups) // 2
    for half in (groups[:middle], groups[middle:]):
        if (own := attempt(half)) is not None:
            refused |= refused_slots(half, own, attempt)
    return refused
