"""Spark's checkpoints as files: copied, and rid of what may contradict them."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

from penstock.errors import EngineError

_ATTEMPTS = 5


def clear_leftovers(checkpoint: Path) -> None:
    """Remove what a query that was stopped or killed may have left half done, before it starts.

    Hadoop's own checksums: a file and its checksum are replaced one after the other; between the
    two there is a file that can never be read again. Spark has checksums of its own. And what was
    being written to Spark's logs: where that was the very first entry, Spark would take the
    checkpoint for that of another query.
    """
    for path in checkpoint.rglob(".*.crc"):
        path.unlink(missing_ok=True)
    for log in ("offsets", "commits"):
        for path in (checkpoint / log).glob(".*.tmp"):
            path.unlink(missing_ok=True)


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy the checkpoint of a query that stands still, under another id.

    Spark's maintenance may still remove versions of its state that nobody needs any more: then all
    is copied again.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            shutil.copytree(source, target)
            break
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            if (reason := _reason(error)) is not None:
                hint = "the ring goes on as it was; make room, or SET ring_copies = 1"
                raise EngineError(f"a ring could not be copied: {reason}", hint) from error
            if attempt == _ATTEMPTS:
                raise EngineError(f"the checkpoint in {source} changes all the time") from error
    metadata = target / "metadata"
    if metadata.exists():  # Spark runs a query of one id once
        for checksum in (".metadata.crc", "metadata.crc"):
            (target / checksum).unlink(missing_ok=True)
        metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))


def is_committed(checkpoint: Path) -> bool:
    """Whether Spark has noted the end of every micro-batch that it has begun."""
    return last_entry(checkpoint / "offsets") == last_entry(checkpoint / "commits")


def last_entry(log: Path) -> int:
    """The last micro-batch in one of Spark's logs; -1: there is none."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdigit()), default=-1)


def _reason(error: OSError) -> str | None:
    """Why copying failed; None if files were gone before they could be copied."""
    if not isinstance(error, shutil.Error):
        return str(error)
    kept = [reason for file, _, reason in error.args[0] if Path(file).exists()]
    return str(kept[0]) if kept else None
