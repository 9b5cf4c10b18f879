"""Tuples with what is known from where they are: regions that they are in, spatial functions.

With regions, a tuple comes out once for each region of its point, with the region's attributes; one
in no region does not come out, nor does one whose point is no place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import shapely
from shapely import Geometry

from penstock.geometry import LON_LAT, PLANE
from penstock.kernels.fence_book import coordinates, empty_grid, locate_in
from penstock.kernels.fences import Located
from penstock.kernels.jit import Ints
from penstock.kernels.spatial_values import spatial_column
from penstock.kernels.sphere_fences import box_around
from penstock.plan.specs import RegionJoin, SpatialValue


@dataclass(frozen=True, slots=True)
class Placed:
    """Tuples with more columns, the row that each comes from, and how many are no place.

    Of a function these are the tuples for which it is NULL.
    """

    batch: pa.RecordBatch
    origins: Ints
    unplaced: int


class RegionIndex:
    """A join with regions, whose attributes are columns by the names that tuples have them.

    most: no point has more regions than this.
    """

    def __init__(
        self,
        join: RegionJoin,
        attributes: Mapping[str, pa.Array],
        geometries: Sequence[Geometry],
    ) -> None:
        self._join = join
        self.attributes = attributes
        domain = PLANE if join.planar else LON_LAT
        self._fences = empty_grid(join.relation, join.distance, domain)
        self._fences.change(dict(enumerate(geometries)))
        self.most = _most_at_a_point(join, geometries)

    def join(self, batch: pa.RecordBatch, wanted: set[str]) -> Placed:
        """The joined tuples, with those attributes of their regions that are wanted."""
        located = self.locate(batch)
        rows, regions = located.rows, pa.array(located.fences)
        added = {n: a.take(regions) for n, a in self.attributes.items() if n in wanted}
        joined = _with_columns(batch.take(pa.array(rows)), added)
        return Placed(joined, rows, int(np.count_nonzero(located.unknown)))

    def locate(self, batch: pa.RecordBatch) -> Located:
        """The regions of each tuple, by their numbers."""
        xs, ys = (coordinates(batch.column(name)) for name in (self._join.x, self._join.y))
        return locate_in(self._fences, xs, ys, self._join.relation)


@dataclass(frozen=True, slots=True)
class Placing:
    """What gives tuples their columns of places."""

    regions: RegionIndex | None
    values: tuple[SpatialValue, ...]

    @property
    def most(self) -> int:
        """No tuple comes out more often than this."""
        return 1 if self.regions is None else self.regions.most

    def place(self, batch: pa.RecordBatch, wanted: set[str]) -> Placed:
        """Tuples with those of their columns of places that are wanted."""
        origins, unplaced = np.arange(batch.num_rows), 0
        if self.regions is not None:
            read = wanted.union(*(value.columns for value in self.values))
            joined = self.regions.join(batch, read)
            batch, origins, unplaced = joined.batch, joined.origins, joined.unplaced
        columns = {v.name: spatial_column(v, batch) for v in self.values if v.name in wanted}
        unknown = np.zeros(batch.num_rows, np.bool_)
        for column in columns.values():
            unknown |= column.is_null().to_numpy(zero_copy_only=False)
        unplaced += np.unique(origins[unknown]).size
        return Placed(_with_columns(batch, columns), origins, unplaced)


def _most_at_a_point(join: RegionJoin, geometries: Sequence[Geometry]) -> int:
    """All regions of a point have boxes that meet the box of any one of them."""
    if join.relation == "sphere":
        boxes = np.array([box_around(g, join.distance) for g in geometries])
    else:
        reach = np.array([-1, -1, 1, 1]) * join.distance
        boxes = shapely.box(*(shapely.bounds(geometries) + reach).T)
    meetings = shapely.STRtree(boxes).query(boxes, "intersects")[0]
    return max(1, int(np.bincount(meetings).max()))


def _with_columns(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    arrays, names = [*batch.columns, *columns.values()], [*batch.schema.names, *columns]
    return pa.RecordBatch.from_arrays(arrays, names=names)
