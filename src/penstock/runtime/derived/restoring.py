"""Queues that were lost with their node's directory, made again; their rings run again from there.

A ring is done with its own derived inputs only as far as its consumers are done with what it made
of them (`needed_from`): so whatever was lost, somebody upstream still has what it was made of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import EngineError
from penstock.plan.catalog import Stream
from penstock.plan.codec import composition_from
from penstock.runtime.config import owner_of
from penstock.runtime.derived.definition import maker_of
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.derived.progress import (
    batches_after,
    epoch_of,
    roll_back,
    too_long_ago,
)
from penstock.runtime.registry import Registry
from penstock.runtime.rings.ring import Ring
from penstock.runtime.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Restorer:
    workspace: Workspace
    registry: Registry
    exchange: Exchange

    def needed_from(self, part: str, feeds: Stream) -> int | None:
        """The position from which a ring may have to read an input again; None: all is safe."""
        ring, number = owner_of(part)
        batch = self.exchange.safe_batch(feeds, ring)
        if batch is None:
            return None
        if batch < 0:
            return 0
        epoch = epoch_of(self.workspace.checkpoint(ring), batch, number)
        row = None if epoch is None else self.registry.epoch(part, epoch)
        return None if row is None else int(json.loads(row.work).get("through", 0))

    def restore(self, streams: Iterable[Stream], rings: Mapping[str, Ring]) -> list[Ring]:
        """Make those of the streams that are lost again; which rings were stopped for it."""
        stopped = []
        for stream in streams:
            if stream.source != "derived" or not self.exchange.is_lost(stream):
                continue
            query = self.registry.query(maker_of(stream.name))
            if query is None or (maker := rings.get(query.ring)) is None:
                continue
            maker.pause()
            # the queue comes last: until it is there, all of this is done again
            if (batch := self.exchange.resumes_after(stream)) is not None:
                self._check_epochs(maker, batch)
                frames = [i.stream.name for i in maker.inputs if i.stream.source == "dataframe"]
                if frames:
                    self._check_frames(maker, batch, stream, frames)
                # of DataFrames, Spark makes all micro-batches but the first anew
                roll_back(self._checkpoint(maker), batch, most=1 if frames else None)
            self.exchange.restore(stream, maker.id, self._consumers(stream))
            stopped.append(maker)
        return stopped

    def _check_epochs(self, maker: Ring, batch: int) -> None:
        """Refuse to go back further than the epochs that are kept."""
        for part in maker.parts:
            _, number = owner_of(part)
            done = -1 if batch < 0 else epoch_of(self._checkpoint(maker), batch, number)
            last = self.registry.last_epoch(part)
            if done is None or last is None or last.number <= done:
                continue
            if self.registry.epoch(part, max(done, 0) + 1) is None and last.number > 0:
                raise too_long_ago(batch)

    def _check_frames(self, maker: Ring, batch: int, stream: Stream, frames: list[str]) -> None:
        """Refuse to make a stream again with other micro-batches if readers have planned to read
        what was in it."""
        if batches_after(self._checkpoint(maker), batch) == 1:
            return
        known = self.registry.queue(stream.name)
        safe = 0 if known is None else known.safe_position or 0
        if any(self._planned(consumer) > safe for consumer in self._consumers(stream)):
            raise EngineError(
                f"stream {stream.name} is lost and cannot be made again as it was: micro-batches"
                f" of {frames[0]} are Spark's",
                "DROP the stream with CASCADE and make it again",
            )

    def _planned(self, consumer: str) -> int:
        """The position up to which a ring, or an input of one, reads for now."""
        last = self.registry.last_epoch(consumer)
        return 0 if last is None else int(json.loads(last.work).get("through", 0))

    def _checkpoint(self, maker: Ring) -> Path:
        return self.workspace.checkpoint(maker.id)

    def _consumers(self, stream: Stream) -> list[str]:
        """Rings and inputs of joins that read a stream, those that failed among them."""
        found = []
        for row in self.registry.rings(inputs=True):
            composition = composition_from(row.composition)
            reads = composition.join is None and row.stream.lower() == stream.name.lower()
            if reads and row.state != "retired":
                found.append(row.id)
        return found
