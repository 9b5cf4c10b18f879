"""The plan of an EVENTS ring: one shuffle by lanes of objects, one stateful operator."""

from __future__ import annotations

import json
from dataclasses import asdict

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.runtime.config import SHIFT_US, StageConfig
from penstock.runtime.following.operator import FollowingOperator
from penstock.runtime.following.stage import LANE, LANES, PUNCTUATION, VERSION
from penstock.runtime.joining.operator import unpack
from penstock.runtime.packing import PACKED


def followed(
    tuples: DataFrame, punctuation: DataFrame | None, config: StageConfig, ddl: str
) -> DataFrame:
    """Events with their slots, in columns as `ddl` has them.

    punctuation: where Spark reads the tuples, it has to come by a way of its own while there are
    none.
    """
    if punctuation is not None:
        lanes = F.explode(F.sequence(F.lit(0), F.lit(LANES - 1))).alias(LANE)
        at_us = f"unix_micros(`__end`) - {SHIFT_US} AS {PUNCTUATION}"
        ends = punctuation.select("__end", lanes)
        tuples = tuples.unionByName(
            ends.selectExpr(LANE, f"0L AS {VERSION}", at_us, f"binary(NULL) AS {PACKED}")
        )
    operator = FollowingOperator(json.dumps(asdict(config)))
    found = tuples.groupBy(LANE).transformWithState(operator, f"{PACKED} binary", "append", "None")
    return found.mapInArrow(unpack, ddl)
