"""The queries of a JOIN ring as its operator sees them: who lives, and how far back they reach."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.kernels.columns import INT64_MAX
from penstock.kernels.join_bucket import Windows
from penstock.plan.codec import slot_from
from penstock.plan.specs import SlotSpec
from penstock.runtime.config import StageConfig
from penstock.runtime.service import ask


@dataclass(slots=True)
class JoinSlots:
    """The slots of a ring at one registry version."""

    inputs: int
    version: int = 0
    specs: dict[int, SlotSpec] = field(default_factory=dict)

    @property
    def windows(self) -> Windows:
        slots = sorted(self.specs)
        ranges = [_ranges_us(self.specs[slot]) for slot in slots]
        return Windows(
            np.array(slots, np.int64), np.array(ranges, np.int64).reshape(-1, self.inputs)
        )


def _ranges_us(slot: SlotSpec) -> list[int]:
    return [INT64_MAX if i.window is None else i.window.range_us for i in slot.inputs]


_slots: dict[str, JoinSlots] = {}


def slots_for(config: StageConfig, inputs: int, version: int) -> JoinSlots:
    """A ring's slots at a registry version; workers keep the last and fetch only changes."""
    known = _slots.pop(config.ring, None)  # comes back when it is whole again
    if known is None or known.version > version:
        known = JoinSlots(inputs)
    if known.version < version:
        message = {"ring": config.ring, "since": known.version, "version": version}
        changes = ask(config.address, "slots", message)
        for text in changes["added"]:
            slot = slot_from(text)
            known.specs[slot.slot] = slot
        for dropped in changes["dropped"]:
            known.specs.pop(dropped, None)
        known.version = version
    _slots[config.ring] = known
    return known
