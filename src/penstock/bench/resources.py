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
from collections.abc import Mapping
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
    """How much of a core all processes use from now on, for so long.

    They are looked at every second, for what one has used is lost when it ends unless its parent
    waits for it, and Spark ends idle workers.
    """
    begin, ticks, before = time.perf_counter(), 0, own_processes() or {}
    while (left := begin + seconds - time.perf_counter()) > 0:
        time.sleep(min(left, 1.0))
        now = own_processes() or {}
        ticks += ticks_between(before, now)
        before = now
    return ticks / os.sysconf("SC_CLK_TCK") / (time.perf_counter() - begin)


def ticks_between(before: Mapping[int, list[str]], now: Mapping[int, list[str]]) -> int:
    """What processes have used between two looks, with children that have come and gone."""
    own = sum(_own(stat) - _own(before.get(pid)) for pid, stat in now.items())
    waited = sum(_waited(stat) - _waited(before[pid]) for pid, stat in now.items() if pid in before)
    ended = [stat for pid, stat in before.items() if pid not in now]  # known before they ended
    return own + max(0, waited - sum(_own(stat) + _waited(stat) for stat in ended))


def _own(stat: list[str] | None) -> int:
    return 0 if stat is None else int(stat[11]) + int(stat[12])


def _waited(stat: list[str]) -> int:
    """Of children that have ended and were waited for."""
    return int(stat[13]) + int(stat[14])


def jvm_heap_mb(spark: SparkSession, looks: int = 6, apart_s: float = 0.5) -> float:
    """What the JVM's objects take after garbage is collected: the least of some looks, since tasks
    that run at the moment have buffers of many megabytes."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    runtime = jvm.java.lang.Runtime.getRuntime()
    found = []
    for look in range(looks):
        time.sleep(apart_s if look else 0)
        jvm.java.lang.System.gc()
        found.append((runtime.totalMemory() - runtime.freeMemory()) / 2**20)
    return min(found)


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
