"""Spark's workers run this Python, with the pyspark that is installed for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.runtime import worker_python
from penstock.runtime.worker_python import use_this_python

NAMES = ("PENSTOCK_PYTHON", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return monkeypatch


def test_workers_do_not_import_from_a_zip(spark: SparkSession) -> None:
    def where(_: object) -> list[str]:
        import pyspark

        return [sys.executable, pyspark.__file__]

    python, package = spark.sparkContext.parallelize([0], 1).map(where).collect()[0]
    assert python == sys.executable
    assert ".zip" not in package


def test_all_but_the_zips_stays_on_the_path(environment: pytest.MonkeyPatch) -> None:
    use_this_python()
    zips = ["/s/python/lib/pyspark.zip", "/s/python/lib/py4j-0.10.9.9-src.zip"]
    others = ["/with a space/*", "/s/jars/spark-core.jar", "/my/pyspark.zip"]
    environment.setenv("PYTHONPATH", ":".join([*zips, *others]))
    shown = subprocess.run(
        [os.environ["PYSPARK_PYTHON"], "-c", "import os; print(os.environ['PYTHONPATH'])", "x y"],
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip().split(":") == others


def test_what_a_user_has_set_stays(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    use_this_python()
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python3"


@pytest.mark.parametrize("case", ["not executable", "pyspark on the path only"])
def test_where_the_zips_are_needed_they_stay(
    environment: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    if case == "not executable":
        environment.setattr(worker_python, "_SCRIPT", tmp_path / "no.sh")
    else:
        home = Path(worker_python.pyspark.__file__).parent.parent
        environment.setenv("PYTHONPATH", str(home))
    use_this_python()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
