"""A bounded output queue of Arrow record batches, in files, for several consumers.

What is answered is in the log before the answer is given, so it survives kill −9. A commit also
flushes to the disk, with all appends before it: that is when an upstream forgets a micro-batch.
Acknowledgements are flushed with the next commit; one that a power cut takes is just given again.
Files go only after the acknowledgement that allows it is on the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.control.backup import handover_end, when_full
from penstock.exchange.backup import Chunk
from penstock.exchange.failures import (
    BatchIncomplete,
    BatchTooLarge,
    DiskFailed,
    NodeBusy,
    PositionAhead,
    PositionGone,
    QueueFull,
    Refused,
)
from penstock.exchange.figures import Counts, Receipt, Tally
from penstock.exchange.frames import Frame, checksum, encode_frame
from penstock.exchange.segments import SegmentLog
from penstock.exchange.spec import QueueSpec
from penstock.exchange.state import ENTRY_BYTES, Consumer, Held, Key, QueueState, Record

_SEGMENTS = 8  # of a full queue
_LEAST_SEGMENT = 1 << 20


class Queue:
    """on_full is called, with the queue's lock held, when an append has to wait."""

    def __init__(self, directory: Path, spec: QueueSpec) -> None:
        self.spec = spec
        self.counts = Counts()
        self.on_full: Callable[[], None] = lambda: None
        self._log = SegmentLog(directory)
        self._state = QueueState()
        self._changed = threading.Condition()
        self._reserved = 0
        self._closed = False
        self._segment_bytes = max(_LEAST_SEGMENT, spec.capacity // _SEGMENTS)
        self._recover(directory)

    def _recover(self, directory: Path) -> None:
        known = False
        for place, frame in self._log.recover():
            if frame.header["kind"] != "state":
                self._state.apply(frame.header, place)
            elif not known:
                self._state.restore(frame.header)
                known = True
        if not known:
            raise DiskFailed(f"{directory} holds no queue that can be read")

    @contextmanager
    def room(self, key: Key, nbytes: int, wait_s: float) -> Iterator[None]:
        """Hold room for an append while its data comes; wait for it if the queue is full."""
        need = self._reserve(key, nbytes, time.monotonic() + wait_s)
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= need
                self._changed.notify_all()

    def _reserve(self, key: Key, nbytes: int, deadline: float) -> int:
        with self._changed:
            waiting = False
            while True:
                self._check_open()
                need = self._need(key, nbytes)
                if when_full(self.spec.mode) == "lose" or self._has_room(need):
                    self._reserved += need
                    return need
                self._check_size(key, nbytes)
                if not waiting:
                    waiting, self.counts.full = True, self.counts.full + 1
                    self.on_full()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise QueueFull(
                        f"queue {self.spec.name} is full: {self._state.used:,} of "
                        f"{self.spec.capacity:,} bytes",
                        "a consumer is slow or gone; try again, or unregister it",
                    )
                self._changed.wait(left)

    def _need(self, key: Key, nbytes: int) -> int:
        if self._is_committed(key.ring, key.batch):
            return 0
        known = self._state.staged.get(key)
        return max(0, nbytes + ENTRY_BYTES - (0 if known is None else known.charge))

    def _has_room(self, need: int) -> bool:
        return self._state.used + self._reserved + need <= self.spec.capacity

    def _check_size(self, key: Key, nbytes: int) -> None:
        """Nobody takes what is not committed: such a batch would wait for ever."""
        staged = self._state.staged.items()
        others = [e.charge for k, e in staged if k[:2] == key[:2] and k != key]
        if sum(others) + nbytes + ENTRY_BYTES > self.spec.capacity:
            raise BatchTooLarge(
                f"batch {key.batch} of ring {key.ring} is larger than queue {self.spec.name} "
                f"({self.spec.capacity:,} bytes)",
                "make the queue larger, or read less per micro-batch",
            )

    def append(self, key: Key, messages: Sequence[memoryview], rows: int, last: bool) -> Receipt:
        """Stage a piece; one that is here already changes nothing.

        Before its commit, other content under the same key replaces it: the micro-batch runs again,
        in other partitions than before.
        """
        crc, nbytes = checksum(messages), sum(len(m) for m in messages)
        with self._changed:
            self._check_open()
            if self._is_committed(key.ring, key.batch):
                self.counts.repeated += 1
                return Receipt(True, *self._range(key.ring, key.batch))
            known = self._state.staged.get(key)
            if known is not None and (known.crc, known.last) == (crc, last):
                self.counts.repeated += 1
                return Receipt(True)
            record: Record = {
                "kind": "put",
                "key": key,
                "batches": len(messages),
                "rows": rows,
                "nbytes": nbytes,
                "last": last,
                "crc": crc,
                "lengths": [len(m) for m in messages],
            }
            need = self._need(key, nbytes)
            if when_full(self.spec.mode) == "lose" and self._state.used + need > self.spec.capacity:
                messages = ()
                record |= {"batches": 0, "rows": 0, "nbytes": 0, "lengths": [], "lost": rows}
                self.counts.full += 1
            self._write(record, messages)
            self.counts.appended_bytes += nbytes
            self.counts.appended_rows += rows
            return Receipt(False)

    def commit(self, ring: str, batch: int, partitions: int) -> dict[str, Any]:
        """Make a batch visible: all its partitions, in their order, at once."""
        with self._changed:
            self._check_open()
            if not self._is_committed(ring, batch):
                if missing := self._state.missing(ring, batch, partitions):
                    raise BatchIncomplete(
                        f"batch {batch} of ring {ring} lacks partitions {missing[:10]} of "
                        f"{partitions}"
                    )
                self._write(self._state.commit_record(ring, batch, partitions), sync=True)
            first, end = self._range(ring, batch)
            return {"first": first, "end": end, "safe": self._state.safe_batch(ring)}

    def abandon(self, ring: str) -> None:
        """Forget what a ring delivered and did not commit."""
        with self._changed:
            self._check_open()
            if any(key.ring == ring for key in self._state.staged):
                self._write({"kind": "abandon", "ring": ring})

    def register(self, consumer: str, start: str | int) -> Consumer:
        """Keep tuples for a consumer from now on; for a known one, from where it is."""
        with self._changed:
            self._check_open()
            state = self._state
            if consumer not in state.consumers:
                named = {"earliest": state.trimmed, "latest": state.end}
                position = named[start] if isinstance(start, str) else start
                self._check_kept(position)
                record = {"kind": "register", "consumer": consumer, "position": position}
                self._write(record, sync=True)
            known = state.consumers[consumer]
            return Consumer(known.delivered, known.safe)

    def unregister(self, consumer: str) -> None:
        with self._changed:
            self._check_open()
            if consumer in self._state.consumers:
                self._write({"kind": "unregister", "consumer": consumer}, sync=True)

    def acknowledge(self, consumer: str, position: int, level: int) -> int:
        """Level 0: received up to here; level 1: done with. Returns where the queue begins now."""
        with self._changed:
            self._check_open()
            known = self._state.consumers.get(consumer)
            if known is None:
                raise Refused(f"{consumer} is not registered with queue {self.spec.name}")
            if position > max(self._state.end, known.delivered):
                raise Refused(f"{consumer} acknowledges {position}, beyond queue {self.spec.name}")
            if position > (known.delivered if level == 0 else known.safe):
                record = {"kind": "ack", "consumer": consumer, "position": position, "level": level}
                self._write(record)
            return self._state.trimmed

    def _write(
        self, record: Record, payload: Sequence[memoryview] = (), sync: bool = False
    ) -> None:
        place = self._log.append(record, payload, sync)
        self._state.apply(record, place)
        with suppress(DiskFailed):  # the record is in the log; a file more or less can wait
            if self._log.last_bytes > self._segment_bytes:
                self._log.begin_segment(self._state.snapshot())
                self._move_staged()
            self._log.remove_before(self._state.oldest_segment(self._log.last))
        self._changed.notify_all()

    def _move_staged(self) -> None:
        """Appends that are never committed must not keep all files that come after them."""
        oldest = self._log.first
        if self._log.last - oldest <= 2 * _SEGMENTS:
            return
        for entry in [e for e in self._state.staged.values() if e.place.segment == oldest]:
            frame = self._log.read(entry.place)
            record = {**frame.header, "moved": True}
            self._state.apply(record, self._log.append(record, [frame.payload]))

    def next_end(self, start: int, most: int) -> int:
        """Up to where to read on from a position: whole batches, about so many positions at most.

        Where the queue ends, if that is not behind the start.
        """
        with self._changed:
            self._check_open()
            ends = self._state.ends_after(start)
            fitting = [end for end in ends if end <= start + most]
            return max(fitting, default=min(ends, default=min(start, self._state.end)))

    def check_range(self, start: int, end: int) -> None:
        with self._changed:
            self._check_open()
            self._check_kept(start)
            if start > end:
                raise Refused(f"[{start}, {end}) is not a range of queue {self.spec.name}")
            if end > self._state.end:
                raise PositionAhead(
                    f"[{start}, {end}) of queue {self.spec.name} is not there yet: it ends at "
                    f"{self._state.end}"
                )

    def frame_at(self, position: int) -> tuple[int, Frame] | None:
        """The frame that holds a position, and its first one; None if the backup has it."""
        with self._changed:
            self._check_open()
            held = self._state.held_at(position)
            if held is not None:
                return held.first, self._log.read(held.place)
            self._check_kept(position)
            return None

    def next_chunk(self, least_bytes: int, most_bytes: int) -> Chunk | None:
        """What goes to the backup server next: received by the fastest consumer, needed by some."""
        with self._changed:
            self._check_open()
            state = self._state
            until = handover_end(state.backed, [c.delivered for c in state.consumers.values()])
            ready: list[Held] = []
            nbytes = 0
            for held in state.held:
                if held.end > until or nbytes >= most_bytes:
                    break
                ready.append(held)
                nbytes += held.nbytes
            if not ready or nbytes < least_bytes:
                return None
            frames = tuple(self._backup_frame(held) for held in ready)
            return Chunk(ready[0].first, ready[-1].end, frames)

    def _backup_frame(self, held: Held) -> bytes:
        frame = self._log.read(held.place)
        header = {"first": held.first, "lengths": frame.header["lengths"]}
        return b"".join(encode_frame(header, [frame.payload]))

    def backed_up(self, position: int) -> None:
        """The backup server has confirmed everything below."""
        with self._changed:
            self._check_open()
            if position > self._state.backed:
                self._write({"kind": "backed", "position": position}, sync=True)

    def wait_for_change(self, timeout_s: float) -> None:
        with self._changed:
            if not self._closed:
                self._changed.wait(timeout_s)

    @property
    def downstreams(self) -> int:
        return len(self._state.consumers)

    def tally(self) -> Tally:
        with self._changed:
            state = self._state
            return Tally(
                state.used,
                self.counts.appended_bytes,
                state.trimmed_bytes,
                {name: (c.delivered, c.safe) for name, c in state.consumers.items()},
                state.trimmed,
                state.backed,
            )

    def describe(self) -> dict[str, Any]:
        """Figures of now, all of one moment."""
        with self._changed:
            state = self._state
            return {
                "first": state.trimmed,
                "end": state.end,
                "kept_from": state.backed,
                "used_bytes": state.used,
                "disk_bytes": self._log.disk_bytes,
                "staged": len(state.staged),
                "lost_rows": state.lost_rows,
                "consumers": {name: asdict(c) for name, c in state.consumers.items()},
                "rings": {
                    ring: {"last": c.last, "safe": state.safe_batch(ring)}
                    for ring, c in state.rings.items()
                },
                **asdict(self.counts),
            }

    def close(self) -> None:
        """Whoever waits gets an error; the files can be opened again."""
        with self._changed:
            if not self._closed:
                self._closed = True
                self._log.close()
                self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise NodeBusy(f"queue {self.spec.name} is being closed")

    def _check_kept(self, position: int) -> None:
        if position < self._state.trimmed:
            raise PositionGone(
                f"queue {self.spec.name} begins at {self._state.trimmed}: {position} was "
                "acknowledged by all consumers"
            )

    def _is_committed(self, ring: str, batch: int) -> bool:
        known = self._state.rings.get(ring)
        return known is not None and batch <= known.last

    def _range(self, ring: str, batch: int) -> tuple[int | None, int | None]:
        """The positions of a committed batch; unknown if all are done with it for long."""
        return self._state.rings[ring].ranges.get(batch, (None, None))
