"""What binding has to do with places: events of objects, columns of spatial functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import QueryError
from penstock.language.ast import StreamRef
from penstock.plan.bound import BoundStream
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.events import following_of
from penstock.plan.regions import with_columns
from penstock.plan.specs import Following, SpatialValue


def following_in(
    refs: Sequence[StreamRef], streams: Sequence[Stream], catalog: Catalog
) -> Following | None:
    for ref, stream in zip(refs, streams, strict=True):
        if ref.events is not None:
            if len(refs) > 1:
                hint = "select from them alone"
                raise QueryError("events cannot be joined", hint, ref.span)
            return following_of(ref, stream, catalog)
    return None


def bind_events(
    source: BoundStream, ref: StreamRef, following: Following, catalog: Catalog
) -> BoundStream:
    assert ref.events is not None
    event_time = catalog.require(ref.name).event_time
    ratio = ref.events.drop_ratio
    return replace(source, event_time=event_time, drop_ratio=ratio, following=following)


def refuse_more_than_selection(ref: StreamRef, aggregated: bool) -> None:
    if aggregated:
        hint = "select them into files, and aggregate a stream of those"
        raise QueryError("events cannot be aggregated yet", hint, ref.span)


def with_spatial(source: BoundStream, values: tuple[SpatialValue, ...]) -> BoundStream:
    ordered = tuple(sorted(values, key=lambda value: value.name))
    stream = with_columns(source.stream, tuple((v.name, v.type) for v in ordered))
    return replace(source, stream=stream, spatial=ordered)
