"""Errors of running queries are told by penstock, and not by PySpark besides."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock import Engine, EngineError
from penstock.testing import ScriptedStream, quick_engine

COLUMNS = "id INT, name STRING, ts TIMESTAMP"
CHAIN = (
    "SELECT x.id AS a, y.id AS b FROM S x [RANGE 9 SECONDS], T y [RANGE 9 SECONDS]"
    " WHERE x.id = y.name"
)


@pytest.fixture
def engine(spark: SparkSession) -> Iterator[Engine]:
    with quick_engine(spark) as made:
        yield made


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each error that PySpark wants to log: whether it does."""
    seen: list[bool] = []
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)

        def handle(record: logging.LogRecord, logger: logging.Logger = logger) -> None:
            seen.append(bool(logger.filter(record)))

        monkeypatch.setattr(logger, "handle", handle)
    return seen


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT id FROM S WHERE 10 / (id - 1) > 0", "(?i)division by zero"),
        (CHAIN, "(?i)cannot be cast|malformed"),
    ],
)
def test_a_ring_that_fails_on_its_tuples_logs_nothing(
    engine: Engine, written: list[bool], text: str, error: str
) -> None:
    streams = [ScriptedStream(engine, name, COLUMNS, event_time="ts") for name in "ST"]
    engine.register(text, name="q")
    for stream in streams:
        stream.push([{"id": 1, "name": "no number", "ts": 1}])
    with pytest.raises(EngineError, match=error):
        engine.await_idle()
    assert written  # there was something
    assert not any(written)
