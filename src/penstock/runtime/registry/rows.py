"""Rows of the catalog's tables, and the names of their columns."""

from __future__ import annotations

from dataclasses import dataclass, fields

REPLAY = 1  # a ring that reads the source from its beginning
ALONE = 2  # one that feeds a derived stream
INPUT = "input"  # state of a ring's row that is not a ring: an input of a join


@dataclass(frozen=True, slots=True)
class RingRow:
    id: str
    stream: str
    composition: str
    outputs: str
    state: str
    error: str | None
    replay: int  # REPLAY or ALONE: shared with nobody; 0: shared


@dataclass(frozen=True, slots=True)
class QueryRow:
    slot: int
    name: str
    text: str
    ring: str
    state: str
    error: str | None
    spec: str
    sink: str
    added: int
    dropped: int | None
    rows: int
    last_batch: int
    late: int
    lost: int
    columns: str  # which of the ring's it shows; empty: all, as they are


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The queue of a derived stream; last_batch: the last micro-batch of its ring that is in it;
    safe_…: the last one that all consumers are done with, and the position at its end."""

    stream: str
    name: str
    incarnation: str
    last_batch: int | None = None
    safe_batch: int | None = None
    safe_position: int | None = None


@dataclass(frozen=True, slots=True)
class EpochRow:
    ring: str
    number: int
    version: int
    punctuation_us: int
    clock_us: int | None
    work: str


# columns in the order of the row classes
QUERY = ", ".join(f.name for f in fields(QueryRow))
EPOCH = ", ".join(f.name for f in fields(EpochRow))
QUEUE = ", ".join(f.name for f in fields(QueueRow))
RING = ", ".join(f.name for f in fields(RingRow))
# rings of a stream ?1 and of its companions
OF_STREAM = "stream = ?1 OR substr(stream, 1, length(?1) + 1) = ?1 || '.' COLLATE NOCASE"
# the ring of a row of `rings`: itself, or the one that an input belongs to
OWNER = "substr(id, 1, instr(id || '#', '#') - 1)"
