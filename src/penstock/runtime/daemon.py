"""Spark's Python worker daemon with penstock loaded before it forks.

Loading numba and the compiled kernels takes well over a second. Done once in the daemon, every
worker that it forks has them at once. Spark collects a worker's garbage after every task: what was
loaded before the fork is frozen, so that this does not look through all of it each time.

Workers make large arrays in every micro-batch. glibc gives such memory back to the system at once,
and taking it again costs a page fault for every 4 KB: told to, it keeps it. It also has an arena
for each thread, and what was freed in one is not there for the others; nor is what Arrow's own pool
keeps. With one arena for all, a join in two threads has less than half of the page faults.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import suppress

import pyarrow as pa
from pyspark.daemon import manager

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of glibc's mallopt
_LARGEST = 2**30


def keep_memory() -> None:
    with suppress(AttributeError, OSError):  # another libc
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST)
        libc.mallopt(_TRIM_THRESHOLD, _LARGEST)
        libc.mallopt(_ARENA_MAX, 1)
        pa.set_memory_pool(pa.system_memory_pool())


if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:
        import penstock.runtime.joining.worker
        import penstock.runtime.sources.reading
        import penstock.runtime.stage  # noqa: F401
    keep_memory()
    gc.freeze()
    manager()
