"""What Spark's own log says of a ring's micro-batches, and how they run again as they were.

Spark runs the last micro-batch of its log again if it is not committed, exactly as it was, but
never more than that one. A ring that goes back further therefore has its log put aside: whenever
Spark asks what the next micro-batch is, it is told what is noted there (`replaying`), so that the
same epochs of a join, punctuations and rounds come together again, under the same numbers.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from penstock.errors import EngineError
from penstock.runtime.rings.checkpoints import last_entry

_AGAIN = "again"  # offsets of micro-batches that are to run again

Offsets = list[dict[str, Any]]  # what a micro-batch reads up to, by source


def told_punctuation(checkpoint: Path, batch: int) -> int | None:
    """The punctuation that a micro-batch was given; None if it had none.

    Every window up to it is among the results of the next micro-batch at the latest: Spark's
    watermark is then at it, or beyond all windows that there were.
    """
    return value_in(_read(checkpoint / "offsets" / str(batch)), "punctuation_us")


def is_told_beside(checkpoint: Path) -> bool:
    """Whether a ring that has begun has its punctuation from a source of its own: one of an earlier
    version, or one that does not read its tuples itself."""
    logs = [checkpoint / name for name in ("offsets", _AGAIN)]
    begun = [_read(log / str(last_entry(log))) for log in logs]
    return any(value_in(offsets, "punctuation_us") is not None for offsets in begun)


def value_in(offsets: Offsets, key: str) -> int | None:
    """What the source that has such a value has reached."""
    return next((int(offset[key]) for offset in offsets if key in offset), None)


def epoch_of(checkpoint: Path, batch: int, number: int | None) -> int | None:
    """The last epoch that a micro-batch has read, of the ring or of an input of its join."""
    return epoch_in(_read(checkpoint / "offsets" / str(batch)), number)


def epoch_in(offsets: Offsets, number: int | None) -> int | None:
    """The last epoch of the ring or of an input of its join."""
    epochs = [each for offset in offsets for each in offset.get("epochs", [offset])]
    for place, each in enumerate(each for each in epochs if "epoch" in each):
        # logs of earlier versions do not say whose it is
        if number is None or each.get("input", place) == number:
            return int(each["epoch"])
    return None


def logged_epoch(checkpoint: Path, number: int | None) -> int:
    """The last epoch in Spark's log, of the ring or of an input of its join."""
    return epoch_of(checkpoint, last_entry(checkpoint / "offsets"), number) or 0


def roll_back(checkpoint: Path, batch: int, most: int | None = None) -> None:
    """Let a ring that is stopped run again after an earlier micro-batch; -1: from its beginning.

    most: of those after it, how many are to be as they were; None: all. May be done again if it was
    broken off.
    """
    if batch >= 0 and not (checkpoint / "commits" / str(batch)).exists():
        raise too_long_ago(batch)
    for path in _after(checkpoint / "commits", batch):  # first: what is committed has offsets
        path.unlink()
    if batch < 0:
        shutil.rmtree(checkpoint / "state", ignore_errors=True)
    (checkpoint / _AGAIN).mkdir(parents=True, exist_ok=True)
    for path in _after(checkpoint / "offsets", batch):
        path.replace(checkpoint / _AGAIN / path.name)
    if most is not None:
        for path in _after(checkpoint / _AGAIN, batch + most):
            path.unlink()


def take_up(checkpoint: Path) -> None:
    """Before a ring starts: let Spark itself run the first micro-batch of those that are to run
    again. One without anything new to read it would not begin right after a start."""
    if (noted := _next_noted(checkpoint)) is not None:
        log = checkpoint / "offsets"
        log.mkdir(exist_ok=True)
        if not (log / noted.name).exists():
            noted.replace(log / noted.name)


def noted_offsets(checkpoint: Path) -> Offsets | None:
    """What the micro-batch that Spark is about to begin read the first time; None if it is new."""
    noted = _next_noted(checkpoint)
    return None if noted is None else _read(noted)


def batches_after(checkpoint: Path, batch: int) -> int:
    """How many micro-batches have begun since, those that are to run again among them."""
    return max(last_entry(checkpoint / log) for log in ("offsets", _AGAIN)) - batch


def _next_noted(checkpoint: Path) -> Path | None:
    if not (checkpoint / _AGAIN).exists():
        return None
    done = last_entry(checkpoint / "commits")
    if last_entry(checkpoint / _AGAIN) <= done:  # all have run
        shutil.rmtree(checkpoint / _AGAIN, ignore_errors=True)
        return None
    noted = checkpoint / _AGAIN / str(done + 1)
    return noted if noted.exists() else None


def _after(log: Path, batch: int) -> list[Path]:
    """Entries of a log after a micro-batch, with their checksums."""
    numbers = {path: path.name.lstrip(".").removesuffix(".crc") for path in log.glob("*")}
    return [path for path, number in numbers.items() if number.isdigit() and int(number) > batch]


def too_long_ago(batch: int) -> EngineError:
    return EngineError(
        f"micro-batch {batch} is too long ago to go back to it",
        "DROP the stream with CASCADE and make it again",
    )


def _read(entry: Path) -> Offsets:
    """An entry of Spark's log of offsets, as far as they are penstock's; nothing if it is gone."""
    try:
        lines = entry.read_text().splitlines()
    except FileNotFoundError:
        return []
    # after the format's version and Spark's own figures
    return [json.loads(line) for line in lines[2:] if line.startswith("{")]
