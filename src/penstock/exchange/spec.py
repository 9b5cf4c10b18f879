"""What a queue is told when it is made, checked; and how its directory comes to be."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.control.backup import MODES, TRIGGERS, BackupRules, Mode, Trigger
from penstock.exchange.failures import DiskFailed, Refused
from penstock.exchange.segments import SegmentLog, sync_directory, write_whole

DEFAULT_CAPACITY = 64 * 1024 * 1024
LARGEST_CAPACITY = 1 << 40
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.#-]{0,99}")
_INCARNATION = re.compile(r"[0-9a-f]{0,64}")
_META = "queue.json"
_LONGEST_URI = 1000


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """incarnation: another one for each queue that is made, so that a lost one is not mistaken.

    entry: tuples enter the network of queues here, so that its load is always measured. backup:
    where its backup server is; empty: the node's own.
    """

    name: str
    schema: pa.Schema
    mode: Mode = "adaptive"
    capacity: int = DEFAULT_CAPACITY
    trigger: Trigger = "overflow"
    entry: bool = False
    incarnation: str = ""
    backup: str = ""

    @property
    def id(self) -> str:
        """Names the queue wherever its backup lies."""
        return f"{self.name}-{self.incarnation}"

    @property
    def rules(self) -> BackupRules:
        return BackupRules(self.mode, self.capacity, self.trigger)

    def plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "mode": self.mode,
            "capacity": self.capacity,
            "trigger": self.trigger,
            "entry": self.entry,
            "incarnation": self.incarnation,
            "backup": self.backup,
        }

    def asks_the_same_as(self, other: QueueSpec) -> bool:
        return replace(self, incarnation=other.incarnation) == other


def spec_from(message: Mapping[str, Any]) -> QueueSpec:
    """A spec as it travels; whatever is wrong with it is said."""
    name, capacity = message.get("name"), message.get("capacity", DEFAULT_CAPACITY)
    mode, trigger = message.get("mode", "adaptive"), message.get("trigger", "overflow")
    incarnation, entry = message.get("incarnation", ""), message.get("entry", False)
    backup = message.get("backup", "")
    check_name(name)
    if mode not in MODES:
        raise Refused(f"mode {mode} is not known", f"modes: {', '.join(MODES)}")
    if trigger not in TRIGGERS:
        raise Refused(f"trigger {trigger} is not known", f"triggers: {', '.join(TRIGGERS)}")
    if type(capacity) is not int or not 0 < capacity <= LARGEST_CAPACITY:
        raise Refused(f"capacity {capacity} is not a number of bytes")
    if type(entry) is not bool:
        raise Refused("entry is true or false")
    if not isinstance(incarnation, str) or not _INCARNATION.fullmatch(incarnation):
        raise Refused("the queue's incarnation is not one")
    if not isinstance(backup, str) or len(backup) > _LONGEST_URI:
        raise Refused("the backup server is not a text", "write grpc://host:port or a directory")
    schema = _schema_from(message.get("schema"))
    return QueueSpec(str(name), schema, mode, capacity, trigger, entry, incarnation, backup)


def _schema_from(text: object) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(str(text), validate=True)))
    except (ValueError, pa.ArrowException, EOFError, OSError):
        raise Refused("the queue's schema cannot be read") from None
    for column in schema:
        if _has_dictionary(column.type):
            raise Refused(f"column {column.name} is dictionary-encoded", "decode it first")
    return schema


def _has_dictionary(type_: pa.DataType) -> bool:
    inner = [type_.field(i).type for i in range(type_.num_fields)]
    return pa.types.is_dictionary(type_) or any(_has_dictionary(t) for t in inner)


def check_name(name: object) -> str:
    """Names of queues, rings and consumers; those of queues are also names of directories."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused(f"{name!r:.120} is not a name", "letters, digits, _ . # -; at most 100")
    return name


def make_directory(parent: Path, spec: QueueSpec, first: dict[str, Any]) -> QueueSpec:
    """The directory of a new queue, whole or not at all; `first` is the first frame of its log."""
    spec = replace(spec, incarnation=spec.incarnation or secrets.token_hex(8))
    beside = parent / f".{spec.name}.new"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(parents=True)
        write_whole(beside / _META, [json.dumps(spec.plain()).encode()])
        log = SegmentLog(beside)
        log.begin_segment(first)
        log.close()
        os.rename(beside, parent / spec.name)
        sync_directory(parent)
    except OSError as error:
        raise DiskFailed(f"cannot make queue {spec.name}: {error.strerror}") from None
    return spec


def remove_directory(parent: Path, name: str) -> None:
    gone = parent / f".{name}.gone"
    shutil.rmtree(gone, ignore_errors=True)
    (parent / name).rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def specs_in(parent: Path) -> list[QueueSpec]:
    """The queues of a directory; what was half made or half removed goes."""
    for leftover in parent.glob(".*"):
        shutil.rmtree(leftover, ignore_errors=True)
    found = []
    for path in sorted(parent.glob(f"*/{_META}")):
        try:
            found.append(spec_from(json.loads(path.read_bytes())))
        except (OSError, ValueError, Refused) as error:
            raise DiskFailed(f"{path} cannot be read: {error}") from None
    return found
