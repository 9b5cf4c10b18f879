"""What can go wrong between nodes, each with a code that travels with the answer."""

from __future__ import annotations

import json
from typing import ClassVar

from penstock.errors import EngineError


class ExchangeError(EngineError):
    """A node could not do what was asked; nothing has changed."""

    code: ClassVar[str] = "failed"


class Refused(ExchangeError):
    """A message that makes no sense, or asks for what is not allowed."""

    code = "refused"


class Stranger(ExchangeError):
    """Whoever asked does not have the token."""

    code = "stranger"


class QueueUnknown(ExchangeError):
    """There is no queue of that name."""

    code = "unknown"


class QueueLost(ExchangeError):
    """The queue is gone with its node's directory: roll back to the last safe batch and replay."""

    code = "lost"


class QueueFull(ExchangeError):
    """No room within the time that was given; the same append may be tried again."""

    code = "full"


class BatchTooLarge(ExchangeError):
    """More in one micro-batch, or in one message, than there is room for."""

    code = "too_large"


class BatchIncomplete(ExchangeError):
    """Not all partitions of a micro-batch are here."""

    code = "incomplete"


class PositionGone(ExchangeError):
    """All registered consumers have acknowledged the position, so it is no longer kept."""

    code = "gone"


class PositionAhead(ExchangeError):
    """The position is not there yet: a lost queue is being written again."""

    code = "ahead"


class BackupGone(ExchangeError):
    """The backup server does not answer; what it holds can be read when it does."""

    code = "backup_gone"


class DiskFailed(ExchangeError):
    """A file could not be written or read."""

    code = "disk"


class NodeGone(ExchangeError):
    """The node does not answer."""

    code = "node_gone"


class NodeBusy(ExchangeError):
    """The node has as many calls waiting as it allows."""

    code = "busy"


_KINDS: list[type[ExchangeError]] = [ExchangeError, *ExchangeError.__subclasses__()]
_BY_CODE = {kind.code: kind for kind in _KINDS}


def to_wire(error: ExchangeError) -> bytes:
    return json.dumps([error.code, error.message, error.hint]).encode()


def from_wire(body: bytes) -> ExchangeError | None:
    """The error that a node sent; None if it sent none of ours."""
    try:
        code, message, hint = json.loads(body)
        return _BY_CODE[code](message, hint)
    except (ValueError, KeyError, TypeError):
        return None
