"""Engines in processes of their own: started, and killed with SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300


@contextmanager
def started(module: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A module of the tests run with WORKSPACE INPUT OUTPUT, all below `folder`."""
    places = [str(folder / name) for name in ("w", "in", "out")]
    with running(["-m", module, *places], folder) as process:
        yield process


@contextmanager
def running(arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Python with these arguments; what it says is in files of the folder."""
    process = _start(arguments, folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as errors:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
        )


def told(folder: Path) -> str:
    return (folder / "stderr").read_text(encoding="utf-8", errors="replace")[-3000:]


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the engine alone; Spark's JVM and its Python workers must follow by themselves."""
    family = descendants(process.pid)
    assert any("java" in command_of(pid) for pid in family)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(command_of(pid) for pid in family))


def kill_at(
    start: AbstractContextManager[subprocess.Popen[bytes]],
    folder: Path,
    query: str,
    results: int,
    then_s: float,
) -> bool:
    """Kill it a while after it has written so many more files of results, unless it is done."""

    def count() -> int:
        return len(list((folder / "out").glob(f"{query}/*.parquet")))

    before = count()
    with start as process:
        wait_for(lambda: count() >= before + results or process.poll() is not None)
        time.sleep(then_s)
        assert process.poll() in (None, 0), told(folder)
        if killed := process.poll() is None:
            kill(process)
        return killed


def descendants(pid: int) -> list[int]:
    """Children and theirs; those that end while they are looked for may be missing."""
    found: list[int] = []
    with suppress(FileNotFoundError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in _read(children).split():
                found += [int(child), *descendants(int(child))]
    return found


def command_of(pid: int) -> str:
    """The command line of a process; empty once it is gone."""
    return _read(Path(f"/proc/{pid}/cmdline"))


def _read(path: Path) -> str:
    """A file of /proc; empty if its thread or process has just ended."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def wait_for(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, "nothing happened for too long"
        time.sleep(0.05)
