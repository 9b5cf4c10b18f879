"""What a worker keeps of rings' slots, brought to the registry version of an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from penstock.plan.codec import slot_from
from penstock.plan.specs import SlotSpec
from penstock.runtime.config import StageConfig
from penstock.runtime.service import ask

UNUSED_S = 900.0  # after which a ring has probably gone; if not, its slots are fetched again


class Versioned(Protocol):
    version: int

    def change(self, version: int, added: Sequence[SlotSpec], dropped: Sequence[int] = ()) -> None:
        """Go on to another version."""
        ...


Kept = TypeVar("Kept", bound=Versioned)


class KeptByRing(Generic[Kept]):
    """One of each ring that this worker had a task of; a worker outlives rings."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._kept: dict[str, tuple[Kept, float]] = {}  # with the time of its last use

    def __len__(self) -> int:
        return len(self._kept)

    def at_version(self, config: StageConfig, version: int, new: Callable[[], Kept]) -> Kept:
        """What is kept of a ring, at a version; only what changed since the last one is fetched."""
        found, _ = self._kept.pop(config.ring, (None, 0.0))  # comes back when it is whole again
        self._forget_unused()
        if found is None or found.version > version:
            found = new()
        if found.version < version:
            message = {"ring": config.ring, "since": found.version, "version": version}
            changes = ask(config.address, "slots", message)
            if changes["anew"]:
                found = new()
            found.change(version, [slot_from(t) for t in changes["added"]], changes["dropped"])
        self._kept[config.ring] = found, self._clock_s()
        return found

    def _forget_unused(self) -> None:
        since_s = self._clock_s() - UNUSED_S
        for ring in [ring for ring, (_, used_s) in self._kept.items() if used_s < since_s]:
            del self._kept[ring]
