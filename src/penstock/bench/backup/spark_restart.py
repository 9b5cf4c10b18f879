"""How long a Spark application is missed that is killed and started again from its checkpoint.

`python -m penstock.bench.backup.spark_restart DIRECTORY` is the smallest such application: tuples
from files into files. It says so when the first micro-batch after its start is committed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

_DONE = "committed"


def restart_seconds(directory: Path) -> float:
    """Run it, kill it, run it again: from then until it commits."""
    directory.mkdir(parents=True)
    _until_committed(directory)
    began = time.perf_counter()
    _until_committed(directory)
    return time.perf_counter() - began


def _until_committed(directory: Path) -> None:
    (directory / "in").mkdir(exist_ok=True)
    (directory / "in" / f"{time.time_ns()}.json").write_text('{"n": 1}\n')
    command = [sys.executable, "-m", __name__, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            if _DONE not in process.stdout.readline().decode():
                raise RuntimeError("the Spark application ended")
        finally:
            process.kill()


def _run(directory: Path) -> None:
    from penstock.runtime.session import start_spark

    spark = start_spark(memory="1g")
    tuples = spark.readStream.schema("n long").json(str(directory / "in"))
    query = (
        tuples.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    print(_DONE, flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
