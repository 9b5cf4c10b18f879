"""The directory that outlives a run: catalog, checkpoints, results. One engine at a time.

lock            held by the running engine (flock: freed by the system however the process ends)
catalog.sqlite  streams, queries, rings, epochs, counters
rings/<ring>/   Spark's checkpoint
results/<ring>/ results of queries without a sink of their own
waiting/<ring>/ results that wait for their sinks
streams/<name>/ late tuples and bad records
exchange/       queues of derived streams, and what they hand over
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from penstock.errors import WorkspaceError


class Workspace:
    """An opened workspace; without a path a temporary one, removed on close."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.temporary = path is None
        self.path = Path(tempfile.mkdtemp(prefix="penstock-") if path is None else path).absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / "lock", "a+")  # noqa: SIM115 (held until close)
        except OSError as error:
            raise WorkspaceError(
                f"cannot use {self.path} as a workspace: {error.strerror}",
                "name a directory that can be written: --workspace DIR",
            ) from None
        self._acquire()

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "another process"
            self._lock.close()
            raise WorkspaceError(
                f"workspace {self.path} is in use by {owner}",
                "stop that engine first, or give this one a workspace of its own",
            ) from None
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()}")
        self._lock.flush()

    @property
    def catalog(self) -> Path:
        return self.path / "catalog.sqlite"

    def checkpoint(self, ring: str) -> Path:
        return self.path / "rings" / ring

    def forget_checkpoint(self, ring: str) -> None:
        shutil.rmtree(self.checkpoint(ring), ignore_errors=True)
        shutil.rmtree(self.waiting(ring), ignore_errors=True)

    def forget_results(self, ring: str) -> None:
        shutil.rmtree(self.results(ring), ignore_errors=True)

    def forget_unknown(self, rings: set[str], known: set[str]) -> None:
        """Remove what a kill left behind: checkpoints of rings that never came to be or are gone,
        results that nobody can ask for. known: rings that are gone too, if queries remember them.
        """
        for folder, kept in (("rings", rings), ("waiting", rings), ("results", known)):
            for path in (self.path / folder).glob("*"):
                if path.name not in kept:
                    shutil.rmtree(path, ignore_errors=True)

    def results(self, ring: str) -> Path:
        return self.path / "results" / ring

    def waiting(self, ring: str) -> Path:
        return self.path / "waiting" / ring

    def companion(self, stream: str, kind: str) -> Path:
        """Where the tuples of `<stream>.late` or `<stream>.bad` are kept."""
        return self.path / "streams" / stream.lower() / kind

    @property
    def exchange(self) -> Path:
        return self.path / "exchange"

    def forget_companions(self, stream: str) -> None:
        """Remove what a dropped stream kept of late tuples and bad records."""
        shutil.rmtree(self.path / "streams" / stream.lower(), ignore_errors=True)

    def close(self) -> None:
        """Release the lock; a temporary workspace goes away."""
        if self._lock.closed:
            return
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()
