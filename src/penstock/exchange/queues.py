"""The queues of one node and what can be asked of them, without the network.

<directory>/lock      held by the running node
<directory>/queues/   one directory per queue
<directory>/backups/  what other nodes have handed over
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import WorkspaceError
from penstock.exchange import wire
from penstock.exchange.backup import BackupStore, DirectoryBackup
from penstock.exchange.failures import ExchangeError, QueueLost, QueueUnknown, Refused
from penstock.exchange.handover import Handover
from penstock.exchange.monitor import Monitor, Monitored
from penstock.exchange.queue import Queue
from penstock.exchange.reading import read_batches
from penstock.exchange.spec import (
    QueueSpec,
    check_name,
    make_directory,
    remove_directory,
    spec_from,
    specs_in,
)
from penstock.exchange.state import first_record
from penstock.exchange.teller import Teller
from penstock.exchange.wire import Message, QueueRef

DEFAULT_BACKUP_BYTES = 16 * 1024**3
MOST_QUEUES = 1000


@dataclass(frozen=True, slots=True)
class Open:
    queue: Queue
    handover: Handover
    backup: BackupStore | None


class Queues:
    """All queues of a directory, opened; the lock is freed by the system however we end.

    wait: until the node that has the directory has ended.
    """

    def __init__(
        self,
        directory: Path,
        backup: BackupStore | None = None,
        backup_limit: int = DEFAULT_BACKUP_BYTES,
        partial: bool = True,
        teller: Teller | None = None,
        backup_of: Callable[[str], BackupStore] | None = None,
        wait: bool = False,
    ) -> None:
        self._backup_of = backup_of
        self._named_backups: dict[str, BackupStore] = {}
        self._parent = directory / "queues"
        self._lock = _locked(directory, wait)
        self._parent.mkdir(exist_ok=True)
        self._backup = backup
        self.backups = DirectoryBackup(directory / "backups", backup_limit)
        self._guard = threading.RLock()
        self._open: dict[str, Open] = {}
        try:
            for spec in specs_in(self._parent):
                self._take_up(Queue(self._parent / spec.name, spec))
        except ExchangeError:
            self.close()
            raise
        self._teller = teller
        self.monitor = Monitor(self._monitored, partial, teller)

    def calls(self) -> dict[str, Callable[[Message], dict[str, Any]]]:
        """What clients may ask, by name."""
        return {
            "create": self._create,
            "open": lambda m: self._named(check_name(m.get("queue"))).queue.spec.plain(),
            "drop": self._drop,
            "commit": self._commit,
            "abandon": self._abandon,
            "register": self._register,
            "unregister": self._unregister,
            "ack": self._acknowledge,
            "describe": lambda m: _describe(self._find(wire.queue_ref(m))),
            "next": self._next_end,
            "trim": self._trim,
            "backup": self._hand_over,
            "stats": lambda _: self.stats(),
            "measure": self._measure,
            "tell": self._tell,
            "backup_trim": self._trim_backup,
        }

    def _take_up(self, queue: Queue) -> Open:
        backup = self._backup_for(queue.spec)
        opened = Open(queue, Handover(queue, backup), backup)
        self._open[queue.spec.name] = opened
        return opened

    def _backup_for(self, spec: QueueSpec) -> BackupStore | None:
        if not spec.backup:
            return self._backup
        if self._backup_of is None:
            raise Refused("this node has no backup servers for single queues")
        with self._guard:
            if spec.backup not in self._named_backups:
                self._named_backups[spec.backup] = self._backup_of(spec.backup)
            return self._named_backups[spec.backup]

    def find(self, ref: QueueRef) -> Queue:
        return self._find(ref).queue

    def _find(self, ref: QueueRef) -> Open:
        """The queue that is meant; one of the same name that was made later is another."""
        with self._guard:
            opened = self._open.get(ref.name)
        if opened is None or opened.queue.spec.incarnation != ref.incarnation:
            raise QueueLost(
                f"queue {ref.name} is not on this node any more: it was dropped, or lost with the "
                "node's directory",
                "create it again after the last batch that all consumers acknowledged, and replay",
            )
        return opened

    def _named(self, name: str) -> Open:
        with self._guard:
            if name not in self._open:
                raise QueueUnknown(f"there is no queue {name} on this node")
            return self._open[name]

    def _create(self, message: Message) -> dict[str, Any]:
        """Make a queue; one that is here already and asks for the same is given back."""
        spec = spec_from(message)
        position = wire.number(message, "position") if "position" in message else 0
        first = first_record(position, wire.batches_of(message))
        with self._guard:
            known = self._open.get(spec.name)
            if known is None:
                if len(self._open) >= MOST_QUEUES:
                    raise Refused(f"a node has at most {MOST_QUEUES} queues")
                self._backup_for(spec)
                spec = make_directory(self._parent, spec, first)
                known = self._take_up(Queue(self._parent / spec.name, spec))
                if known.backup is not None:  # of a queue that was lost
                    _quietly(known.backup, known.queue)
            elif not spec.asks_the_same_as(known.queue.spec):
                raise Refused(
                    f"queue {spec.name} is here already, with another schema or other options",
                    "drop it first, or give this one another name",
                )
            return known.queue.spec.plain()

    def _drop(self, message: Message) -> dict[str, Any]:
        ref = wire.queue_ref(message)
        with self._guard:
            opened = self._open.get(ref.name)
            if opened is not None and opened.queue.spec.incarnation == ref.incarnation:
                self.remove(ref.name)
        return {}

    def names(self) -> set[str]:
        with self._guard:
            return set(self._open)

    def remove(self, name: str) -> None:
        """Drop a queue, and what its backup server has of it."""
        with self._guard:
            opened = self._open.pop(name)
            opened.handover.close()
            opened.queue.close()
            remove_directory(self._parent, name)
            if opened.backup is not None and opened.queue.spec.mode == "adaptive":
                _quietly(opened.backup, opened.queue)

    def _commit(self, message: Message) -> dict[str, Any]:
        queue = self.find(wire.queue_ref(message))
        ring, batch = check_name(message.get("ring")), wire.number(message, "batch")
        return queue.commit(ring, batch, wire.number(message, "partitions", 1_000_000))

    def _abandon(self, message: Message) -> dict[str, Any]:
        self.find(wire.queue_ref(message)).abandon(check_name(message.get("ring")))
        return {}

    def _register(self, message: Message) -> dict[str, Any]:
        queue = self.find(wire.queue_ref(message))
        consumer = check_name(message.get("consumer"))
        return asdict(queue.register(consumer, wire.start_of(message)))

    def _unregister(self, message: Message) -> dict[str, Any]:
        queue = self.find(wire.queue_ref(message))
        queue.unregister(check_name(message.get("consumer")))
        return {}

    def _acknowledge(self, message: Message) -> dict[str, Any]:
        queue = self.find(wire.queue_ref(message))
        consumer, position = check_name(message.get("consumer")), wire.number(message, "position")
        level = wire.number(message, "level", 1)
        return {"first": queue.acknowledge(consumer, position, level)}

    def _next_end(self, message: Message) -> dict[str, Any]:
        queue = self.find(wire.queue_ref(message))
        start, most = wire.number(message, "start"), wire.number(message, "most")
        return {"end": queue.next_end(start, most)}

    def _trim(self, message: Message) -> dict[str, Any]:
        """Queues trim with every acknowledgement, their backups some time later, or now."""
        opened = self._find(wire.queue_ref(message))
        opened.handover.trim_now()
        return {"first": opened.queue.tally().trimmed}

    def _hand_over(self, message: Message) -> dict[str, Any]:
        return {"bytes": self._find(wire.queue_ref(message)).handover.hand_over_now()}

    def _measure(self, message: Message) -> dict[str, Any]:
        self.monitor.told(wire.flag(message, "on"))
        return {}

    def _tell(self, message: Message) -> dict[str, Any]:
        """Another node wants to know when an entry here is loaded."""
        if self._teller is None:
            raise Refused("this node tells others nothing")
        self._teller.add(message.get("uri"))
        return {}

    def _trim_backup(self, message: Message) -> dict[str, Any]:
        position = wire.number(message, "position")
        return {"bytes": self.backups.trim(str(message.get("id")), position)}

    def read(self, ref: QueueRef, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        opened = self._find(ref)
        opened.queue.check_range(start, end)
        return read_batches(opened.queue, opened.backup, start, end)

    def _monitored(self) -> list[Monitored]:
        with self._guard:
            return [Monitored(o.queue, o.handover) for o in self._open.values()]

    def stats(self) -> dict[str, Any]:
        with self._guard:
            opened = dict(self._open)
        return {
            "queues": {name: _describe(o) for name, o in opened.items()},
            "backups_bytes": self.backups.total_bytes,
            "monitor": self.monitor.describe(),
            "tells": [] if self._teller is None else self._teller.uris,
            "process_cpu_s": time.process_time(),
        }

    def close(self) -> None:
        """Stop everything and free the directory; whoever waits gets an error."""
        if hasattr(self, "monitor"):
            self.monitor.close()
        with self._guard:
            opened = list(self._open.values())
            self._open.clear()
        for one in opened:
            one.queue.close()
            one.handover.close()
        os.close(self._lock)


def _describe(opened: Open) -> dict[str, Any]:
    return {
        "mode": opened.queue.spec.mode,
        "capacity": opened.queue.spec.capacity,
        **opened.queue.describe(),
        **opened.handover.describe(),
    }


def _quietly(backup: BackupStore, queue: Queue) -> None:
    """Remove a dropped queue's backup, if its server answers."""
    with suppress(ExchangeError):
        backup.trim(queue.spec.id, wire.MOST)


def _locked(directory: Path, wait: bool) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WorkspaceError(
            f"cannot use {directory} for a node: {error.strerror}",
            "name a directory that can be written",
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(lock)
        raise WorkspaceError(
            f"{directory} is in use by another node", "give each node a directory of its own"
        ) from None
    return lock
