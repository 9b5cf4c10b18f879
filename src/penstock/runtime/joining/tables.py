"""The tables that a worker keeps between micro-batches, of all buckets of all rings.

They are copies: whatever is not here is made again from the bucket's state. So the worker keeps
what it used last, up to a bound, and nothing has to tell it that a ring has gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.kernels.join_bucket import JoinBucket

_MOST_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Warm:
    """A bucket's tables, and the token of the state that they are."""

    token: str
    bucket: JoinBucket
    nbytes: int


@dataclass(slots=True)
class WarmTables:
    most_bytes: int = _MOST_BYTES
    kept: dict[tuple[str, int], Warm] = field(default_factory=dict)  # the least recent first

    def take(self, ring: str, bucket: int) -> Warm | None:
        """What there is of a bucket; it is gone until it is put back."""
        return self.kept.pop((ring, bucket), None)

    def put(self, ring: str, bucket: int, token: str, tables: JoinBucket) -> None:
        self.kept[ring, bucket] = Warm(token, tables, tables.nbytes)
        excess = sum(warm.nbytes for warm in self.kept.values()) - self.most_bytes
        for place in list(self.kept):
            if excess <= 0:
                return
            excess -= self.kept.pop(place).nbytes
