"""What travels to Spark's Python processes: light enough that a source's planner starts fast."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.runtime.service import Address

# Spark's watermark starts at 1970 and drops what lies before; all event times are moved up by this
# much inside a ring, so that years 1 to 9999 are positive (4,567 years, and int64 has room for
# 292,000)
SHIFT_US = 2**57 // 1000 * 1000  # whole milliseconds, as Spark's watermark: see compile

TRUE_END = (
    "__true_us"  # column of window rows whose `__end` is not the window's end but its closing
)
ORIGIN = "__origin"  # column of joined rows: the tuple they come from
EPOCH = "__epoch"  # column of raw rows: the epoch they belong to


@dataclass(frozen=True, slots=True)
class StageConfig:
    """All that a worker needs to run a ring's stage; travels as JSON."""

    ring: str
    composition: str
    stream: str
    host: str
    port: int
    token: str
    join_memory: int = 2**30  # bytes of a worker's tables
    watches: bool = False  # a selection notes its disorder, for the stream that it feeds

    @property
    def address(self) -> Address:
        return Address(self.host, self.port, self.token)


def input_ring(ring: str, number: int) -> str:
    """What an input of a JOIN ring is called: it has epochs of its own."""
    return f"{ring}#{number}"


def owner_of(ring: str) -> tuple[str, int | None]:
    """The ring, and the number of its input if the name is that of one."""
    owner, mark, number = ring.partition("#")
    return owner, int(number) if mark else None
