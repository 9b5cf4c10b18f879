"""One Spark session, the data sets and how Hypothesis searches, for all tests and docstrings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent

# Java's second compiler takes a third of the processor for minutes, and threads that collect
# garbage beside the program a tenth; no test runs long enough to have that back. The JVMs of
# processes that tests start inherit it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# The first call of a compiled kernel takes seconds, so no deadline. CI searches the same examples
# every time; a developer's machine looks for new ones.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
    # Files that take long come first: what is left in the end is short, and all workers have some.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: starting one takes seconds, and the process can hold only one."""
    from pyspark.sql import SparkSession

    from penstock.runtime.worker_python import use_this_python

    # Before the JVM starts, which hands its environment to the workers: the same Python as here,
    # and the root on its path, since functions of test modules travel by name.
    use_this_python()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
        for key, value in spark_options(tmp_path_factory.mktemp("spark")).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        for query in session.streams.active:
            query.stop()
        session.stop()


def spark_options(scratch: Path) -> dict[str, str]:
    from penstock.runtime.class_archive import archive_options

    state_store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    return {
        "spark.driver.defaultJavaOptions": archive_options(),
        "spark.driver.memory": "4g",
        "spark.python.daemon.module": "penstock.runtime.daemon",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": state_store,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


@pytest.fixture(autouse=True)
def doctest_session(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    """Examples in docstrings may use `spark`; those that do not start none."""
    test = getattr(request.node, "dtest", None)
    if test is not None and any("spark" in example.source for example in test.examples):
        doctest_namespace["spark"] = request.getfixturevalue("spark")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory of real data sets, which lies beside the repository and not in it."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("the real data sets are not beside this repository (../shared/data)")
    return path
