"""What rings cost that have nothing to do: selections, windows and joins that cannot share one, on
files that have been read.

`python -m penstock.bench.rings.idle SECONDS` watches them for that long.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from pyspark.sql import SparkSession

from penstock.bench.contest import first_files, scratch
from penstock.bench.report import Report, Value
from penstock.bench.resources import cpu_share
from penstock.bench.rings.spark_runs import TIMEOUT_S, Taken, stream_of_files
from penstock.bench.tuples import Tuples, write_tuples
from penstock.runtime.engine import Engine
from penstock.runtime.session import start_spark

Row = dict[str, Value]
_TEXTS = (
    *(f"SELECT v + {n} AS x FROM S" for n in range(5)),
    *(f"SELECT max(v) + {n} AS x FROM S [RANGE 1 MINUTE]" for n in range(5)),
    *(
        f"SELECT a.{column} FROM S [RANGE 1 MINUTE] AS a, S [RANGE 1 MINUTE] AS b"
        " WHERE a.key = b.key"
        for column in ("v", "w")
    ),
)


@dataclass(frozen=True, slots=True)
class Sizes:
    seconds: float  # how long they are watched
    settle_s: float  # how long they have had nothing to do by then


FULL = Sizes(seconds=60.0, settle_s=60.0)
QUICK = Sizes(seconds=20.0, settle_s=20.0)


def idle(spark: SparkSession, sizes: Sizes, settings: dict[str, int] | None = None) -> Row:
    """The share of a core that all processes take, by ring; that of Spark alone beside it."""
    alone = cpu_share(sizes.seconds / 2)
    with scratch() as directory, Engine(spark, directory / "w", settings=settings) as engine:
        write_tuples(directory / "files", Tuples(1, 1000, 1))
        engine.execute(stream_of_files(first_files(directory / "files", directory), 1, "parquet"))
        with engine.together():
            for text in _TEXTS:
                engine.register(text, sink=Taken(False))
        engine.await_idle(TIMEOUT_S)
        time.sleep(sizes.settle_s)
        rings = len(spark.streams.active)
        share = cpu_share(sizes.seconds)
    return {
        "idle_rings": rings,
        "seconds": sizes.seconds,
        "cpu_share": share,
        "cpu_share_without_rings": alone,
        "cpu_share_per_ring": share / rings,
    }


def main(seconds: float) -> int:
    spark = start_spark()
    try:
        row = idle(spark, Sizes(seconds, seconds))
    finally:
        spark.stop()
    Report("rings: idle", True, [row], {}).show()
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else QUICK.seconds))
