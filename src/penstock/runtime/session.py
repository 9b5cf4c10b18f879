"""A SparkSession for penstock, and the settings that a ring needs in whatever session there is."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import EngineError
from penstock.runtime.class_archive import archive_options
from penstock.runtime.worker_python import use_this_python

_STATE = "org.apache.spark.sql.execution.streaming.state"
ROCKSDB = f"{_STATE}.RocksDBStateStoreProvider"
# Checkpoints are on a file system that every process sees as a directory. What Spark takes for such
# a one by itself starts a process for nearly every look at a file there: half of the time of a
# small micro-batch.
CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
STATE_STORES = {"rocksdb": ROCKSDB, "memory": f"{_STATE}.HDFSBackedStateStoreProvider"}

_settings = threading.RLock()  # they belong to the session: one thread at a time changes them

# What a ring's plan and its expressions rely on; taken over when a streaming query starts.
RING_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.adaptive.enabled": "false",
}


# What Spark remembers of jobs for a page that nobody opens: by default 1,000 of each kind, with
# the plans of all micro-batches among them.
_MEMORIES = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "20",
}


def start_spark(
    cores: int | None = None,
    memory: str = "4g",
    log: Path | None = None,
    java_options: str | None = None,
) -> SparkSession:
    """Start Spark on this machine, if this process has none: no UI, loopback only, log in a file.

    What the JVM and the Python workers print goes to `log` (to nowhere without one, to the screen
    with PENSTOCK_DEBUG set).
    """
    _require_java()
    use_this_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    width = cores or os.cpu_count() or 2
    conf = SparkConf().setAll(
        [
            ("spark.master", f"local[{width}]"),
            ("spark.app.name", "penstock"),
            ("spark.ui.enabled", "false"),
            ("spark.ui.showConsoleProgress", "false"),
            ("spark.driver.memory", memory),
            # before those that a user has set
            ("spark.driver.defaultJavaOptions", java_options or archive_options()),
            ("spark.driver.maxResultSize", "0"),  # a micro-batch's size is bounded by the source
            ("spark.driver.bindAddress", "127.0.0.1"),
            ("spark.driver.host", "127.0.0.1"),
            ("spark.python.daemon.module", "penstock.runtime.daemon"),
            ("spark.sql.shuffle.partitions", str(width)),
            ("spark.scheduler.mode", "FAIR"),
            *_MEMORIES.items(),
            *RING_SETTINGS.items(),
        ]
    )
    if SparkContext._active_spark_context is not None:  # somebody's own: used as it is
        return SparkSession.builder.getOrCreate()
    gateway = SparkContext._gateway
    if gateway is None:
        gateway = _launch(conf, log)
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _launch(conf: SparkConf, log: Path | None) -> Any:
    if os.environ.get("PENSTOCK_DEBUG"):
        return launch_gateway(conf)
    with open(os.devnull if log is None else log, "ab") as out:
        try:
            return launch_gateway(conf, {"stdout": out, "stderr": out})
        except Exception as error:
            hint = "run `penstock doctor`" + ("" if log is None else f"; Spark's log is {log}")
            raise EngineError(f"Spark did not start: {error}".split("\n")[0], hint) from None


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else None
    if (java is None or not java.exists()) and shutil.which("java") is None:
        raise EngineError(
            "Java is not installed",
            "install Java 17 or newer, e.g. apt install openjdk-17-jre-headless",
        )


def driver_host(spark: SparkSession) -> str:
    """Where workers reach the engine: loopback, unless Spark's executors run elsewhere."""
    if str(spark.sparkContext.master).startswith("local"):
        return "127.0.0.1"
    return spark.conf.get("spark.driver.host", None) or "127.0.0.1"


def executors_of(spark: SparkSession) -> int:
    """How many processes run tasks now; in local mode it is the driver."""
    context: Any = spark.sparkContext
    known = len(context._jsc.sc().statusTracker().getExecutorInfos())
    return max(1, known - (not str(context.master).startswith("local")))


def check_session(spark: SparkSession) -> None:
    """Refuse a session that rings cannot run in."""
    if "connect" in type(spark).__module__:
        raise EngineError(
            "Spark Connect sessions are not supported: the engine has to live in the driver",
            "make the session with SparkSession.builder.master(…), without remote(…)",
        )


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make a session this thread's active one: Spark looks data sources up there, not in the
    session that asks, so one made by `newSession` would not find its own."""
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def session_settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """The session with other settings for a while."""
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


@contextmanager
def ring_settings(spark: SparkSession, extra: dict[str, str] | None = None) -> Iterator[None]:
    """The session with a ring's settings for as long as a streaming query is built and started.

    Spark copies the settings when the query starts, so a user's session is left as it was.
    """
    wanted = RING_SETTINGS | (extra or {})
    with _settings, active_session(spark), session_settings(spark, wanted):
        yield


_POOL = "spark.scheduler.pool"


@contextmanager
def scheduled_in(spark: SparkSession, pool: str) -> Iterator[None]:
    """Let a streaming query that starts inside have its jobs in a pool of their own.

    With the scheduler's mode FAIR, pools take turns: a ring with many tasks does not keep others
    from having theirs run. With FIFO, as in most sessions that users bring, it changes nothing.
    """
    context = spark.sparkContext
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, pool)
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)  # type: ignore[arg-type]  # None takes it away
