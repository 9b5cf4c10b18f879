"""What the texts of Spark's errors tell: what went wrong, and whether it may pass."""

from __future__ import annotations

import re

# What a loaded machine or a dying worker does; the checkpoint makes trying again safe.
_PASSING = re.compile(
    r"failed to connect back|worker exited unexpectedly|Connection reset|Broken pipe|Stream closed"
    r"|does not answer|is not there yet|ChecksumException"
)
_AHEAD = "is not there yet"
_LOST = "is not on this node any more"

_PYTHON = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_SPARK = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] ([^\n]+?)(?: SQLSTATE|\n|$)")
_ANY_SPARK = re.compile(r"\[[A-Z_.0-9]+\] ([^\n]+?)(?: SQLSTATE|$)", re.MULTILINE)
_JAVA = re.compile(r"^(?:: |Caused by: )(?:\w+\.)+\w+: (.+)$", re.MULTILINE)
_WRAPPERS = ("Py4JJavaError", "StreamingQueryException", "SparkException")
_STAGES = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR")


def may_pass(error: str) -> bool:
    """Whether a new start may cure it."""
    return _PASSING.search(error) is not None


def is_ahead(error: str) -> bool:
    """Whether what a ring has to read again is still being made again."""
    return _AHEAD in error


def lost_a_queue(error: str) -> bool:
    """Whether a queue is not on its node any more."""
    return _LOST in error


def cause_of(error: Exception) -> str:
    """What an error says, in one line; those of Python itself say little without their names.

    >>> from penstock.errors import EngineError
    >>> cause_of(KeyError("ring")), cause_of(EngineError("ring a cannot be split now"))
    ("KeyError: 'ring'", 'ring a cannot be split now')
    """
    own = f"{type(error).__name__}: " if type(error).__module__ == "builtins" else ""
    return first_cause(f"{own}{error}")


def first_cause(error: str) -> str:
    """The line of a Spark or Python traceback that says what went wrong.

    >>> first_cause("An error occurred while calling o7.load.\\n: java.io.IOException: disk full")
    'disk full'
    """
    for kind, message in reversed(_PYTHON.findall(error)):
        if kind not in _WRAPPERS:
            return f"{kind}: {message}".strip()
    useful = [message for code, message in _SPARK.findall(error) if code not in _STAGES]
    if useful:
        return str(useful[-1])
    if found := _ANY_SPARK.search(error) or _JAVA.search(error):
        return found[1].strip()
    return error.strip().split("\n")[0]
