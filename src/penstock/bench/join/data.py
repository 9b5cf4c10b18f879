"""Streams of <key, time, other> whose tuples arrive in one random order.

Of all keys each stream carries a share, the selectivity, drawn for itself. Every key that it
carries comes once, and the rest of its tuples have keys drawn from these. So the key of a tuple
occurs in another stream with a probability equal to the selectivity, in each other stream
independently, and there are about

    keys * selectivity ** (streams - 1) * repeats ** streams

combinations, with `keys` those that one stream carries and `repeats` how often each comes, on
average. The tables start empty, so not all of these matches are there when a tuple arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from penstock.kernels.jit import Bytes, Ints


@dataclass(frozen=True, slots=True)
class Shape:
    selectivity: float
    keys: int
    streams: int = 3
    repeats: int = 2

    @property
    def all_keys(self) -> int:
        return round(self.keys / self.selectivity)

    def selectivity_at(self, time: float) -> float:
        """The probability that a tuple finds a match in another stream when it arrives.

        time: 0 to 1, the part of the input that has passed; a key that the other stream carries
        has come once with that probability, and more often as the events of a Poisson process.
        """
        missing = (1 - time) * exp(-(self.repeats - 1) * time)
        return self.selectivity * (1 - missing)


@dataclass(frozen=True, slots=True)
class Tuples:
    """In order of arrival; the keys are 0 to `all_keys` - 1, the times the places in the order."""

    streams: Bytes
    keys: Ints
    times_us: Ints

    def __len__(self) -> int:
        return self.keys.size

    def part(self, begin: int, size: int) -> Tuples:
        piece = slice(begin, begin + size)
        return Tuples(self.streams[piece], self.keys[piece], self.times_us[piece])


def arrivals(shape: Shape, seed: int) -> Tuples:
    random = np.random.default_rng(seed)
    keys = np.concatenate([_keys(shape, random) for _ in range(shape.streams)])
    streams = np.repeat(np.arange(shape.streams, dtype=np.uint8), keys.size // shape.streams)
    order = random.permutation(keys.size)
    return Tuples(streams[order], keys[order], np.arange(keys.size))


def _keys(shape: Shape, random: np.random.Generator) -> Ints:
    carried = random.permutation(shape.all_keys)[: shape.keys]
    return np.append(carried, random.choice(carried, (shape.repeats - 1) * shape.keys))
