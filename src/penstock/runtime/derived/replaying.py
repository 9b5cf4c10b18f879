"""What Spark asks about the next micro-batch, answered by what it was the first time.

Only for rings that run again from an earlier micro-batch on (`progress.roll_back`). Which one it is
that Spark is about to begin its log tells: the one after the last that is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from penstock.runtime.config import owner_of
from penstock.runtime.derived.progress import Offsets, epoch_in, noted_offsets, value_in
from penstock.runtime.service import Handler

_NOTED: Mapping[str, Callable[[Offsets, int | None], int | None]] = {
    "plan": epoch_in,
    "punctuation": lambda offsets, _: value_in(offsets, "punctuation_us"),
    "round": lambda offsets, _: value_in(offsets, "round"),
}


def as_noted(calls: Mapping[str, Handler], checkpoint: Callable[[str], Path]) -> dict[str, Handler]:
    """Calls of the epoch service that go by what is noted of a micro-batch, if anything is."""

    def answer(name: str, message: dict[str, Any], parts: list[bytes]) -> Any:
        ring, number = owner_of(message["ring"])
        offsets = noted_offsets(checkpoint(ring))
        noted = None if offsets is None else _NOTED[name](offsets, number)
        return calls[name](message, parts) if noted is None else noted

    return {name: partial(answer, name) if name in _NOTED else calls[name] for name in calls}
