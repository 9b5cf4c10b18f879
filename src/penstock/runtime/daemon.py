"""Spark's Python worker daemon with penstock loaded before it forks.

Loading numba and the compiled kernels takes well over a second. Done once in the daemon, every
worker that it forks has them at once.
"""

from __future__ import annotations

import sys

from pyspark.daemon import manager

if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:
        import penstock.runtime.sources.reading
        import penstock.runtime.stage  # noqa: F401
    manager()
