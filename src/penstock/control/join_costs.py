"""What an n-way stream join is expected to cost: MJoin, and the same with a bit-vector hash table.

The model of Kwon, Kim, Lee, Kim (An Efficient M-way Stream Join Algorithm Exploiting a Bit-vector
Hash Table), equations 1 to 5. A tuple is hashed and moved into the table of its stream; then MJoin
looks into the tables of the n - 1 other streams, one after the other, until one has no match. The
bit vector tells by one look whether all of them have one: looks at tables that end in a failure are
spared, and what is saved is their cost less that of keeping the bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Of one tuple: hashing and moving it, keeping and testing its bits, a look into a table."""

    hashing: float = 1.0
    moving: float = 1.0
    bits: float = 1.0
    comparing: float = 1.0


def succeeding_looks(selectivities: Sequence[float]) -> float:
    """Looks per tuple that belong to a join that succeeds (equation 2).

    `selectivities` are those of the n - 1 other streams in the order in which they are asked: the
    probability that a tuple finds a match there.

    >>> succeeding_looks([0.5, 0.5])
    0.5
    """
    return len(selectivities) * prod(selectivities)


def failing_looks(selectivities: Sequence[float]) -> float:
    """Looks per tuple that belong to a join that fails (equation 3).

    >>> failing_looks([0.5, 0.5])
    1.0
    """
    reached = accumulate(selectivities, mul, initial=1.0)
    each = zip(reached, selectivities, strict=False)
    return sum(look * chance * (1 - match) for look, (chance, match) in enumerate(each, start=1))


def mjoin_cost(tuples: float, selectivities: Sequence[float], costs: StepCosts) -> float:
    """Equation 1: a hash table for each stream, asked one after the other."""
    looks = succeeding_looks(selectivities) + failing_looks(selectivities)
    return tuples * (costs.hashing + costs.moving + costs.comparing * looks)


def biht_cost(tuples: float, selectivities: Sequence[float], costs: StepCosts) -> float:
    """Equation 4: tables are looked at only where all of them are known to have a match."""
    looks = succeeding_looks(selectivities)
    return tuples * (costs.hashing + costs.moving + costs.bits + costs.comparing * looks)
