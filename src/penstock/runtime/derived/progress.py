"""What Spark's own log says of a ring's micro-batches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.errors import EngineError


def told_punctuation(checkpoint: Path, batch: int) -> int | None:
    """The punctuation that a micro-batch was given; None if it had none.

    Every window up to it is among the results of the next micro-batch at the latest: Spark's
    watermark is then at it, or beyond all windows that there were.
    """
    for offset in _offsets(checkpoint, batch):
        if "punctuation_us" in offset:
            return int(offset["punctuation_us"])
    return None


def epoch_of(checkpoint: Path, batch: int, number: int | None) -> int | None:
    """The last epoch that a micro-batch has read, of the ring or of an input of its join."""
    for offset in _offsets(checkpoint, batch):
        if number is not None and "epochs" in offset:
            offset = offset["epochs"][number]
        if "epoch" in offset:
            return int(offset["epoch"])
    return None


def roll_back(checkpoint: Path, batch: int) -> None:
    """Let a ring that is stopped go on after an earlier micro-batch; -1: from its beginning."""
    if batch < 0:
        shutil.rmtree(checkpoint, ignore_errors=True)
        return
    if not (checkpoint / "commits" / str(batch)).exists():
        raise too_long_ago(batch)
    for log in ("commits", "offsets"):  # in this order: a batch that is committed has offsets
        for path in (checkpoint / log).iterdir():
            number = path.name.lstrip(".").removesuffix(".crc")
            if number.isdigit() and int(number) > batch:
                path.unlink()


def too_long_ago(batch: int) -> EngineError:
    return EngineError(
        f"micro-batch {batch} is too long ago to go back to it",
        "DROP the stream with CASCADE and make it again",
    )


def _offsets(checkpoint: Path, batch: int) -> Iterator[dict[str, Any]]:
    """What a micro-batch reads up to, by source."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return
    for line in lines[2:]:  # after the format's version and Spark's own figures
        if line.startswith("{"):
            yield json.loads(line)
