"""The token that nodes ask for, in a file that only its owner can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from penstock.errors import PenstockError

_LEAST_TOKEN, _LONGEST_TOKEN = 8, 500


def read_token(path: Path, make: bool = True) -> str:
    """The token in a file; a new one if there is no such file and one may be made."""
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "w") as out:
                out.write(secrets.token_urlsafe(24) + "\n")
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise PenstockError(f"cannot read the token in {path}: {reason}") from None
    plain = token.isascii() and token.isprintable()
    if not plain or not _LEAST_TOKEN <= len(token) <= _LONGEST_TOKEN:
        raise PenstockError(
            f"{path} holds no token",
            f"write {_LEAST_TOKEN} to {_LONGEST_TOKEN} printable characters, or remove it",
        )
    return token
