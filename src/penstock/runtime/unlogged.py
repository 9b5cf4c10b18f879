"""Errors that Spark raises to penstock, which the user is told of in penstock's words.

PySpark writes each of them, raised or not, with its stack, to stderr: some 30 kB for a division by
zero in a running query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pyspark.logger import PySparkLogger

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_asking: ContextVar[bool] = ContextVar("asking", default=False)


def _is_somebody_elses(_: logging.LogRecord) -> bool:
    return not _asking.get()


@contextmanager
def errors_unlogged() -> Iterator[None]:
    """Spark's errors reach the user in penstock's words, so PySpark need not log them as well."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_is_somebody_elses)  # once, however often
    before = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(before)
