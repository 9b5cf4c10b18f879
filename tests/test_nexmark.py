"""Nexmark: 200,000 events of an auction house, and what Flink answers to the same queries."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 8


@pytest.fixture(scope="module")
def bids(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bids as parquet files: auction, bidder, price, ts."""
    source = shared_data / "nexmark" / "nexmark_200k.csv.gz"
    if not source.exists():
        pytest.skip(f"{source.name} is not among the real data sets")
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if r["type"] == "bid"]
    table = pa.table(
        {
            "auction": pa.array([int(r["id_or_auction"]) for r in rows]),
            "bidder": pa.array([int(r["seller_or_bidder"]) for r in rows]),
            "price": pa.array([int(r["price_or_initial"]) for r in rows]),
            "ts": pa.array([int(r["ts_ms"]) * 1000 for r in rows], pa.timestamp("us", tz="UTC")),
        }
    )
    folder = tmp_path_factory.mktemp("bids")
    size = table.num_rows // FILES + 1
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), folder / f"{number}.parquet")
    return folder


def flink(shared_data: Path, name: str) -> list[tuple[dt.datetime, ...]]:
    with open(shared_data / "nexmark" / f"expected_flink_{name}.csv", encoding="utf-8") as lines:
        rows = list(csv.reader(lines))[1:]
    return sorted(
        (*(dt.datetime.fromisoformat(t + "+00:00") for t in r[:2]), *map(int, r[2:])) for r in rows
    )


def test_flink_and_penstock_agree(spark: SparkSession, bids: Path, shared_data: Path) -> None:
    with Engine(spark, bounded=True) as engine:
        engine.execute(
            "CREATE STREAM Bids (auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP) WITH "
            f"(source = 'file', path = '{bids}', format = 'parquet', event_time = 'ts', "
            "max_files_per_batch = 3)"
        )
        with engine.together():
            highest = engine.register(
                "SELECT max(price) AS maxprice, count(*) AS n, sum(price) AS s "
                "FROM Bids [RANGE 2 SECONDS]"
            )
            counted = engine.register(
                "SELECT auction, count(*) AS num FROM Bids [RANGE 10 SECONDS SLIDE 2 SECONDS] "
                "GROUP BY auction"
            )
        engine.finish(timeout=300)
        assert sorted(_rows(highest.results())) == flink(shared_data, "q7like_tumble2s_max_price")

        hottest: dict[tuple[dt.datetime, ...], int] = defaultdict(int)
        rows = _rows(counted.results())
        for start, end, _, number in rows:
            hottest[start, end] = max(hottest[start, end], number)
        hot = sorted(row for row in rows if row[3] == hottest[row[0], row[1]])
        assert hot == flink(shared_data, "q5_hop2s10s_hot_items")


def _rows(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
