"""A process that is killed while its sinks fail and are tried again: every row once, in the end."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.chaos.processes import running, told

BATCHES = 200
KILLS = 2


@pytest.mark.slow
def test_files_have_every_row_once_whenever_the_process_is_killed(tmp_path: Path) -> None:
    arguments = ["-m", "tests.chaos.quarantine_runner", str(tmp_path), str(BATCHES)]
    for _ in range(KILLS):
        before = _committed(tmp_path)
        with running(arguments, tmp_path) as process:
            while _committed(tmp_path) <= before:
                assert process.poll() is None, told(tmp_path)
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.2))  # then it is killed
    with running(arguments, tmp_path) as process:
        assert process.wait(timeout=120) == 0, told(tmp_path)
    assert (tmp_path / "stdout").read_text().split() == ["running"]
    files = sorted((tmp_path / "out").glob("*.parquet"))
    rows = [n for file in files for n in pq.read_table(file).column("n").to_pylist()]
    assert rows == list(range(BATCHES))


def _committed(folder: Path) -> int:
    path = folder / "committed"
    return int(path.read_text()) if path.exists() else -1
