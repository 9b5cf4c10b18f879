"""`penstock node`: a process that holds queues, until Ctrl-C or SIGTERM.

The address goes to stdout, one line, once calls are answered; everything else to stderr.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.console.failures import OK, say
from penstock.errors import PenstockError
from penstock.exchange.node import Node, teller
from penstock.exchange.queues import DEFAULT_BACKUP_BYTES, Queues
from penstock.exchange.remote_backup import backup_at
from penstock.exchange.token import read_token
from penstock.exchange.wire import NodeAddress

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


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
    named = partial(backup_at, token=token, limit=options.backup_bytes)
    queues = Queues(directory, backup or None, options.backup_bytes, options.partial, tell, named)
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
