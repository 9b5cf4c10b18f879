"""Queues as source and sink of Spark applications that are no engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.exchange.processes import SCHEMA, TOKEN

import penstock
from penstock.exchange.client import NodeClient
from penstock.exchange.node import Node
from penstock.exchange.queues import Queues
from penstock.exchange.wire import NodeAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[dict[str, str]]:
    spark.dataSource.register(penstock.QueueSource)
    (tmp_path / "token").write_text(TOKEN)
    node = Node(Queues(tmp_path / "node"), TOKEN)
    yield {"node": node.address.uri, "token_file": str(tmp_path / "token"), "queue": "numbers"}
    node.stop()


def _write(spark: SparkSession, folder: Path, place: dict[str, str], name: str) -> None:
    """All that is in the folder now, in micro-batches of a file each."""
    source = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).parquet(f"{folder}")
    query = source.writeStream.format("penstock_queue").options(**place, writer="w")
    query = query.option("checkpointLocation", f"{folder}-{name}").trigger(availableNow=True)
    query.start().awaitTermination(60)


def _read(spark: SparkSession, place: dict[str, str], checkpoint: Path) -> list[int]:
    found: list[int] = []

    def keep(frame: Any, batch: int) -> None:
        found.extend(frame.toArrow().column("n").to_pylist())

    source = spark.readStream.format("penstock_queue").options(**place, consumer="reader").load()
    assert source.schema.simpleString() == "struct<n:bigint>"
    query = source.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    running = query.start()
    running.processAllAvailable()
    running.stop()
    return sorted(found)


def _add(spark: SparkSession, folder: Path, first: int, end: int) -> None:
    frame = spark.range(first, end, numPartitions=1).toDF("n")
    frame.write.mode("append").parquet(str(folder))


def test_what_one_application_writes_another_reads_once(
    spark: SparkSession, tmp_path: Path, place: dict[str, str]
) -> None:
    folder = tmp_path / "in"
    _add(spark, folder, 0, 10)
    with NodeClient(NodeAddress(place["node"], TOKEN)) as client:
        queue = client.create("numbers", SCHEMA, entry=True)
        client.register(queue, "reader")
        _write(spark, folder, place, "checkpoint")
        end = client.latest(queue)
        assert _read(spark, place, tmp_path / "read") == list(range(10))
        assert client.describe(queue)["consumers"]["reader"]["delivered"] == end
        _add(spark, folder, 10, 20)
        _write(spark, folder, place, "lost-its-checkpoint")  # the first micro-batch is known
        assert client.describe(queue)["rings"]["w"]["last"] == 1
        assert _read(spark, place, tmp_path / "read") == list(range(10, 20))
        assert client.describe(queue)["first"] >= end


def test_what_is_missing_or_wrong_is_said(spark: SparkSession, place: dict[str, str]) -> None:
    source = spark.readStream.format("penstock_queue")
    with pytest.raises(Exception, match="there is no queue numbers on this node"):
        source.options(**place, consumer="reader").load()
    del place["queue"]
    with pytest.raises(Exception, match="option queue is missing"):
        spark.readStream.format("penstock_queue").options(**place).load()
