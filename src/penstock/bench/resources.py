"""What an engine takes of the machine: processor time, memory, threads and files, by process.

There are three kinds of processes: the driver's Python, its JVM, and all Python that Spark starts
(workers, their daemon, the planners of sources). Memory of the last is counted by what each has for
itself and its share of what they have in common, for they are forked from one another.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.bench.machine import is_jvm, own_processes

_SHARE = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds so far, and what is held now; zero off Linux."""

    python_cpu_s: float = 0.0
    jvm_cpu_s: float = 0.0
    workers_cpu_s: float = 0.0
    python_mb: float = 0.0
    jvm_mb: float = 0.0
    workers_mb: float = 0.0
    workers: int = 0
    threads: int = 0  # of the driver's Python and of its JVM
    files: int = 0  # that these two have open

    @property
    def cpu_s(self) -> float:
        return self.python_cpu_s + self.jvm_cpu_s + self.workers_cpu_s

    @property
    def driver_cpu_s(self) -> float:
        return self.python_cpu_s + self.jvm_cpu_s

    @property
    def driver_mb(self) -> float:
        return self.python_mb + self.jvm_mb


def usage() -> Usage:
    """Of this process and all that come from it."""
    found: Counter[str] = Counter()
    for pid, stat in (own_processes() or {}).items():
        kind = "python" if pid == os.getpid() else "jvm" if is_jvm(pid) else "workers"
        found[f"{kind} ticks"] += sum(map(int, stat[11:15]))  # with those of ended children
        found[f"{kind} bytes"] += _share_bytes(pid) if kind == "workers" else _resident_bytes(stat)
        if kind == "workers":
            found["workers"] += 1
        else:
            found["threads"] += int(stat[17])
            found["files"] += _open_files(pid)
    second = os.sysconf("SC_CLK_TCK")
    return Usage(
        python_cpu_s=found["python ticks"] / second,
        jvm_cpu_s=found["jvm ticks"] / second,
        workers_cpu_s=found["workers ticks"] / second,
        python_mb=found["python bytes"] / 2**20,
        jvm_mb=found["jvm bytes"] / 2**20,
        workers_mb=found["workers bytes"] / 2**20,
        workers=found["workers"],
        threads=found["threads"],
        files=found["files"],
    )


def cpu_share(seconds: float) -> float:
    """How much of a core all processes use from now on, for so long."""
    begin, before = time.perf_counter(), usage()
    time.sleep(seconds)
    return (usage().cpu_s - before.cpu_s) / (time.perf_counter() - begin)


def jvm_heap_mb(spark: SparkSession) -> float:
    """What the JVM's objects take after garbage is collected."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return (runtime.totalMemory() - runtime.freeMemory()) / 2**20


def _resident_bytes(stat: list[str]) -> int:
    return int(stat[21]) * os.sysconf("SC_PAGE_SIZE")


def _share_bytes(pid: int) -> int:
    with suppress(OSError):  # it has ended
        if found := _SHARE.search(Path(f"/proc/{pid}/smaps_rollup").read_text()):
            return int(found[1]) * 1024
    return 0


def _open_files(pid: int) -> int:
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0
