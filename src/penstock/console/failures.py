"""What a user sees when something goes wrong: one handler around every command.

Exit codes: 0 fine, 1 failed while running, 2 wrong usage or query, 130 interrupted. Tracebacks are
for `--debug` only.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from penstock.errors import EngineError, PenstockError, WorkspaceError

OK, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130
DEBUG = "PENSTOCK_DEBUG"


def debugging() -> bool:
    return bool(os.environ.get(DEBUG))


def guarded(work: Callable[[], int]) -> int:
    """Do a command's work; whatever it raises becomes a few lines on stderr and an exit code."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # `penstock run … | head`: the reader has seen enough
        forget_stdout()
        return OK
    except Exception as error:
        if debugging():
            traceback.print_exc()
        say(describe(error))
        return exit_code(error)


_FULL = ("disk is full", "No space left on device")  # as SQLite says it, and the system


def exit_code(error: BaseException) -> int:
    wrong = isinstance(error, PenstockError) and not isinstance(error, EngineError | WorkspaceError)
    return WRONG if wrong else FAILED


def describe(error: BaseException) -> str:
    """An error in words; of one that nobody foresaw, the first line."""
    if isinstance(error, PenstockError):
        return f"error: {error}"
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    if any(sign in str(error) for sign in _FULL):
        hint = "make room and start again with the same workspace: it goes on where it was"
        return f"error: no room is left on the disk: {text}\n{hint}"
    named = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"error: {named}\nadd --debug to see where it comes from"


def say(text: str) -> None:
    """A message for people: stderr, so that stdout holds results and nothing else."""
    print(text, file=sys.stderr, flush=True)


def forget_stdout() -> None:
    """Let the interpreter flush into nothing at exit instead of complaining about a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
