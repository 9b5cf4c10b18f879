"""What all parts of an engine's ring management need of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from penstock.plan.catalog import Stream
from penstock.runtime.derived.exchange import Exchange
from penstock.runtime.dispatch import Outlets
from penstock.runtime.registry import QueryRow, Registry
from penstock.runtime.settings import Settings
from penstock.runtime.sinks.delivery import Outlet
from penstock.runtime.workspace import Workspace


@dataclass(frozen=True, slots=True)
class RingContext:
    """condition_of: the WHERE of a query as Spark SQL over its stream's columns; None without one.

    forget_slot: what the engine keeps for a query that is dropped or refused; must not wait.
    bounded: whether the engine reads what there is and ends.
    """

    spark: SparkSession
    workspace: Workspace
    registry: Registry
    settings: Callable[[], Settings]
    find_stream: Callable[[str], Stream | None]
    sink_of: Callable[[QueryRow], Outlet]
    condition_of: Callable[[QueryRow], str | None]
    forget_slot: Callable[[int], None]
    outlets: Outlets
    exchange: Exchange
    clock_us: Callable[[], int]
    bounded: bool

    @property
    def parallelism(self) -> int:
        return self.settings().parallelism or int(self.spark.sparkContext.defaultParallelism)

    def holds(self, stream: Stream, drop_ratio: float | None) -> bool:
        """A bounded run is exact unless the user allowed a loss: nothing is late until the end."""
        return self.bounded and stream.estimator is None and drop_ratio is None
