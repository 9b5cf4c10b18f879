"""What Spark is told besides the plan when a ring starts."""

from __future__ import annotations

from penstock.plan.specs import Composition
from penstock.runtime.compile import is_chain, plan_settings
from penstock.runtime.rings.context import RingContext
from penstock.runtime.session import STATE_STORES, executors_of


def launch_settings(context: RingContext, composition: Composition) -> dict[str, str]:
    """Settings of the session while a ring of this composition is started in it."""
    own = composition.join is not None or composition.following is not None
    store = "rocksdb" if own else context.settings().state_store
    return {
        "spark.sql.shuffle.partitions": str(_partitions(context, composition)),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[store],
        **plan_settings(composition),
    }


def _partitions(context: RingContext, composition: Composition) -> int:
    """Tasks after a shuffle. A join's tables live in the one worker that its executor uses
    again and again: with two tasks, each worker would have to keep the tables of both."""
    if composition.join is None or is_chain(composition):
        return context.parallelism
    return context.settings().join_tasks or executors_of(context.spark)
