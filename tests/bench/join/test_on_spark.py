from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.bench.join import pieces, with_spark
from penstock.bench.join.cells import DURABLE, FULL, IN_MEMORY, OURS, QUICK, STORED, STREAMS, SWEEP
from penstock.bench.join.on_spark import digest, engine
from penstock.bench.join.spark_runs import STORES, Given, run, write_input
from penstock.bench.join.spark_summary import agree, summary
from penstock.bench.report import Report, Value

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
    starts = [engine(spark, GIVEN, name) for name in (OURS, IN_MEMORY)]
    found = [run(spark, tmp_path / "files", GIVEN, start) for start in starts]
    assert found[0].results.num_rows > 100
    assert digest(found[0].results) == digest(found[1].results)
    assert digest(found[0].results) != digest(found[0].results.slice(1))
    assert all(one.state_bytes > 0 and one.checkpoint_bytes > 0 for one in found)


def _row(
    part: str, streams: int, selectivity: float, engine: str, speed: float, mb: float
) -> dict[str, Value]:
    return {
        "run": 0,
        "part": part,
        "streams": streams,
        "selectivity": selectivity,
        "engine": engine,
        "rows": 1000,
        "digest": f"{streams} {selectivity}",
        "restart_s": None,
        "rows_per_s": speed,
        "cpu_s": 2000 / speed,
        "state_mb": mb,
        "tables_mb": 30.0 if engine == OURS else 0.0,
        "checkpoint_mb": mb,
    }


ROWS = [
    _row(STREAMS, 3, 0.05, OURS, 900, 10),
    _row(STREAMS, 3, 0.05, IN_MEMORY, 150, 200),
    _row(STORED, 3, 0.05, OURS, 450, 10),
    _row(STORED, 3, 0.05, IN_MEMORY, 150, 200),
    _row(STORED, 3, 0.05, DURABLE, 15, 50),
    _row(STREAMS, 2, 0.05, OURS, 900, 10),
    _row(STREAMS, 2, 0.05, IN_MEMORY, 300, 400),
    _row(SWEEP, 2, 1.0, OURS, 600, 10),
    _row(SWEEP, 2, 1.0, IN_MEMORY, 400, 400),
]


def test_the_best_store_counts_and_of_two_streams_the_worst_selectivity() -> None:
    slower = ROWS[0] | {"run": 1, "rows_per_s": 800}
    found = summary([*ROWS, slower])
    assert found["ratio_vs_native"] == {"n2": 1.5, "n3": 6.0}
    assert found["ratio_vs_native_worst"] == {"n2": 1.5, "n3": 3.0}
    assert found["cpu_ratio_vs_native"] == pytest.approx({"n2": 3.0, "n3": 6.0})
    assert found["native_best"] == {"n3": IN_MEMORY}
    assert found["ratio_vs_native_by_store"] == {"n3": {IN_MEMORY: 3.0, DURABLE: 30.0}}
    assert found["ratio_vs_rocksdb_4"] == {"n3": 30.0}
    assert found["state_ratio_vs_native"] == 0.05
    assert found["state_and_tables_ratio_vs_native"] == pytest.approx(0.2)


def test_the_report_shows_and_draws_what_was_measured(tmp_path: Path) -> None:
    kernels = Report("join", True, [{"experiment": "1"}], {"flushes": 1}, True, {})
    report = with_spark(kernels, ROWS, summary(ROWS), agrees=False)
    assert not report.agrees
    assert report.summary["results_equal"] is False
    assert report.summary["flushes"] == 1
    assert [row["experiment"] for row in report.rows[1:3]] == ["4 on Spark, streams"] * 2
    pytest.importorskip("matplotlib", reason="the bench extra is not installed")
    from penstock.bench.join.plots import _on_spark

    _on_spark(report.series["on_spark"]).savefig(tmp_path / "drawn.png")


def test_results_of_one_input_must_be_the_same() -> None:
    assert agree(ROWS)
    assert not agree([*ROWS[:-1], ROWS[-1] | {"digest": "another"}])


@pytest.mark.parametrize("sizes", [FULL, QUICK])
def test_every_number_of_streams_meets_the_best_store_and_the_durable_one(sizes) -> None:
    cells = list(sizes.cells())
    assert len({tuple(cell.facts.values()) for cell in cells}) == len(cells)
    for part in (STREAMS, SWEEP):
        for streams in sizes.counts[part]:
            engines = {c.engine for c in cells if c.part == part and c.given.streams == streams}
            durable = part == STREAMS and streams in sizes.durable
            assert engines == ({OURS, IN_MEMORY, DURABLE} if durable else {OURS, IN_MEMORY})
    assert {c.engine for c in cells if c.part == STORED} == {OURS, *sizes.stores}
    if sizes is FULL:
        assert {c.engine for c in cells if c.part == STORED} == {OURS, *STORES}
        assert {c.given.streams for c in cells if c.part == STORED} == {2, 3, 4, 6}


def test_a_run_goes_on_with_the_cells_that_are_missing(tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "cells.jsonl"
    begun: list[str] = []

    def two_at_a_time(cells, go_on):
        for cell in cells[:2]:
            begun.append(cell.engine)
            facts = (cell.part, cell.given.streams, cell.given.selectivity, cell.engine)
            yield _row(*facts, 100, 10) | cell.facts

    monkeypatch.setattr(pieces, "rows_of", two_at_a_time)
    cells = list(QUICK.cells())
    for done in range(2, len(cells), 2):
        assert pieces.main([str(file), "--quick"]) == 3
        with file.open("a") as half:
            half.write('{"part": "str\n')  # as a killed run leaves it
        assert len(pieces.rows_in(file)) == len(begun) == done
    assert pieces.missing(cells, pieces.rows_in(file)) == cells[done:]
    monkeypatch.setattr(pieces, "contend", lambda *_: pytest.fail("cells are missing"))
    with pytest.raises(pytest.fail.Exception):
        pieces.main([str(file), "--quick"])
    assert pieces.missing(cells, pieces.rows_in(file)) == []
