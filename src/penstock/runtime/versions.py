"""What a worker keeps of a ring's slots, brought to the registry version of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from penstock.plan.codec import slot_from
from penstock.plan.specs import SlotSpec
from penstock.runtime.config import StageConfig
from penstock.runtime.service import ask


class Versioned(Protocol):
    version: int

    def change(self, version: int, added: Sequence[SlotSpec], dropped: Sequence[int] = ()) -> None:
        """Go on to another version."""
        ...


Kept = TypeVar("Kept", bound=Versioned)


def at_version(
    kept: dict[str, Kept], config: StageConfig, version: int, new: Callable[[], Kept]
) -> Kept:
    """What is kept of a ring, at a version; only what changed since the last one is fetched."""
    found = kept.pop(config.ring, None)  # comes back when it is whole again
    if found is None or found.version > version:
        found = new()
    if found.version < version:
        message = {"ring": config.ring, "since": found.version, "version": version}
        changes = ask(config.address, "slots", message)
        found.change(version, [slot_from(t) for t in changes["added"]], changes["dropped"])
    kept[config.ring] = found
    return found
