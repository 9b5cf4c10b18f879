"""The tables that a worker keeps between micro-batches, of all buckets of all rings.

They are copies: whatever is not here is made again from the bucket's state. Over the budget, some
are doomed: they serve once more, in their next micro-batch, whose state then says that the bucket
is flushed. Until then a worker has more than its budget.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np

from penstock.control.flushing import SAMPLED, Candidate, choose_victims
from penstock.kernels.join_bucket import JoinBucket
from penstock.kernels.key_bucket import KeyBucket

_UNUSED = 64  # takes after which what nobody took may be forgotten: its ring has gone, or moved

Place = tuple[str, int]  # ring and bucket


@dataclass(slots=True)
class Warm:
    """A bucket's tables, and the token of the state that they are."""

    token: str
    bucket: JoinBucket | KeyBucket
    bits: int
    nbytes: int
    put_at: int
    doomed: bool = False


@dataclass(slots=True)
class WarmTables:
    most_bytes: int = 2**30
    kept: dict[Place, Warm] = field(default_factory=dict)
    sampled: int = SAMPLED
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    takes: int = 0
    guard: threading.RLock = field(default_factory=threading.RLock)

    @property
    def room(self) -> int:
        """Bytes left of the budget."""
        with self.guard:
            return self.most_bytes - sum(w.nbytes for w in self.kept.values() if not w.doomed)

    def take(self, place: Place) -> Warm | None:
        """What there is of a bucket; it is gone until it is put back."""
        with self.guard:
            self.takes += 1
            return self.kept.pop(place, None)

    def put(self, place: Place, token: str, bucket: JoinBucket | KeyBucket) -> bool:
        """Keep tables if they may stay; else, or for them, others have to go."""
        bits = sum(table.bits for table in bucket.tables)
        with self.guard:
            self.kept[place] = Warm(token, bucket, bits, bucket.nbytes, self.takes)
            if self.room < 0:
                self._forget_unused()
                self._doom()
            if self.kept[place].doomed:
                del self.kept[place]
            return place in self.kept

    def put_back(self, place: Place, warm: Warm) -> None:
        """What was taken, and did not change."""
        with self.guard:
            self.kept[place] = warm

    def _forget_unused(self) -> None:
        """Ends the tables of rings that run no more; a slow ring's are made again."""
        since = self.takes - max(_UNUSED, 2 * len(self.kept))
        self.kept = {place: warm for place, warm in self.kept.items() if warm.put_at >= since}

    def _doom(self) -> None:
        living = [place for place, warm in self.kept.items() if not warm.doomed]
        candidates = (
            Candidate(i, self.kept[place].bits, self.kept[place].nbytes)
            for i, place in enumerate(living)
        )
        for victim in choose_victims(candidates, -self.room, self.sampled, self.rng):
            self.kept[living[victim]].doomed = True
