"""Tells other nodes whether an entry of this one is loaded, so that they measure shared queues.

The table of them is kept where tuples enter, as the paper has it. An engine that makes a stream on
another node adds that one; it does so again whenever it starts, so nothing of it is on the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress

from penstock.exchange.connection import Connections
from penstock.exchange.failures import ExchangeError, Refused
from penstock.exchange.wire import NodeAddress

MOST_TOLD = 100
_CALL_S = 2.0
_LONGEST_URI = 300


class Teller:
    """All nodes share one token. Who does not answer misses it."""

    def __init__(self, token: str, uris: Iterable[str] = ()) -> None:
        self._token = token
        self._guard = threading.Lock()
        self._nodes: dict[str, Connections] = {}
        for uri in uris:
            self.add(uri)

    def add(self, uri: object) -> None:
        """Tell one more node; the oldest gives way when there are too many."""
        if not isinstance(uri, str) or not uri.startswith("grpc://") or len(uri) > _LONGEST_URI:
            raise Refused(f"{uri!r:.120} is not the address of a node", "write grpc://host:port")
        with self._guard:
            if uri in self._nodes:
                return
            while len(self._nodes) >= MOST_TOLD:
                self._nodes.pop(next(iter(self._nodes))).close()
            self._nodes[uri] = Connections(NodeAddress(uri, self._token), call_s=_CALL_S)

    @property
    def uris(self) -> list[str]:
        with self._guard:
            return list(self._nodes)

    def __call__(self, loaded: bool) -> None:
        with self._guard:
            nodes = list(self._nodes.values())
        for node in nodes:
            threading.Thread(target=_tell, args=(node, loaded), daemon=True).start()


def _tell(node: Connections, loaded: bool) -> None:
    with suppress(ExchangeError):
        node.call_once("measure", {"on": loaded})
