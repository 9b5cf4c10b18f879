"""The golden queries, killed at random moments and started again until they are done.

The process gets SIGKILL: no handler runs, nothing is flushed. Whatever happens, the rows in the
files and the counts in the end are those of a straight run, and the killed engine leaves no process
behind.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from tests.chaos.processes import PATIENCE_S, kill, started, told, wait_for
from tests.golden.golden import expected_answers, golden_rows, write_golden


@pytest.mark.slow
def test_killed_engines_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    files = golden_rows(seed=3)
    write_golden(files, tmp_path / "in")
    for progress in (1, 7):  # result files that must be there before the next kill
        with started("tests.chaos.runner", tmp_path) as process:
            _wait_for_results(tmp_path, progress, process)
            time.sleep(rng.uniform(0, 1.5))
            assert process.poll() is None, told(tmp_path)
            kill(process)
    with started("tests.chaos.runner", tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, told(tmp_path)
    last = (tmp_path / "stdout").read_text(encoding="utf-8").splitlines()[-1]
    assert json.loads(last) == expected_answers(files)


def _results(folder: Path) -> int:
    return len(list((folder / "out").glob("selected/*.parquet")))


def _wait_for_results(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: _results(folder) >= count or process.poll() is not None)
