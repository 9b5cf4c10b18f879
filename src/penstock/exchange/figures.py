"""What a queue tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receipt:
    """An answer to an append: seen before or not; the positions of its batch once committed."""

    seen: bool
    first: int | None = None
    end: int | None = None


@dataclass(slots=True)
class Counts:
    """Since the queue was opened."""

    appended_bytes: int = 0
    appended_rows: int = 0
    repeated: int = 0
    full: int = 0  # appends that found no room


@dataclass(frozen=True, slots=True)
class Tally:
    """What measuring needs, of one moment; consumers: delivered and safe positions."""

    used: int
    appended_bytes: int
    trimmed_bytes: int
    consumers: dict[str, tuple[int, int]]
    trimmed: int
    backed: int
