"""What binding has to do with places: events of objects, columns of spatial functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import QueryError
from penstock.language.ast import Select, StreamRef
from penstock.plan.bound import BoundStream
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.events import following_of
from penstock.plan.regions import with_columns
from penstock.plan.specs import Following, SpatialValue


def following_in(select: Select, streams: Sequence[Stream], catalog: Catalog) -> Following | None:
    """What the events are that FROM asks for, if it does."""
    events = next((ref for ref in select.streams if ref.events is not None), None)
    if events is None:
        return None
    if len(select.streams) > 1:
        hint = "make a stream of them (CREATE STREAM … AS SELECT …), and join that"
        raise QueryError("events cannot be joined", hint, events.span)
    return following_of(events, streams[0], catalog)


def bind_events(
    source: BoundStream, ref: StreamRef, following: Following, catalog: Catalog
) -> BoundStream:
    """The stream of events; its disorder is that of the tuples."""
    assert ref.events is not None
    event_time = catalog.require(ref.name).event_time
    ratio = ref.events.drop_ratio
    return replace(source, event_time=event_time, drop_ratio=ratio, following=following)


def with_spatial(source: BoundStream, values: tuple[SpatialValue, ...]) -> BoundStream:
    """The stream with the columns of these functions."""
    ordered = tuple(sorted(values, key=lambda value: value.name))
    stream = with_columns(source.stream, tuple((v.name, v.type) for v in ordered))
    return replace(source, stream=stream, spatial=ordered)
