"""A SparkSession for penstock, and the settings that a ring needs in whatever session there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# What a ring's plan and its expressions rely on; taken over when a streaming query starts.
RING_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.adaptive.enabled": "false",
}


def start_spark(cores: int | None = None, memory: str = "4g") -> SparkSession:
    """Start Spark on this machine, quietly: no UI, no listener beyond loopback, no log noise."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{cores or '*'}]")
        .appName("penstock")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", memory)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "OFF")
        .config("spark.python.daemon.module", "penstock.runtime.daemon")
        .config("spark.sql.shuffle.partitions", str(cores or os.cpu_count() or 2))
        .config("spark.sql.warehouse.dir", os.path.join(os.getcwd(), "spark-warehouse"))
    )
    for key, value in RING_SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def ring_settings(spark: SparkSession, extra: dict[str, str] | None = None) -> Iterator[None]:
    """The session with a ring's settings for as long as a streaming query is built and started.

    Spark copies the settings when the query starts, so a user's session is left as it was.
    """
    wanted = RING_SETTINGS | (extra or {})
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
