"""What is remembered of a stream's delays, and the realised drop ratio.

All spans are counted in expected losses (1/ratio tuples each), so that every drop ratio is judged
by equally many of the tuples that decide it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.kernels.delays import DelayFacts
from penstock.kernels.jit import Doubles
from penstock.kernels.sketch import BUCKETS, EDGES, dense, share_above, sparse

LONG, MEDIUM, SHORT = 1000, 10, 5  # expected losses that a sketch remembers
RECENT_TUPLES = 100_000  # of the realised ratio that is shown
_BLOCKS = 50
_YOUNG = 0.3  # a young sketch forgets its beginning: it remembers this part of what it saw
_FORGOTTEN = 0.001  # weight below which a tuple is no longer worth its place
_STILL_RECENT = 0.4  # weight in the short sketch of a tuple that is still recent


def _empty() -> Doubles:
    return np.zeros(BUCKETS)


@dataclass(slots=True)
class Profile:
    """Three sketches of the delays that forget at different speeds."""

    ratio: float
    long: Doubles = field(default_factory=_empty)
    medium: Doubles = field(default_factory=_empty)
    short: Doubles = field(default_factory=_empty)
    seen: int = 0

    def observe(self, facts: DelayFacts, asked: float | None = None) -> None:
        """Take in the delays of an epoch; asked: the ratio that changes are looked for at."""
        rows = facts.measured
        self.seen += rows
        young = max(SHORT / self.ratio, self.seen * _YOUNG)
        for name, memory in (
            ("long", min(LONG / self.ratio, young)),
            ("medium", MEDIUM / (asked or self.ratio)),
            ("short", SHORT / self.ratio),
        ):
            weights = getattr(self, name) * math.exp(-rows / memory)
            weights[weights < _FORGOTTEN] = 0.0
            setattr(self, name, weights + facts.delays)

    def forget(self) -> None:
        """The delays have changed: what is older than the medium sketch misleads."""
        self.long = self.medium.copy()

    def differs(self, delay_us: float, spread_us: float, ratio: float, sigmas: float) -> int:
        """Whether recently more (1) or fewer (-1) tuples exceeded a delay than `ratio` of them."""
        expected = ratio * float(self.medium.sum())
        excess = share_above(self.medium, delay_us, spread_us) * float(self.medium.sum()) - expected
        return 0 if abs(excess) <= sigmas * math.sqrt(expected) else 1 if excess > 0 else -1

    def surges(self, delay_us: float, spread_us: float, ratio: float, sigmas: float) -> bool:
        """Whether just now many more tuples exceeded a delay than `ratio` of them."""
        expected = ratio * float(self.short.sum())
        found = share_above(self.short, delay_us, spread_us) * float(self.short.sum())
        return found > expected + sigmas * math.sqrt(expected) + 1

    def recent_max(self) -> float:
        """The largest delay of the last tuples."""
        recent = np.flatnonzero(self.short >= _STILL_RECENT)
        return float(EDGES[recent[-1] + 1]) if recent.size else 0.0

    def state(self) -> dict[str, Any]:
        sketches = {n: sparse(getattr(self, n)) for n in ("long", "medium", "short")}
        return {"seen": self.seen, **sketches}

    def restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]
        self.long, self.medium, self.short = (
            dense(state[name]) for name in ("long", "medium", "short")
        )


@dataclass(slots=True)
class Tally:
    """Tuples and those below the punctuation: in all, and over the last RECENT_TUPLES."""

    rows: int = 0
    below: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)

    def count(self, rows: int, below: int) -> None:
        self.rows += rows
        self.below += below
        last = self.blocks[-1] if self.blocks else (RECENT_TUPLES, 0)
        if last[0] < RECENT_TUPLES // _BLOCKS:
            self.blocks[-1] = (last[0] + rows, last[1] + below)
        elif rows:
            self.blocks.append((rows, below))
        while sum(n for n, _ in self.blocks[1:]) >= RECENT_TUPLES:
            self.blocks.pop(0)

    @property
    def ratio(self) -> float | None:
        return self.below / self.rows if self.rows else None

    @property
    def recent_ratio(self) -> float | None:
        rows = sum(n for n, _ in self.blocks)
        return sum(below for _, below in self.blocks) / rows if rows else None
