"""Who evaluates the selections of a ring: Spark's own code, or the stage in Python.

Handing tuples to Python costs more than a few conditions in Spark's generated code, and far less
than many. But conditions in the plan make each new query a new plan, so a ring whose queries change
evaluates them in the stage, and goes back to Spark when they have been few and the same for a
while. Each time that this did not last, the while doubles.
"""

from __future__ import annotations

from dataclasses import dataclass

CALM_S = 30.0
_LONGEST_CALM_S = 3600.0


@dataclass(frozen=True, slots=True)
class ModeFacts:
    """able: tuples would have to be handed to Python; changed_s: since a query came."""

    able: bool
    queries: int
    most: int  # queries that Spark is given
    changed_s: float
    left: int  # how often Spark's own code was left again


def is_native(facts: ModeFacts) -> bool:
    """Whether a ring without a plan starts with Spark's own code."""
    return facts.able and 0 < facts.queries <= facts.most


def becomes_native(facts: ModeFacts) -> bool:
    """Whether a ring that runs the stage goes over to Spark's own code."""
    calm_s = min(CALM_S * 2 ** min(facts.left, 10), _LONGEST_CALM_S)
    return is_native(facts) and facts.changed_s >= calm_s
