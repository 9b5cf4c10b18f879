"""What the operator of an EVENTS ring does in a task; it knows nothing of Spark but its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.kernels.fence_events import FenceState, follow_objects, no_stays, tuples_schema
from penstock.kernels.placing import RegionIndex
from penstock.kernels.selection import Selection, select
from penstock.plan.codec import composition_from
from penstock.plan.specs import Composition, SlotSpec
from penstock.runtime.config import StageConfig
from penstock.runtime.following.stage import PUNCTUATION, VERSION
from penstock.runtime.packing import PACKED, blobs_of, from_ipc, to_ipc
from penstock.runtime.region_tables import placing_of
from penstock.runtime.versions import KeptByRing
from penstock.schema import arrow_type

State = tuple[bytes, bytes, int, int]


class EventSlots:
    """The slots of an EVENTS ring at one registry version."""

    def __init__(self, composition: Composition) -> None:
        assert composition.following is not None
        self.selection = Selection(dict(composition.following.columns))
        self.version = 0

    def change(self, version: int, added: Sequence[SlotSpec], dropped: Sequence[int] = ()) -> None:
        """Go on to another version."""
        self.selection.change(added, dropped)
        self.version = version


_slots: KeptByRing[EventSlots] = KeptByRing()


class FollowingWorker:
    """Follows the objects of one lane after the other."""

    def __init__(self, config_text: str) -> None:
        self._config = StageConfig(**json.loads(config_text))
        self._composition = composition_from(self._config.composition)
        placing = placing_of(self._config, self._composition)
        assert placing is not None
        assert placing.regions is not None
        self._regions: RegionIndex = placing.regions

    def follow(self, known: Any, rows: Iterable[Any]) -> tuple[State, list[bytes]]:
        """A lane's state after a micro-batch, and its events, packed, with their slots."""
        following = self._composition.following
        assert following is not None
        object_type = arrow_type(dict(following.columns)[following.by])
        state, version, batches = no_stays(object_type), 0, list[pa.RecordBatch]()
        if known is not None:
            stays, waiting = (pa.Table.from_batches([from_ipc(bytes(t))]) for t in known[:2])
            state, version = FenceState(stays, waiting, known[2]), known[3]
        closed_us = state.closed_us
        for row in rows:
            version, closed_us = max(version, row[VERSION]), max(closed_us, row[PUNCTUATION])
            if row[PACKED] is not None:
                batches.append(from_ipc(bytes(row[PACKED])))
        tuples = pa.Table.from_batches(batches, tuples_schema(object_type))
        found = follow_objects(state, tuples, closed_us, following.dwell_us)
        kept = [to_ipc(_one(t), "zstd") for t in (found.state.stays, found.state.waiting)]
        blobs = self._selected(found.events, version) if found.events.num_rows else []
        return (kept[0], kept[1], closed_us, version), blobs

    def _selected(self, events: pa.Table, version: int) -> list[bytes]:
        """Events that some query wants, with the slots of those that do."""
        batch = self._told(events)
        new = partial(EventSlots, self._composition)
        selection = _slots.at_version(self._config, version, new).selection
        matches = select(selection, batch)
        counts = np.diff(matches.offsets)
        rows = np.flatnonzero(counts)
        offsets = np.concatenate([[0], np.cumsum(counts[rows])]).astype(np.int32)
        slots = selection.slot_numbers.astype(np.int32)[matches.slots]
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(slots))
        names = self._composition.shipped
        columns = [batch.column(name).take(pa.array(rows)) for name in names]
        if not rows.size:
            return []
        return list(
            blobs_of(pa.RecordBatch.from_arrays([lists, *columns], names=["__slots", *names]))
        )

    def _told(self, events: pa.Table) -> pa.RecordBatch:
        """Events with all that is told of them, by the names that queries use."""
        following = self._composition.following
        assert following is not None
        regions = pa.array(events["fence"].to_numpy())
        values = [
            events["object"].combine_chunks(),
            events["kind"].combine_chunks(),
            events["time_us"].combine_chunks(),
            pa.array(events["duration_us"].to_numpy() // 1000),
        ]
        attributes = [self._regions.attributes[name] for name, _ in following.regions.columns]
        values += [attribute.take(regions) for attribute in attributes]
        types = [arrow_type(type_) for _, type_ in following.columns]
        columns = [value.cast(type_) for value, type_ in zip(values, types, strict=True)]
        return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in following.columns])


def _one(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
