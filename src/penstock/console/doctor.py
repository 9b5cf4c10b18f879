"""`penstock doctor`: what penstock needs, looked at one by one, each with what to do about it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.text import Text

from penstock import __version__
from penstock.console.failures import FAILED, OK, debugging
from penstock.console.progress import engine_for, working
from penstock.errors import PenstockError

_GB = 1024**3
_PYTHON = (3, 11)
_JAVA = 17
_MEMORY_GB = 4.0  # what Spark is given unless --set memory says otherwise
_DISK_GB = 2.0
_ROWS = 10_000
_PROBE = f"""
    CREATE STREAM Probe (id INT, ts TIMESTAMP)
      WITH (source = 'generator', rate = 1000, rows = {_ROWS}, event_time = 'ts');
    CREATE QUERY probe AS SELECT count(*) AS n FROM Probe [RANGE 1 HOUR];
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """`state`: ok, warn (works, with care) or fail."""

    what: str
    state: str
    detail: str
    remedy: str = ""


def run_doctor(workspace: Path | None) -> int:
    console = Console(highlight=False, soft_wrap=True)
    failed = False
    for check in checks(workspace):
        try:
            finding = check()
        except Exception as error:  # whatever a check meets is its finding
            if debugging():
                raise
            what = check.__name__.strip("_").replace("_", " ")
            hint = error.hint if isinstance(error, PenstockError) else None
            first = (str(error).splitlines() or [type(error).__name__])[0]
            finding = Finding(what, "fail", first, hint or "penstock --debug doctor shows more")
        failed = failed or finding.state == "fail"
        _print(console, finding)
    console.print("something is missing: see above" if failed else "all fine")
    return FAILED if failed else OK


def _print(console: Console, finding: Finding) -> None:
    colour = {"ok": "green", "warn": "yellow", "fail": "bold red"}[finding.state]
    console.print(
        Text.assemble((f"{finding.state:<5}", colour), f"{finding.what:<12}", finding.detail)
    )
    if finding.remedy and finding.state != "ok":
        console.print(Text(f"{'':17}→ {finding.remedy}"))


def checks(workspace: Path | None) -> Iterator[Callable[[], Finding]]:
    yield python
    yield java
    yield packages
    yield machine
    yield lambda: place(workspace)
    yield kernels
    yield spark


def python() -> Finding:
    detail = f"{platform.python_version()} ({sys.executable}), penstock {__version__}"
    if sys.version_info < _PYTHON:
        return Finding("python", "fail", detail, "use Python 3.11 or newer")
    return Finding("python", "ok", detail)


def java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"install Java {_JAVA} or newer (apt-get install openjdk-17-jre-headless)"
    if path is None or not Path(path).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the PATH"
        return Finding("java", "fail", where, remedy + (", or unset JAVA_HOME" if home else ""))
    told = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30)
    major = java_major(told.stderr + told.stdout)
    if major is None or major < _JAVA:
        return Finding("java", "fail", f"version {major or 'unknown'} at {path}", remedy)
    return Finding("java", "ok", f"version {major} at {path}")


def java_major(text: str) -> int | None:
    """The major version in what `java -version` prints.

    >>> java_major('openjdk version "17.0.9" 2023-10-17'), java_major('java version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def packages() -> Finding:
    names = ("pyspark", "pyarrow", "numpy", "numba", "sqlglot")
    found, missing = [], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        remedy = "install penstock again, with its dependencies"
        return Finding("packages", "fail", f"missing: {', '.join(missing)}", remedy)
    return Finding("packages", "ok", ", ".join(found))


def machine() -> Finding:
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _GB
    detail = f"{cores} cores, {memory:.1f} GB of memory"
    if memory < _MEMORY_GB:
        remedy = f"Spark is given {_MEMORY_GB:.0f} GB: say less, --set memory=1g"
        return Finding("machine", "warn", detail, remedy)
    return Finding("machine", "ok", detail)


def place(workspace: Path | None) -> Finding:
    """Where things are kept: writable, with room."""
    directory = Path(tempfile.gettempdir()) if workspace is None else workspace.absolute()
    existing = next(p for p in (directory, *directory.parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "name a directory that can be written: --workspace DIR"
        return Finding("workspace", "fail", f"{existing}: {reason}", remedy)
    free = shutil.disk_usage(existing).free / _GB
    detail = f"{directory} can be written, {free:.1f} GB free"
    if free < _DISK_GB:
        return Finding("workspace", "warn", detail, "make room, or use another --workspace")
    return Finding("workspace", "ok", detail)


def kernels() -> Finding:
    began = time.monotonic()
    with working("compiling kernels"):
        from penstock.kernels.jit import warm_up

        warm_up()
    return Finding("kernels", "ok", f"compiled or found in the cache in {since(began)}")


def spark() -> Finding:
    began = time.monotonic()
    with engine_for(bounded=True) as engine:
        started = since(began)
        began = time.monotonic()
        engine.execute(_PROBE)
        with working("running a query"):
            engine.finish(300)
        counted = engine.query("probe").results().to_pydict().get("n")
        ran = since(began)
    if counted != [_ROWS]:
        remedy = "penstock --debug doctor shows Spark's log"
        return Finding("spark", "fail", f"counted {counted} of {_ROWS} rows", remedy)
    return Finding("spark", "ok", f"started in {started}, counted {_ROWS:,} rows in {ran}")


def since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
