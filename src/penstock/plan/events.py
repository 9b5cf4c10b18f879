"""Events of objects and regions: what `EVENTS OF stream BY id AT ST_Point(x, y) IN regions` is.

Events are a stream of their own kind: the object, what happened, when, how long the object had been
in the region, and the region's attributes. An attribute that has the name of another column is
called `<regions>_<attribute>`.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import QueryError
from penstock.language.ast import SpatialCall, StreamRef
from penstock.plan.catalog import GEOMETRY, Catalog, RegionSet, Stream, did_you_mean
from penstock.plan.geofences import point_of
from penstock.plan.scope import Scope
from penstock.plan.specs import Following, RegionJoin, region_column
from penstock.schema import Field, Schema, is_groupable

EVENT, TIME, STAYED = "event", "time", "stayed_ms"
_TOLD = ((EVENT, "string"), (TIME, "timestamp"), (STAYED, "bigint"))


def following_of(ref: StreamRef, stream: Stream, catalog: Catalog) -> Following:
    """What a reference to events asks for, or an error that names the place."""
    events = ref.events
    assert events is not None
    regions = catalog.require_regions(events.regions, events.span)
    by = stream.schema.field(events.by.name)
    if by is None:
        hint = did_you_mean(events.by.name, stream.schema.names, "columns")
        raise QueryError(
            f"BY {events.by.name} is not a column of this stream", hint, events.by.span
        )
    if not is_groupable(by.type):
        hint = "the object of a tuple is a column of plain values, such as an id"
        raise QueryError(f"BY {events.by.name} is of type {by.type}", hint, events.by.span)
    if stream.event_time is None:
        hint = "give it one: WITH (…, event_time = 'column')"
        raise QueryError(f"stream {stream.name} has no event time", hint, ref.span)
    if not isinstance(events.point, SpatialCall) or events.point.name != "st_point":
        hint = "write AT ST_Point(x, y) with two columns"
        raise QueryError("this is no place of an object", hint, events.point.span)
    point = Scope(((ref, stream),)).bind(events.point)
    assert isinstance(point, SpatialCall)
    x, y = point_of(point, {f.name: f.type for f in stream.schema.fields})
    attributes = [f for f in regions.schema.fields if f.name != GEOMETRY]
    columns = tuple((region_column(regions.name, f.name), f.type) for f in attributes)
    named = regions.name, regions.digest
    join = RegionJoin(*named, x, y, "within", 0.0, regions.planar, columns)
    told = _told(by, regions, attributes)
    return Following(by.name, join, told, events.dwell_us)


def _told(by: Field, regions: RegionSet, attributes: list[Field]) -> tuple[tuple[str, str], ...]:
    columns = [(by.name, by.type), *_TOLD]
    taken = {name.lower() for name, _ in columns}
    for attribute in attributes:
        plain = attribute.name.lower() not in taken
        name = attribute.name if plain else f"{regions.name}_{attribute.name}"
        columns.append((name, attribute.type))
        taken.add(name.lower())
    return tuple(columns)


def events_stream(stream: Stream, following: Following) -> Stream:
    """The events of a stream as a stream that queries can be bound to."""
    fields = tuple(Field(name, type_) for name, type_ in following.columns)
    return replace(stream, schema=Schema(fields), event_time=TIME, arrival_time=None)
