"""A query whose names are resolved and whose rules are checked."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.language.ast import Expr
from penstock.plan.catalog import Stream
from penstock.plan.specs import Following, RegionJoin, SpatialValue, WindowSpec


@dataclass(frozen=True, slots=True)
class BoundItem:
    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class BoundStream:
    """A stream as one query reads it; `regions` and `spatial` are columns of it too."""

    stream: Stream
    alias: str
    window: WindowSpec | None
    event_time: str | None
    drop_ratio: float | None
    drop_ratio_per: str | None  # the column that tells its sources apart
    regions: RegionJoin | None = None
    spatial: tuple[SpatialValue, ...] = ()
    following: Following | None = None  # it is a stream of events


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A selection (no aggregates), a window query (aggregates) or a join (several inputs)."""

    inputs: tuple[BoundStream, ...]
    items: tuple[BoundItem, ...]
    where: Expr | None
    keys: tuple[Expr, ...]
    having: Expr | None
    aggregated: bool
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> BoundStream:
        return self.inputs[0]
