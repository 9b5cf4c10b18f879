from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.bench.join import on_spark
from penstock.bench.join.on_spark import DURABLE, IN_MEMORY, OURS, summary
from penstock.bench.join.spark_runs import STORES, Given, run, write_input
from penstock.bench.report import Value

GIVEN = Given(streams=3, selectivity=0.5, files=2, rows_per_file=300, files_per_batch=1, range_s=2)


def test_streams_share_the_keys_that_join(tmp_path: Path) -> None:
    write_input(tmp_path, GIVEN)
    ids = []
    for stream in range(3):
        table = pq.read_table(tmp_path / str(stream)).sort_by("ts")
        assert table.num_rows == 2 * 200 + 2 * 300  # a small file first and last
        ids.append(set(table.column("id").to_pylist()))
        assert len(ids[-1]) == table.num_rows
    everywhere = ids[0] & ids[1] & ids[2]
    assert 400 < len(everywhere) < 600
    assert ids[0] & ids[1] == everywhere  # who has one partner has all


@pytest.mark.slow
def test_every_engine_finds_the_same(spark, tmp_path: Path) -> None:
    write_input(tmp_path / "files", GIVEN)
    engines = on_spark.engines(spark, GIVEN, {IN_MEMORY: STORES[IN_MEMORY]})
    found = [run(spark, tmp_path / "files", GIVEN, start) for start in engines.values()]
    assert found[0].results.num_rows > 100
    assert found[0].results.equals(found[1].results)
    assert all(one.state_bytes > 0 and one.checkpoint_bytes > 0 for one in found)


def _row(
    streams: int, selectivity: float, engine: str, speed: float, mb: float
) -> dict[str, Value]:
    return {
        "streams": streams,
        "selectivity": selectivity,
        "engine": engine,
        "rows_per_s": speed,
        "state_mb": mb,
        "tables_mb": 30.0 if engine == OURS else 0.0,
        "checkpoint_mb": mb,
    }


def test_the_best_store_counts_and_of_two_streams_the_worst_selectivity() -> None:
    rows = [
        _row(3, 0.05, OURS, 900, 10),
        _row(3, 0.05, IN_MEMORY, 150, 200),
        _row(3, 0.05, DURABLE, 45, 50),
        _row(2, 0.05, OURS, 900, 10),
        _row(2, 0.05, IN_MEMORY, 300, 400),
        _row(2, 1.0, OURS, 600, 10),
        _row(2, 1.0, IN_MEMORY, 400, 400),
    ]
    found = summary(rows)
    assert found["ratio_vs_native"] == {"n2": 1.5, "n3": 6.0}
    assert found["ratio_vs_native_worst"] == {"n2": 1.5, "n3": 6.0}
    assert found["native_best"] == {"n2": IN_MEMORY, "n3": IN_MEMORY}
    assert found["ratio_vs_rocksdb_4"] == {"n3": 20.0}
    assert found["state_ratio_vs_native"] == 0.05
    assert found["state_and_tables_ratio_vs_native"] == pytest.approx(0.2)
