"""Which queues of a node are measured, and when: one thread that looks at them every period.

Measuring everywhere costs processor time. So (`partial`) only entries are always measured; when one
is loaded, so are the queues whose output several consumers share, here and on the nodes that this
one tells. A queue that is full needs no measuring: it says so itself (`Handover`), and from then on
is measured until it is calm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.control.backup import is_entry_loaded, is_measured
from penstock.exchange.handover import Handover
from penstock.exchange.queue import Queue

PERIOD_S = 0.1
_TELL_EVERY_S = 5.0
_BELIEVED_S = 3 * _TELL_EVERY_S  # how long a loaded entry elsewhere counts without being repeated


@dataclass(frozen=True, slots=True)
class Monitored:
    queue: Queue
    handover: Handover


class Monitor:
    def __init__(
        self,
        queues: Callable[[], list[Monitored]],
        partial: bool,
        tell: Callable[[bool], None] | None,
    ) -> None:
        self._queues = queues
        self._partial = partial
        self._tell = tell
        self._entry_loaded = False
        self._believed_until_s = 0.0
        self._told_s = 0.0
        self._looks = 0
        self._cpu_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-monitor", daemon=True)
        self._thread.start()

    def told(self, loaded: bool) -> None:
        """A node with an entry says whether it is loaded."""
        self._believed_until_s = time.monotonic() + _BELIEVED_S if loaded else 0.0

    def describe(self) -> dict[str, Any]:
        return {
            "partial": self._partial,
            "entry_loaded": self._entry_loaded,
            "looks": self._looks,
            "cpu_s": self._cpu_s,
        }

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._look(time.monotonic())
            self._cpu_s = time.thread_time()

    def _look(self, now_s: float) -> None:
        queues = self._queues()
        entries = [one for one in queues if one.queue.spec.entry]
        loads = [(one.queue.spec.rules, one.handover.look(now_s).inflow) for one in entries]
        self._looks += len(entries)
        loaded = any(is_entry_loaded(self._entry_loaded, i, r.entry_load) for r, i in loads)
        self._say(loaded, now_s)
        everywhere = not self._partial
        watched = loaded or now_s < self._believed_until_s
        for one in queues:
            if one.queue.spec.entry:
                continue
            overloaded = one.handover.overloaded
            if everywhere or is_measured(False, one.queue.downstreams, watched, overloaded):
                one.handover.look(now_s)
                self._looks += 1
            else:
                one.handover.look_away()

    def _say(self, loaded: bool, now_s: float) -> None:
        """Tell other nodes when it changes, and from time to time while it lasts."""
        due = loaded != self._entry_loaded or (loaded and now_s > self._told_s + _TELL_EVERY_S)
        self._entry_loaded = loaded
        if due and self._tell is not None:
            self._told_s = now_s
            self._tell(loaded)
