"""Starting processes: what they import, and that they share or do without the compiler's cache."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import penstock

SOURCE = Path(penstock.__file__).parent.parent
USE = """
import numpy as np
from penstock.kernels.columns import double_keys
less, more = double_keys(np.array([-1.0, 2.0]))
assert less < more
"""
HIT = "assert sum(double_keys.stats.cache_hits.values()) == 1, double_keys.stats"
PURE = """
import sys, penstock.plan.specs, penstock.kernels.partials
assert 'numba' not in sys.modules
"""


def start(code: str, path: Path = SOURCE, **environment: str) -> subprocess.Popen[str]:
    variables = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    variables |= {"PYTHONPATH": str(path), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=variables, stderr=subprocess.PIPE, text=True
    )


def assert_succeeds(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_plan_and_partials_load_no_compiler() -> None:
    assert_succeeds(start(PURE))


def test_processes_that_start_at_once_on_an_empty_cache_fill_it_for_the_next(
    tmp_path: Path,
) -> None:
    processes = [start(USE, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(4)]
    for process in processes:
        assert_succeeds(process)
    assert_succeeds(start(USE + HIT, NUMBA_CACHE_DIR=str(tmp_path)))


@pytest.mark.parametrize("home", ["writable", "missing"])
def test_kernels_run_from_an_archive_with_or_without_a_place_for_the_cache(
    tmp_path: Path, home: str
) -> None:
    archive = tmp_path / "penstock.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in (SOURCE / "penstock").rglob("*.py"):
            out.write(file, file.relative_to(SOURCE))
    place = str(tmp_path) if home == "writable" else "/dev/null/none"
    assert_succeeds(start(USE, archive, HOME=place, XDG_CACHE_HOME=place))
