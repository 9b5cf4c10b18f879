"""Sinks: exactly once, bounded, and apart from each other."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from penstock.errors import PenstockError
from penstock.runtime.sinks.files import FileSink
from penstock.runtime.sinks.log import ResultLog
from penstock.runtime.sinks.matched import Matched
from penstock.runtime.sinks.memory import MemorySink
from penstock.runtime.sinks.rows import json_lines
from penstock.runtime.sinks.spec import SinkSpec, sink_of


def _rows(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def _matched(slots: list[list[int]], *values: int) -> Matched:
    return Matched(_rows(*values), pa.array(slots, pa.list_(pa.int32())))


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_replayed_batch_replaces_its_own_file(tmp_path: Path, format_: str) -> None:
    sink = FileSink(str(tmp_path / "out"), format_, "my query!")
    for batch, rows in ((0, _rows(1, 2)), (1, _rows(3)), (1, _rows(3))):
        sink.deliver(rows, "ring", batch)
    files = sorted((tmp_path / "out").iterdir())
    assert [f.name for f in files] == [f"my_query_-ring-0000000{i}.{format_}" for i in (0, 1)]
    read = {
        "parquet": lambda f: pq.read_table(f).column("n").to_pylist(),
        "json": lambda f: [json.loads(line)["n"] for line in f.read_text().splitlines()],
        "csv": lambda f: pa_csv.read_csv(f).column("n").to_pylist(),
    }[format_]
    assert [read(f) for f in files] == [[1, 2], [3]]


def test_a_file_for_many_queries_names_them_in_every_format(tmp_path: Path) -> None:
    rows = _rows(1, 2).add_column(0, "_queries", pa.array([["a", "b"], ["b"]]))
    for format_ in ("parquet", "json", "csv"):
        FileSink(str(tmp_path), format_).deliver(rows, "ring", 3)
    assert sorted(f.suffix for f in tmp_path.glob("ring-00000003.*")) == [
        ".csv", ".json", ".parquet",
    ]  # fmt: skip
    assert pq.read_table(tmp_path / "ring-00000003.parquet").to_pylist() == rows.to_pylist()
    lines = (tmp_path / "ring-00000003.json").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows.to_pylist()
    cells = pa_csv.read_csv(tmp_path / "ring-00000003.csv").column("_queries").to_pylist()
    assert [json.loads(cell) for cell in cells] == [["a", "b"], ["b"]]


def test_memory_keeps_the_newest_rows_and_counts_the_forgotten() -> None:
    sink = MemorySink(3)
    sink.deliver(_rows(1, 2), "ring", 0)
    sink.deliver(_rows(3, 4), "ring", 1)
    sink.deliver(_rows(3, 4), "ring", 1)
    assert pa.concat_tables(sink.rows()).column("n").to_pylist() == [2, 3, 4]
    assert sink.forgotten == 1
    sink.deliver(_rows(5), "another", 0)
    assert pa.concat_tables(sink.rows()).column("n").to_pylist() == [3, 4, 5]


def test_the_result_log_gives_each_query_its_rows(tmp_path: Path) -> None:
    log = ResultLog(tmp_path)
    log.append(0, _matched([[1], [1, 2], [2]], 10, 20, 30))
    log.append(1, _matched([[2]], 40))
    found = {s: [v for t in log.read(s) for v in t.column("n").to_pylist()] for s in (1, 2, 3)}
    assert found == {1: [10, 20], 2: [20, 30, 40], 3: []}


def test_the_result_log_forgets_the_oldest_when_it_is_full(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, limit_bytes=3_000)
    for batch in range(20):
        log.append(batch, _matched([[1]], batch))
    kept = [v for t in log.read(1) for v in t.column("n").to_pylist()]
    assert kept == list(range(20 - len(kept), 20))
    assert 1 <= len(kept) < 20
    again = ResultLog(tmp_path, limit_bytes=1)
    again.append(20, _matched([[1]], 20))
    assert len(list(tmp_path.iterdir())) == 1


def test_the_result_log_counts_what_has_to_go_and_spares_what_is_in_hand(tmp_path: Path) -> None:
    log = ResultLog(tmp_path, limit_bytes=1)
    log.append(3, _matched([[1], [1, 2]], 10, 20))
    assert log.append(4, _matched([[2]], 30), counted=True) == {3: {1: 2, 2: 1}}
    with log.in_hand(4) as held, log.in_hand(3) as gone:
        assert log.append(5, _matched([[1]], 40), counted=True) == {}
        assert held is not None
        assert held.rows.column("n").to_pylist() == [30]
        assert gone is None
        assert log.batches(0) == [4, 5]
    assert log.append(6, _matched([[1]], 50)) == {}
    assert (log.batches(0), log.batches(7)) == ([6], [])
    assert [t.column("n").to_pylist() for t in log.read(1)] == [[50]]
    assert log.read(1, first=7) == []


def test_json_lines_are_exact_and_in_utc() -> None:
    rows = pa.table(
        {
            "t": pa.array([dt.datetime(1969, 12, 31, 23, 59, tzinfo=dt.UTC), None]),
            "d": pa.array([Decimal("1.10"), None]),
            "x": pa.array([float("nan"), 0.1]),
            "l": pa.array([[1, None], []]),
        }
    )
    first, second = (json.loads(line) for line in json_lines(rows, {"query": "q"}))
    assert list(first) == ["query", "t", "d", "x", "l"]
    assert first == {
        "query": "q", "t": "1969-12-31T23:59:00Z", "d": "1.10", "x": "NaN", "l": [1, None],
    }  # fmt: skip
    assert second["t"] is None
    assert second["x"] == 0.1


def test_sinks_are_checked_when_a_query_is_registered(tmp_path: Path) -> None:
    assert sink_of(None) == SinkSpec()
    assert sink_of(print).kind == "callback"
    assert sink_of({"sink": "csv", "path": "out"}).path == str(Path("out").absolute())
    shared = sink_of({"sink": "csv", "path": "out", "layout": "batch"})
    assert SinkSpec.loads(shared.dumps()) == shared
    assert SinkSpec.loads('{"kind": "csv", "path": "out", "limit": 1}').layout == "query"
    (tmp_path / "file").write_text("")
    for wrong, message in (
        ("parkett", "sink parkett is not known"),
        ({"sink": "parquet"}, "needs a path"),
        ({"sink": "parquet", "pth": "x"}, "has no option pth"),
        ({"sink": "memory", "limit": 0}, "not a number of rows"),
        ({"sink": "json", "path": "x", "layout": "bach"}, "layout bach is not known"),
        ({"sink": "memory", "layout": "batch"}, "has no option layout"),
        ({"sink": "json", "path": str(tmp_path / "file")}, "is a file"),
        ({"path": "x"}, "no kind"),
        ("callback", "cannot be named"),
    ):
        with pytest.raises(PenstockError, match=message):
            sink_of(wrong)
