"""Which Python Spark starts for workers and planners: this one, with the pyspark installed for it.

`worker_python.sh` says what is wrong with the one that Spark would take.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

_SCRIPT = Path(__file__).with_suffix(".sh")


def use_this_python() -> None:
    """Settle it in the environment, before the JVM starts; what a user has set stays."""
    os.environ["PENSTOCK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", _without_zips() or sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _without_zips() -> str | None:
    """The script, if it can be run and if pyspark is installed for this Python, and not only on a
    path that a launcher has set."""
    installed = Path(pyspark.__file__).parent.parent
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if installed.is_dir() and str(installed) not in paths and os.access(_SCRIPT, os.X_OK):
        return str(_SCRIPT)
    return None
