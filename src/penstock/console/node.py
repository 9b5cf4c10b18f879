"""`penstock node`: a process that holds queues, until Ctrl-C or SIGTERM.

The address goes to stdout, one line, once calls are answered; everything else to stderr. A standby
is a second process on the same directory: loaded and ready, it waits for the first one's lock,
which the system frees however that one ends, and goes on with its files at its address.
"""

from __future__ import annotations

import signal
import socket
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.console.failures import OK, say
from penstock.errors import PenstockError
from penstock.exchange.node import Node
from penstock.exchange.queues import DEFAULT_BACKUP_BYTES, Queues
from penstock.exchange.remote_backup import backup_at
from penstock.exchange.teller import Teller
from penstock.exchange.token import read_token

STANDBY = "standby"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TAKEOVER_S = 10.0  # for the address of a process that has just ended


@dataclass(frozen=True, slots=True)
class NodeOptions:
    host: str = "127.0.0.1"
    port: int = 0
    token_file: Path | None = None
    backup: str | None = None
    backup_bytes: int = DEFAULT_BACKUP_BYTES
    partial: bool = True
    tell: tuple[str, ...] = ()
    standby: bool = False


def run_node(directory: Path, options: NodeOptions) -> int:
    token_file = options.token_file or directory / "token"
    token = read_token(token_file)
    backup = options.backup and backup_at(options.backup, token, options.backup_bytes)
    tell = Teller(token, options.tell)
    named = partial(backup_at, token=token, limit=options.backup_bytes)
    if options.standby:
        if not options.port:
            raise PenstockError("a standby takes over an address", "add --port, as for the node")
        say(f"standby of the node in {directory}")
        print(STANDBY, flush=True)
    queues = Queues(
        directory,
        backup or None,
        options.backup_bytes,
        options.partial,
        tell,
        named,
        wait=options.standby,
    )
    stopping = _signals()
    try:
        patience_s = _TAKEOVER_S if options.standby else 0.0
        node = Node(queues, token, options.host, options.port, patience_s)
    except PenstockError:
        queues.close()
        raise
    try:
        held = len(queues.stats()["queues"])
        say(f"node in {directory}: {held} queue{'' if held == 1 else 's'}; token in {token_file}")
        if options.host not in _LOOPBACK:
            say("other machines can reach it; the token travels unencrypted, so trust the network")
        print(node.address.uri, flush=True)
        stopping.recv(1)
    finally:
        node.stop()
    say("stopped; the next node on this directory goes on with its queues")
    return OK


def _signals() -> socket.socket:
    """Has a byte to read after Ctrl-C or SIGTERM from now on, even if they came before the read.

    An exception out of the blue could leave a server behind that nobody stops; and a handler that
    takes a lock, as that of an Event, may find it taken by the very thread that it interrupts.
    """
    reads, writes = socket.socketpair()
    writes.setblocking(False)
    signal.set_wakeup_fd(writes.detach())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return reads
