"""When a ring that failed, or did not start, is tried again: by what the error says, for how long.

Starts in vain are counted apart: what a ring took of them does not count when it fails later on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.control.quarantine import Patience, Restarts
from penstock.runtime.rings.failures import is_ahead, may_pass
from penstock.runtime.rings.ring import Ring

RESTARTS = Patience(first_s=0.5, longest_s=8.0, tries=5)  # for failures that may pass: 15 s in all
WHILE_MADE = Patience(first_s=0.5, longest_s=2.0, tries=200)  # what it reads: some minutes in all


class Tries:
    """stopped: nobody waits any more."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._failures = Restarts()  # of rings that ran
        self._starts = Restarts()  # in vain

    def begin(self, ring: Ring, begin: Callable[[], None]) -> None:
        """Begin, and again where what keeps a ring from starting may pass."""
        while True:
            try:
                begin()
                self._starts.forget(ring.id)
                return
            except Exception as error:
                passing = may_pass(str(error))
                retry_at_s = _retry_at(self._starts, ring, RESTARTS) if passing else None
                if retry_at_s is None or self._stopped.wait(retry_at_s - time.monotonic()):
                    raise

    def after_failure(self, ring: Ring, error: str) -> float | None:
        """When a ring that ran may be started again; None if it may not."""
        return _retry_at(self._failures, ring, WHILE_MADE if is_ahead(error) else RESTARTS)

    def forget(self, ring: str) -> None:
        self._failures.forget(ring)
        self._starts.forget(ring)


def _retry_at(failures: Restarts, ring: Ring, patience: Patience) -> float | None:
    worked = ring.dispatcher.batches
    return failures.after_failure(ring.id, worked, patience, time.monotonic()).retry_at_s
