"""Checkpoints as files: what Hadoop says of them does not keep a ring from starting again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.runtime.rings.ring import Ring
from penstock.testing import ScriptedStream, quick_engine

TEXT = "SELECT count(*) AS n FROM S [RANGE 10 SECONDS]"


def test_checksums_of_other_contents_are_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    """As if killed after a file was replaced, and before its checksum was."""
    source = {"event_time": "ts", "slack": "0 s", "directory": tmp_path / "in"}
    with quick_engine(spark, tmp_path / "w") as engine:
        stream = ScriptedStream(engine, "S", "id INT, ts TIMESTAMP", **source)
        query = engine.register(TEXT, name="q")
        stream.push([{"id": n, "ts": n} for n in range(5)])
        engine.await_idle()
        checkpoint = engine.workspace.checkpoint(query.status.ring)
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    for path in files:
        if not path.name.startswith("."):
            path.with_name(f".{path.name}.crc").write_bytes(b"crc\0\0\0\2\0\0\0\0\0")
    with quick_engine(spark, tmp_path / "w") as engine:
        stream.push([{"id": n, "ts": n} for n in range(5, 30)])
        engine.await_idle()
        assert engine.query("q").results().column("n").to_pylist() == [10, 10]
        assert engine.rings()[0]["state"] == "running"


def test_a_first_entry_that_was_being_written_is_no_harm(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if stopped, or killed, while Spark wrote the first of all offsets."""
    start = Ring.start

    def start_after_another(ring: Ring, *arguments: Any) -> None:
        for log in ("offsets", "commits"):
            folder = Path(ring._checkpoint) / log
            folder.mkdir(parents=True)
            (folder / ".0.1f0c7a6e.tmp").write_text("v1\n{")
        start(ring, *arguments)

    monkeypatch.setattr(Ring, "start", start_after_another)
    with quick_engine(spark) as engine:
        stream = ScriptedStream(engine, "S", "id INT, ts TIMESTAMP", event_time="ts")
        query = engine.register("SELECT id FROM S")
        stream.push([{"id": n, "ts": n} for n in range(5)])
        engine.await_idle()
        assert sorted(query.results().column("id").to_pylist()) == list(range(5))
