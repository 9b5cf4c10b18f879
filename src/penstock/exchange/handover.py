"""Handing a queue's content to the backup server while it is overloaded, in a thread of its own.

The thread exists only while there is something to do: the queue is overloaded, the backup server
holds something of it, or does not answer. Until it answers again the queue blocks.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

from penstock.control.backup import (
    Acting,
    LoadFacts,
    acting_mode,
    is_overloaded,
    is_overloaded_when_full,
)
from penstock.exchange.backup import BackupStore
from penstock.exchange.failures import BackupGone, BatchTooLarge, NodeBusy
from penstock.exchange.load import AskedRates, LoadMeter
from penstock.exchange.queue import Queue

_MOST_BYTES = 16 * 1024 * 1024
_PIECES = 16  # a chunk is at least this part of the queue, unless that is nearly full
_NEARLY_FULL = 0.75
_WAIT_S = 0.1
_TRIM_EVERY_S = 0.2
_RETRY_S = (0.1, 5.0)  # first and longest pause while the backup server does not answer


class Handover:
    def __init__(self, queue: Queue, backup: BackupStore | None) -> None:
        self._queue = queue
        self._backup = backup
        self._meter = LoadMeter()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._overloaded = False
        self._answers = backup is not None
        self._trimmed = -1  # what the backup server was last told, and when
        self._trimmed_s = -math.inf
        self._backup_bytes = 0
        self._handed_bytes = 0
        self._acting: Acting = self._act()
        self._changes = 0
        self._facts = LoadFacts(0, 0.0, 0.0, ())
        self._measured = False
        self._asked = AskedRates(time.monotonic(), queue.tally())
        if queue.spec.mode == "adaptive" and backup is not None:
            queue.on_full = self._on_full
            tally = queue.tally()
            if tally.backed > tally.trimmed:
                self._ensure_thread()

    def look(self, now_s: float) -> LoadFacts:
        """Measure and decide."""
        self._facts = self._meter.measure(now_s, self._queue.tally())
        self._measured = True
        rules = self._queue.spec.rules
        if rules.mode == "adaptive" and self._backup is not None:
            self._overloaded = is_overloaded(self._overloaded, self._facts, rules)
            if self._overloaded:
                self._ensure_thread()
        self._note()
        return self._facts

    def look_away(self) -> None:
        self._meter.forget()
        self._measured = False

    @property
    def overloaded(self) -> bool:
        return self._overloaded

    def hand_over_now(self) -> int:
        """Hand over what can be, whatever the load; how many bytes went."""
        before = self._handed_bytes
        while self._backup is not None and self._hand_over(self._backup, least_bytes=0):
            pass
        self._ensure_thread()
        return self._handed_bytes - before

    def trim_now(self) -> None:
        """Have the backup server forget what all consumers are done with."""
        if self._backup is not None and self._queue.spec.mode == "adaptive":
            self._backup_bytes = self._backup.trim(self._queue.spec.id, self._queue.tally().trimmed)

    def describe(self) -> dict[str, Any]:
        inflow, trimmed = self._asked.rates(time.monotonic(), self._queue.tally)
        if self._measured:
            inflow, trimmed = self._facts.inflow, self._facts.trimmed
        return {
            "acting": self._acting,
            "mode_changes": self._changes,
            "measured": self._measured,
            "inflow_bytes_per_s": inflow,
            "trimmed_bytes_per_s": trimmed,
            "backup_answers": self._answers,
            "backup_bytes": self._backup_bytes,
            "handed_bytes": self._handed_bytes,
        }

    def close(self) -> None:
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _on_full(self) -> None:
        if is_overloaded_when_full(self._queue.spec.rules):
            self._overloaded = True
            self._ensure_thread()

    def _ensure_thread(self) -> None:
        with self._guard:
            alive = self._thread is not None and self._thread.is_alive()
            if not alive and not self._stop.is_set() and self._backup is not None:
                self._thread = threading.Thread(
                    target=self._run, args=(self._backup,), name="penstock-backup", daemon=True
                )
                self._thread.start()

    def _run(self, backup: BackupStore) -> None:
        pause_s = _RETRY_S[0]
        while not self._stop.is_set():
            try:
                handed = self._overloaded and self._hand_over(backup, self._least_bytes())
                self._trim(backup)
                self._set_answers(True)
                pause_s = _RETRY_S[0]
                if not handed:
                    if self._is_idle():
                        return
                    self._queue.wait_for_change(_WAIT_S)
            except (BackupGone, BatchTooLarge):
                self._set_answers(False)
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, _RETRY_S[1])
            except NodeBusy:  # the queue is closed
                return

    def _is_idle(self) -> bool:
        """Under the lock, so that whoever wants a thread either sees this one or starts another."""
        with self._guard:
            idle = not self._overloaded and not self._backup_bytes
            if idle:
                self._thread = None
            return idle

    def _least_bytes(self) -> int:
        capacity = self._queue.spec.capacity
        if self._queue.tally().used > _NEARLY_FULL * capacity:
            return 0
        return min(_MOST_BYTES, capacity // _PIECES)

    def _hand_over(self, backup: BackupStore, least_bytes: int) -> bool:
        chunk = self._queue.next_chunk(least_bytes, _MOST_BYTES)
        if chunk is None:
            return False
        backup.store(self._queue.spec.id, chunk)
        self._queue.backed_up(chunk.end)
        self._backup_bytes += chunk.nbytes
        self._handed_bytes += chunk.nbytes
        return True

    def _trim(self, backup: BackupStore) -> None:
        """Also the probe whether the backup server answers."""
        trimmed, now_s = self._queue.tally().trimmed, time.monotonic()
        due = trimmed != self._trimmed and now_s > self._trimmed_s + _TRIM_EVERY_S
        if due or not self._answers:
            self._backup_bytes = backup.trim(self._queue.spec.id, trimmed)
            self._trimmed, self._trimmed_s = trimmed, now_s

    def _set_answers(self, answers: bool) -> None:
        self._answers = answers
        self._note()

    def _act(self) -> Acting:
        return acting_mode(self._queue.spec.mode, self._overloaded, self._answers)

    def _note(self) -> None:
        acting = self._act()
        if acting != self._acting:
            self._acting = acting
            self._changes += 1
