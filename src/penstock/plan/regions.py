"""Streams joined with regions: which geofence of WHERE is the join, and what tuples look like then.

The first condition `ST_Within(ST_Point(x, y), r.geom)`, or another geofence with a region's area,
that AND connects with the rest of WHERE is the join. What is left speaks of tuples that have the
region's attributes as columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.errors import QueryError
from penstock.language.ast import And, Column, Expr, Select, SpatialCall, StreamRef
from penstock.plan.catalog import GEOMETRY, Catalog, RegionSet, Stream
from penstock.plan.geofences import distance_of, is_geofence, parts_of, point_of
from penstock.plan.joins import conjuncts_of
from penstock.plan.specs import RegionJoin, region_column
from penstock.schema import Field, Schema

RegionRef = tuple[StreamRef, RegionSet]


def regions_in(select: Select, catalog: Catalog) -> RegionRef | None:
    """The regions that FROM names beside one stream."""
    found = [
        (ref, catalog.require_regions(ref.name))
        for ref in select.streams
        if ref.name.lower() in catalog.regions
    ]
    if not found or len(select.streams) == 1:
        return None  # a single name has to be that of a stream
    ref, regions = found[0]
    if len(select.streams) > 2:
        hint = "join the others in a query of their own"
        what = f"{regions.name} can be joined with one stream only"
        raise QueryError(what, hint, select.streams[2].span)
    if ref.window is not None:
        hint = "put the window after the stream"
        raise QueryError(f"{regions.name} are regions and have no window", hint, ref.window.span)
    return ref, regions


def region_join(
    where: Expr | None, given: RegionRef, stream: Stream
) -> tuple[RegionJoin, Expr | None]:
    """The join and the rest of a bound WHERE."""
    ref, regions = given
    area = Column(region_column(regions.name, GEOMETRY))
    conjuncts = conjuncts_of(where)
    for place, conjunct in enumerate(conjuncts):
        if isinstance(conjunct, SpatialCall) and is_geofence(conjunct, area):
            rest = conjuncts[:place] + conjuncts[place + 1 :]
            return _join(conjunct, regions, stream), _all(rest)
    alias = ref.alias or ref.name
    hint = f"add a condition with AND: ST_Within(ST_Point(x, y), {alias}.{GEOMETRY})"
    raise QueryError(f"nothing says how {regions.name} are joined", hint, ref.span)


def _join(call: SpatialCall, regions: RegionSet, stream: Stream) -> RegionJoin:
    parts = parts_of(call)
    x, y = point_of(parts.point, {f.name: f.type for f in stream.schema.fields})
    if regions.planar and parts.relation == "sphere":
        hint = "leave out the last argument: distances are then in the units of the coordinates"
        raise QueryError(f"coordinates of {regions.name} are no degrees", hint, call.span)
    distance = 0.0 if parts.distance is None else distance_of(parts.distance, regions.reach)
    columns = tuple((region_column(regions.name, f.name), f.type) for f in regions.schema.fields)
    how = parts.relation, distance, regions.planar
    return RegionJoin(regions.name, regions.digest, x, y, *how, columns)


def _all(conjuncts: Sequence[Expr]) -> Expr | None:
    if len(conjuncts) < 2:
        return conjuncts[0] if conjuncts else None
    return And(tuple(conjuncts), conjuncts[0].span)


def with_columns(stream: Stream, columns: tuple[tuple[str, str], ...]) -> Stream:
    """The stream as it is when its tuples have more columns."""
    fields = tuple(Field(name, type_) for name, type_ in columns)
    return replace(stream, schema=Schema((*stream.schema.fields, *fields)))
