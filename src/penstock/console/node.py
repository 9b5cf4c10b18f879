"""`penstock node`: a process that holds queues, until Ctrl-C or SIGTERM.

The address goes to stdout, one line, once calls are answered; everything else to stderr.
"""

from __future__ import annotations

import os
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path

from penstock.console.failures import OK, say
from penstock.errors import PenstockError
from penstock.exchange.node import Node, teller
from penstock.exchange.queues import DEFAULT_BACKUP_BYTES, Queues
from penstock.exchange.remote_backup import backup_at
from penstock.exchange.wire import NodeAddress

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_LEAST_TOKEN, _LONGEST_TOKEN = 8, 500


@dataclass(frozen=True, slots=True)
class NodeOptions:
    host: str = "127.0.0.1"
    port: int = 0
    token_file: Path | None = None
    backup: str | None = None
    backup_bytes: int = DEFAULT_BACKUP_BYTES
    partial: bool = False
    tell: tuple[str, ...] = ()


def run_node(directory: Path, options: NodeOptions) -> int:
    token_file = options.token_file or directory / "token"
    token = read_token(token_file)
    backup = options.backup and backup_at(options.backup, token, options.backup_bytes)
    tell = teller([NodeAddress(uri, token) for uri in options.tell]) if options.tell else None
    queues = Queues(directory, backup or None, options.backup_bytes, options.partial, tell)
    try:
        node = Node(queues, token, options.host, options.port)
    except PenstockError:
        queues.close()
        raise
    try:
        held = len(queues.stats()["queues"])
        say(f"node in {directory}: {held} queue{'' if held == 1 else 's'}; token in {token_file}")
        if options.host not in _LOOPBACK:
            say("other machines can reach it; the token travels unencrypted, so trust the network")
        print(node.address.uri, flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        node.stop()
    say("stopped; the next node on this directory goes on with its queues")
    return OK


def read_token(path: Path) -> str:
    """The token in a file; a new one if there is no such file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
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
