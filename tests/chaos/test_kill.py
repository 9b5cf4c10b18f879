"""The golden queries, killed at random moments and started again until they are done.

The process gets SIGKILL: no handler runs, nothing is flushed. Whatever happens, the rows in the
files and the counts in the end are those of a straight run, and the killed engine leaves no process
behind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.golden.golden import expected_answers, golden_rows, write_golden

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300


@pytest.mark.slow
def test_killed_engines_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random(os.environ.get("PENSTOCK_CHAOS_SEED", "7"))
    files = golden_rows(seed=3)
    write_golden(files, tmp_path / "in")
    for progress in (1, 7):  # result files that must be there before the next kill
        with _started(tmp_path) as process:
            _wait_for_results(tmp_path, progress, process)
            time.sleep(rng.uniform(0, 1.5))
            assert process.poll() is None, _told(tmp_path)
            _kill(process)
    with _started(tmp_path) as process:
        assert process.wait(PATIENCE_S) == 0, _told(tmp_path)
    last = (tmp_path / "stdout").read_text(encoding="utf-8").splitlines()[-1]
    assert json.loads(last) == expected_answers(files)


@contextmanager
def _started(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = _start(folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _start(folder: Path) -> subprocess.Popen[bytes]:
    places = [str(folder / name) for name in ("w", "in", "out")]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.runner", *places],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
        )


def _results(folder: Path) -> int:
    return len(list((folder / "out").glob("selected/*.parquet")))


def _wait_for_results(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    _wait(lambda: _results(folder) >= count or process.poll() is not None)


def _told(folder: Path) -> str:
    return (folder / "stderr").read_text(encoding="utf-8", errors="replace")[-3000:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the engine alone; Spark's JVM and its Python workers must follow by themselves."""
    family = _descendants(process.pid)
    assert any("java" in _command(pid) for pid in family)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait(lambda: not any(_command(pid) for pid in family))


def _descendants(pid: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(children).split():
            found += [int(child), *_descendants(int(child))]
    return found


def _command(pid: int) -> str:
    """The command line of a process; empty once it is gone."""
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> str:
    """A file of /proc; empty if its thread or process has just ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, "nothing happened for too long"
        time.sleep(0.05)
