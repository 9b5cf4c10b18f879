"""What a benchmark ran on: enough to compare two reports, nothing that names a host."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, memory, load before the run, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("pyspark", "pyarrow", "numpy", "numba")},
    }


def cpu_seconds() -> float | None:
    """Processor time of this process, its JVM and their Python workers so far; None off Linux.

    Other programs on the machine stretch wall time but hardly this.
    """
    family = own_processes()
    if family is None:
        return None
    ticks = sum(sum(map(int, fields[11:15])) for fields in family.values())  # with ended children
    return ticks / os.sysconf("SC_CLK_TCK")


def python_memory_mb() -> tuple[float, float] | None:
    """Memory of this process without its JVM, and of the largest Python worker; None off Linux."""
    family = own_processes()
    if family is None:
        return None
    page_mb = os.sysconf("SC_PAGE_SIZE") / 2**20
    pages = {pid: int(fields[21]) for pid, fields in family.items() if not is_jvm(pid)}
    own = pages.pop(os.getpid())
    return own * page_mb, max(pages.values(), default=0) * page_mb


def own_processes() -> dict[int, list[str]] | None:
    """This process and all that come from it, with what the system says of each."""
    if not Path("/proc/self/stat").exists():
        return None
    found: dict[int, list[str]] = {}
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(OSError):  # it has ended
                text = (directory / "stat").read_text()
                found[int(directory.name)] = text.rpartition(")")[2].split()
    family = {os.getpid()}
    while more := {pid for pid, fields in found.items() if int(fields[1]) in family} - family:
        family |= more
    return {pid: found[pid] for pid in family if pid in found}


def is_jvm(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return True


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        pass
    return platform.processor() or platform.machine()
