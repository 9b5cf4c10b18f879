"""What a join moves out of memory when its tables are over budget.

Several parts are drawn at random and the one with the most 1 bits goes, from the tables of all
streams at once (Kwon, Kim, Lee, Kim, 3.3): the more bits, the more tuples leave by one flush, so
fewer flushes are needed. MJoin takes a part at random: `sampled` of 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

SAMPLED = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """A part that can go as a whole: a key or a bucket of keys; bits: 1 bits of all its keys."""

    id: int
    bits: int
    nbytes: int


def choose_victims(
    candidates: Iterable[Candidate], excess: int, sampled: int, rng: np.random.Generator
) -> list[int]:
    """The ids of parts that free at least `excess` bytes, in the order in which they were chosen.

    All of them if they do not suffice, none if there is no excess.
    """
    left = list(candidates)
    victims = []
    while left and excess > 0:
        drawn = rng.choice(len(left), min(sampled, len(left)), replace=False)
        place = max(drawn.tolist(), key=lambda i: (left[i].bits, left[i].nbytes))
        left[place], left[-1] = left[-1], left[place]
        victim = left.pop()
        victims.append(victim.id)
        excess -= victim.nbytes
    return victims
