"""Spark's classes as the JVM has them after loading, in a file: a start takes half of the time.

A JVM that starts Spark loads and checks some twenty thousand classes from 280 jars. Java can keep
them as they are in memory then (class data sharing) and map the file at the next start. The file
belongs to one build of Java and to these very jars; to any other JVM it is as if it was not there.
It is code, so it lies with the packages of this Python, and not where others can write.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from penstock.errors import EngineError

_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_PATIENCE_S = 300.0  # for writing the file, which takes about half a minute


def archive_path() -> Path:
    return Path(sys.prefix, "share", "penstock", f"spark-{pyspark.__version__}.jsa")


def archive_options() -> str:
    """For the JVM of a driver: start with the archive, if there is one."""
    path = archive_path()
    return f'"-XX:SharedArchiveFile={path}" {_QUIET}' if path.exists() else ""


@contextmanager
def new_archive() -> Iterator[str]:
    """Options for a JVM that is started inside, and ends in there: it leaves its classes."""
    path = archive_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder, path.name)
            yield f'"-XX:ArchiveClassesAtExit={made}" -XX:TieredStopAtLevel=1 {_QUIET}'
            if not made.exists():
                raise EngineError(
                    "Java has kept no classes", "starts take longer, all else is the same"
                )
            made.replace(path)
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}") from None


def await_end(jvm: subprocess.Popen[bytes]) -> None:
    """Let the JVM end by itself, as it does when nobody can write to it any more."""
    assert jvm.stdin is not None
    jvm.stdin.close()
    try:
        failed = jvm.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        raise EngineError(f"Java did not end within {_PATIENCE_S:.0f} s") from None
    if failed:  # a file that was not written to its end would take down every JVM that maps it
        raise EngineError(f"Java ended with code {failed}")
