"""What a queue knows, as a fold over the records of its log: no files, no clock, no threads.

A running queue and one that recovers apply the same records, so that they cannot differ. Appends
are *staged* by (ring, batch, partition, piece) and have no position. The commit of a batch gives
its pieces consecutive positions in the order of partitions: whatever the order in which tasks
deliver, the same batch gets the same positions, also when it is replayed into a new queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from penstock.control.backup import trim_end
from penstock.exchange.segments import Place

ENTRY_BYTES = 256  # what a piece counts at least: the index has room for it, too

Record = dict[str, Any]


class Key(NamedTuple):
    """A piece of what one task delivers of one micro-batch."""

    ring: str
    batch: int
    partition: int
    piece: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A piece: Arrow batches in one frame. last: of its partition; crc: of the payload."""

    place: Place
    batches: int
    rows: int
    nbytes: int
    last: bool = True
    crc: int = 0

    @property
    def charge(self) -> int:
        return self.nbytes + ENTRY_BYTES


@dataclass(frozen=True, slots=True)
class Held(Entry):
    """A committed piece: positions [first, first + batches)."""

    first: int = 0

    @property
    def end(self) -> int:
        return self.first + self.batches


@dataclass(slots=True)
class Consumer:
    """Positions below `delivered` were received (level 0), below `safe` are done with (level 1)."""

    delivered: int
    safe: int


@dataclass(slots=True)
class Committed:
    """The positions of the batches of a ring that somebody may still ask about, by batch."""

    last: int
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)


class QueueState:
    def __init__(self) -> None:
        self.end = 0
        self.trimmed = 0
        self.backed = 0  # positions below are not in the log: with the backup server, or trimmed
        self.lost_rows = 0
        self.consumers: dict[str, Consumer] = {}
        self.rings: dict[str, Committed] = {}
        self.staged: dict[Key, Entry] = {}
        self.held: list[Held] = []
        self.used = 0  # bytes of staged and held
        self._frames: Counter[int] = Counter()  # staged and held, by file
        self.trimmed_bytes = 0  # that left the log by trimming, since it was opened

    def snapshot(self) -> Record:
        """All that is not in frames that are still in the log."""
        return {
            "kind": "state",
            "end": self.end,
            "trimmed": self.trimmed,
            "backed": self.backed,
            "lost_rows": self.lost_rows,
            "consumers": {name: asdict(c) for name, c in self.consumers.items()},
            "rings": {
                ring: {"last": c.last, "ranges": [[b, *r] for b, r in c.ranges.items()]}
                for ring, c in self.rings.items()
            },
        }

    def restore(self, record: Record) -> None:
        self.end, self.trimmed = record["end"], record["trimmed"]
        self.backed, self.lost_rows = record["backed"], record["lost_rows"]
        self.consumers = {name: Consumer(**c) for name, c in record["consumers"].items()}
        self.rings = {
            ring: Committed(c["last"], {b: (first, end) for b, first, end in c["ranges"]})
            for ring, c in record["rings"].items()
        }

    def apply(self, record: Record, place: Place) -> None:
        """Take one record of the log; `place` is where it lies."""
        match record["kind"]:
            case "put":
                self._stage(record, place)
            case "commit":
                self._commit(record)
            case "register":
                position = record["position"]
                self.consumers.setdefault(record["consumer"], Consumer(position, position))
            case "unregister":
                self.consumers.pop(record["consumer"], None)
            case "ack":
                self._acknowledge(record)
            case "abandon":
                self._unstage([k for k in self.staged if k.ring == record["ring"]])
            case "backed":
                self._release(max(self.backed, record["position"]))
        if record["kind"] in ("commit", "register", "unregister", "ack"):
            self._trim()

    def _stage(self, record: Record, place: Place) -> None:
        key = Key(*record["key"])
        entry = Entry(
            place,
            record["batches"],
            record["rows"],
            record["nbytes"],
            record["last"],
            record["crc"],
        )
        self._unstage([key] if key in self.staged else [])
        self.staged[key] = entry
        self._count(entry, 1)
        if not record.get("moved"):
            self.lost_rows += record.get("lost", 0)

    def _unstage(self, keys: list[Key]) -> None:
        for key in keys:
            self._count(self.staged.pop(key), -1)

    def _count(self, entry: Entry, change: int) -> None:
        self.used += change * entry.charge
        self._frames[entry.place.segment] += change
        if not self._frames[entry.place.segment]:
            del self._frames[entry.place.segment]

    def missing(self, ring: str, batch: int, partitions: int) -> list[int]:
        """Partitions of which not all pieces are staged."""
        return [p for p in range(partitions) if not self._pieces(ring, batch, p)]

    def commit_record(self, ring: str, batch: int, partitions: int) -> Record:
        """The record says where the pieces lie: their own frames may go before it does."""
        entries = [e for p in range(partitions) for e in self._pieces(ring, batch, p)]
        listed = [[*asdict(e.place).values(), e.batches, e.rows, e.nbytes] for e in entries]
        return {"kind": "commit", "ring": ring, "batch": batch, "entries": listed}

    def _pieces(self, ring: str, batch: int, partition: int) -> list[Entry]:
        """All pieces in order; none if some are missing."""
        found: list[Entry] = []
        while (entry := self.staged.get(Key(ring, batch, partition, len(found)))) is not None:
            found.append(entry)
            if entry.last:
                return found
        return []

    def _commit(self, record: Record) -> None:
        ring, batch, first = record["ring"], record["batch"], self.end
        self._unstage([k for k in self.staged if k.ring == ring and k.batch <= batch])
        for segment, offset, length, batches, rows, nbytes in record["entries"]:
            place = Place(segment, offset, length)
            held = Held(place, batches, rows, nbytes, first=self.end)
            if batches:
                self.held.append(held)
                self._count(held, 1)
            self.end += batches
        committed = self.rings.setdefault(ring, Committed(batch))
        committed.last = batch
        committed.ranges[batch] = (first, self.end)

    def _acknowledge(self, record: Record) -> None:
        consumer = self.consumers[record["consumer"]]
        consumer.delivered = max(consumer.delivered, record["position"])
        if record["level"] == 1:
            consumer.safe = max(consumer.safe, record["position"])

    def _trim(self) -> None:
        safe = [consumer.safe for consumer in self.consumers.values()]
        self.trimmed = trim_end(self.trimmed, safe, self.end)
        self.trimmed_bytes += self._release(max(self.backed, self._whole_below(self.trimmed)))
        for committed in self.rings.values():
            done = [b for b, (_, end) in committed.ranges.items() if end <= self.trimmed]
            for batch in done[:-1]:
                del committed.ranges[batch]

    def _whole_below(self, position: int) -> int:
        """The end of the last piece of which all positions are below; pieces go as a whole."""
        if position >= self.end:
            return self.end
        at = bisect_right(self.held, position, key=lambda held: held.end)
        return self.held[at - 1].end if at else self.backed

    def _release(self, position: int) -> int:
        """Forget the pieces below; how many bytes they were."""
        self.backed = position
        gone = bisect_right(self.held, position, key=lambda held: held.end)
        freed = sum(held.charge for held in self.held[:gone])
        for held in self.held[:gone]:
            self._count(held, -1)
        del self.held[:gone]
        return freed

    def held_at(self, position: int) -> Held | None:
        """The piece in the log that holds a position."""
        at = bisect_right(self.held, position, key=lambda held: held.end)
        return self.held[at] if at < len(self.held) and self.held[at].first <= position else None

    def ends_after(self, position: int) -> list[int]:
        """Where batches end that are not before a position."""
        ranges = [r for committed in self.rings.values() for r in committed.ranges.values()]
        return [end for _, end in ranges if end > position]

    def safe_batch(self, ring: str) -> tuple[int, int] | None:
        """The last batch of the ring that all consumers are done with, and where it ends."""
        committed = self.rings.get(ring)
        ranges = {} if committed is None else committed.ranges
        done = [(b, end) for b, (_, end) in ranges.items() if end <= self.trimmed]
        return max(done, default=None)

    def oldest_segment(self, last: int) -> int:
        """The first file that is needed."""
        return min(self._frames, default=last)


def first_record(position: int, rings: Mapping[str, int]) -> Record:
    """The state of a new queue: it begins at a position, after these batches of rings."""
    state = QueueState()
    state.end = state.trimmed = state.backed = position
    ranges = {ring: {batch: (position, position)} for ring, batch in rings.items()}
    state.rings = {ring: Committed(batch, ranges[ring]) for ring, batch in rings.items()}
    return state.snapshot()
