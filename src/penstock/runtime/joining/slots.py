"""The queries of a JOIN ring as its operator sees them: who lives, and how far back they reach."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from penstock.kernels.columns import INT64_MAX
from penstock.kernels.join_bucket import Windows
from penstock.plan.specs import SlotSpec
from penstock.runtime.config import StageConfig
from penstock.runtime.versions import KeptByRing


@dataclass(slots=True)
class JoinSlots:
    """The slots of a ring at one registry version."""

    inputs: int
    version: int = 0
    specs: dict[int, SlotSpec] = field(default_factory=dict)

    def change(self, version: int, added: Sequence[SlotSpec], dropped: Sequence[int] = ()) -> None:
        self.specs |= {slot.slot: slot for slot in added}
        for slot in dropped:
            self.specs.pop(slot, None)
        self.version = version

    def only(self, slots: Collection[int]) -> JoinSlots:
        """Without all others."""
        specs = {slot: spec for slot, spec in self.specs.items() if slot in slots}
        return JoinSlots(self.inputs, self.version, specs)

    @property
    def windows(self) -> Windows:
        slots = sorted(self.specs)
        ranges = [_ranges_us(self.specs[slot]) for slot in slots]
        return Windows(
            np.array(slots, np.int64), np.array(ranges, np.int64).reshape(-1, self.inputs)
        )


def _ranges_us(slot: SlotSpec) -> list[int]:
    return [INT64_MAX if i.window is None else i.window.range_us for i in slot.inputs]


_slots: KeptByRing[JoinSlots] = KeptByRing()
_guard = threading.Lock()


def slots_for(config: StageConfig, inputs: int, version: int) -> JoinSlots:
    """A ring's slots at a registry version; buckets that have their turn at once share nothing."""
    with _guard:
        found = _slots.at_version(config, version, partial(JoinSlots, inputs))
        return JoinSlots(inputs, version, dict(found.specs))
