"""The nodes that hold an engine's derived streams: its own, started with the first, and others."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from penstock.control.punctuation import NEVER_US
from penstock.errors import EngineError
from penstock.exchange.client import NodeClient, SafePoint
from penstock.exchange.failures import ExchangeError, QueueLost
from penstock.exchange.node import Node
from penstock.exchange.queues import DEFAULT_BACKUP_BYTES, Queues
from penstock.exchange.remote_backup import backup_at
from penstock.exchange.teller import Teller
from penstock.exchange.token import read_token
from penstock.exchange.wire import NodeAddress, QueueRef
from penstock.plan.catalog import Stream
from penstock.runtime.derived.definition import QueueOptions, queue_options, queue_schema
from penstock.runtime.derived.feed import Feed
from penstock.runtime.derived.putting import FAILED_READERS
from penstock.runtime.derived.source import QueuePlanner
from penstock.runtime.registry import QueueRow, Registry
from penstock.runtime.service import Address, Handler
from penstock.runtime.workspace import Workspace

_PATIENCE_S = 30.0  # less than the epoch service's own
_LONGEST_PREFIX = 40


class Exchange:
    """Makes, finds and drops the queues; a queue's own node is asked by whoever needs it."""

    def __init__(
        self, workspace: Workspace, registry: Registry, host: str, token_file: Callable[[], str]
    ) -> None:
        self._workspace = workspace
        self._registry = registry
        self._host = host
        self._token_file = token_file
        self._guard = threading.RLock()
        self._node: Node | None = None
        self._clients: dict[NodeAddress, NodeClient] = {}

    def create(self, stream: Stream) -> None:
        """Make the queue of a new stream, under a name that no other engine has."""
        prefix = re.sub(r"[^A-Za-z0-9_-]", "_", stream.name)[:_LONGEST_PREFIX]
        name = f"q_{prefix}-{secrets.token_hex(4)}"
        made = self._make(stream, name)
        self._registry.put_queue(QueueRow(stream.name, name, made.incarnation))

    def _make(
        self,
        stream: Stream,
        name: str,
        incarnation: str = "",
        after: Mapping[str, SafePoint] | None = None,
    ) -> QueueRef:
        options = queue_options(stream)
        return self._client(options).create(
            name,
            queue_schema(stream.schema),
            options.mode,
            options.capacity,
            options.trigger,
            options.entry,
            backup=options.backup,
            after=after,
            incarnation=incarnation,
        )

    def drop(self, stream: Stream, even_if_gone: bool) -> None:
        """Remove a stream's queue; if its node is gone for good, it must not hold the stream."""
        if self._registry.queue(stream.name) is None:
            return
        try:
            self._client(queue_options(stream)).drop(self._queue(stream))
        except ExchangeError as error:
            if not even_if_gone:
                raise EngineError(
                    f"the queue of {stream.name} is not dropped: {error.message}",
                    f"start its node again, or DROP STREAM {stream.name} CASCADE",
                ) from None

    def readable(self, stream: Stream) -> Stream:
        """The stream with what tasks need to read it."""
        if stream.source != "derived":
            return stream
        queue, address = self._queue(stream), self._address(queue_options(stream))
        where = {
            "uri": address.uri,
            "token": address.token,
            "queue": queue.name,
            "incarnation": queue.incarnation,
        }
        kept = {k: v for k, v in stream.options if k == "behind_us"}
        return replace(stream, options=tuple(sorted({**kept, **where}.items())))

    def planner(
        self,
        stream: Stream,
        consumer: str,
        start: str,
        needed_from: Callable[[], int | None] = lambda: None,
    ) -> QueuePlanner:
        client = self._client(queue_options(stream))
        return QueuePlanner(client, self._queue(stream), consumer, start, needed_from)

    def feed(
        self,
        stream: Stream,
        punctuation_us: Callable[[int], int | None],
        engine: Address | None,
    ) -> Feed:
        """What puts results into a stream's queue; punctuation: of the ring, after a batch.

        engine: what tasks ask if they are to put the results, see `feed`.
        """
        options = queue_options(stream)
        self._introduce(stream)
        return Feed(
            self._client(options),
            self._address(options),
            self._queue(stream),
            stream.name,
            queue_schema(stream.schema),
            partial(_complete_us, punctuation_us, options.behind_us),
            partial(self._note, stream.name),
            partial(self._registry.failed_readers, stream.name),
            engine,
        )

    def calls(self) -> dict[str, Handler]:
        """What tasks ask the engine about its queues."""
        return {FAILED_READERS: lambda m, _: self._registry.failed_readers(m["stream"])}

    def _introduce(self, stream: Stream) -> None:
        """Have nodes where tuples enter tell the stream's node when they are loaded."""
        here = self._address(queue_options(stream))
        known = [queue_options(s) for s in self._registry.streams() if s.source == "derived"]
        others = {self._address(options) for options in known if options.entry} - {here}
        for other in others:
            threading.Thread(target=_tell, args=(other, here.uri), daemon=True).start()

    def _note(self, stream: str, last: int, safe: SafePoint | None) -> None:
        known = self._registry.queue(stream)
        if known is None:
            return
        changed = replace(known, last_batch=last)
        if safe is not None:
            changed = replace(changed, safe_batch=safe.batch, safe_position=safe.position)
        if changed != known:
            self._registry.put_queue(changed)

    def safe_batch(self, stream: Stream, ring: str) -> int | None:
        """The last micro-batch whose results all consumers are done with; None: all are.

        It is noted before anybody acts on it: after a loss of the queue, the ring goes back there.
        """
        written = self.describe(stream)["rings"].get(ring)
        if written is None:
            return None
        safe = None if written["safe"] is None else SafePoint(*written["safe"])
        self._note(stream.name, written["last"], safe)
        if safe is None:
            return -1
        return None if safe.batch == written["last"] else safe.batch

    def is_lost(self, stream: Stream) -> bool:
        """Whether a node answers that does not know the stream's queue."""
        try:
            self.describe(stream)
        except QueueLost:
            return True
        return False

    def resumes_after(self, stream: Stream) -> int | None:
        """After which batch the ring of a lost queue has to run again; None: nobody misses any."""
        known = self._registry.queue(stream.name)
        if known is None or known.last_batch == known.safe_batch:
            return None
        return -1 if known.safe_batch is None else known.safe_batch

    def restore(self, stream: Stream, ring: str, consumers: Iterable[str]) -> None:
        """Make a lost queue again, as it was when all were done with the last safe batch."""
        known = self._registry.queue(stream.name)
        assert known is not None
        after = {}
        if known.safe_batch is not None and known.safe_position is not None:
            after = {ring: SafePoint(known.safe_batch, known.safe_position)}
        queue = self._make(stream, known.name, known.incarnation, after)
        client = self._client(queue_options(stream))
        for consumer in consumers:
            client.register(queue, consumer, "earliest")

    def unregister(self, stream: Stream, consumer: str) -> None:
        """Keep nothing for a consumer any longer."""
        self._client(queue_options(stream)).unregister(self._queue(stream), consumer)

    def describe(self, stream: Stream) -> dict[str, Any]:
        """Figures of a stream's queue."""
        return self._client(queue_options(stream)).describe(self._queue(stream))

    def queue_name(self, stream: Stream) -> str:
        """What the stream's queue is called on its node."""
        return self._queue(stream).name

    def _queue(self, stream: Stream) -> QueueRef:
        row = self._registry.queue(stream.name)
        if row is None:
            raise EngineError(f"stream {stream.name} has no queue", "drop it and make it again")
        return QueueRef(row.name, row.incarnation)

    def _client(self, options: QueueOptions) -> NodeClient:
        address = self._address(options)
        with self._guard:
            if address not in self._clients:
                self._clients[address] = NodeClient(address, patience_s=_PATIENCE_S)
            return self._clients[address]

    def _address(self, options: QueueOptions) -> NodeAddress:
        if not options.node:
            return self._own_node().address
        return NodeAddress(options.node, read_token(Path(options.token_file), make=False))

    def _own_node(self) -> Node:
        with self._guard:
            if self._node is None:
                self._node = self._start_node()
            return self._node

    def _start_node(self) -> Node:
        directory = self._workspace.exchange
        token = read_token(Path(self._token_file() or directory / "token"))
        named = partial(backup_at, token=token, limit=DEFAULT_BACKUP_BYTES)
        overflow = named(str(directory / "overflow"))
        queues = Queues(directory, overflow, teller=Teller(token), backup_of=named)
        try:
            for orphan in queues.names() - {row.name for row in self._registry.queues()}:
                queues.remove(orphan)  # the engine was killed before it knew of it
            return Node(queues, token, self._host)
        except BaseException:
            queues.close()
            raise

    def close(self) -> None:
        with self._guard:
            for client in self._clients.values():
                client.close()
            if self._node is not None:
                self._node.stop()


def _tell(entry: NodeAddress, uri: str) -> None:
    """A node that cannot be told has its queues measured later, when they are full."""
    with suppress(ExchangeError), NodeClient(entry, patience_s=_PATIENCE_S) as client:
        client.tell(uri)


def _complete_us(
    punctuation_us: Callable[[int], int | None], behind_us: int | None, batch: int
) -> int:
    """Up to where a stream's tuples are in its queue after a micro-batch of its ring."""
    reached = None if behind_us is None else punctuation_us(batch)
    return NEVER_US if reached is None or behind_us is None else max(NEVER_US, reached - behind_us)
