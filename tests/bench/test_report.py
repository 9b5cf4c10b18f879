import io
import json
from pathlib import Path

import pytest
from rich.console import Console

import penstock
from penstock.bench import NAMES, run
from penstock.bench.__main__ import main
from penstock.bench.report import Report, shown
from penstock.errors import PenstockError

REPORT = Report(
    "window", True, [{"engine": "a", "rows": 1234567}, {"engine": "b", "ms": 0.5}], {"x": 2.0}
)


def test_a_report_is_written_with_the_six_agreed_keys(tmp_path: Path) -> None:
    REPORT.write(tmp_path / "r.json")
    read = json.loads((tmp_path / "r.json").read_text())
    assert list(read) == ["bench", "version", "machine", "quick", "rows", "summary"]
    assert read["bench"] == "window"
    assert read["version"] == penstock.__version__
    assert read["quick"] is True
    assert read["rows"] == REPORT.rows
    assert read["summary"] == {"x": 2.0}
    assert read["machine"]["cores"] >= 1
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


def test_a_report_shows_every_column_of_every_row() -> None:
    console = Console(file=io.StringIO(), width=120)
    REPORT.show(console)
    text = console.file.getvalue()
    for part in ("engine", "rows", "ms", "1,234,567", "0.5", "x", "2"):
        assert part in text


def test_rows_of_different_shapes_are_shown_in_tables_of_their_own() -> None:
    rows = [{"kind": "one", "first": 1}, {"kind": "two", "second": 2}]
    console = Console(file=io.StringIO(), width=120)
    Report("x", False, rows, {"deep": {"d": 5}, "c": 3}, split_by="kind").show(console)
    text = console.file.getvalue()
    assert text.index("one") < text.index("first") < text.index("two") < text.index("second")
    assert "kind" not in text
    assert "deep" not in text


def test_figures_are_short_where_digits_mean_nothing() -> None:
    assert [shown(v) for v in (1234567.8, 0.012345, 12, False, "a", None)] == [
        "1,234,568", "0.0123", "12", "no", "a", "",
    ]  # fmt: skip


def test_an_unknown_benchmark_is_refused_with_those_there_are(capsys) -> None:
    assert main(["windows"]) == 2
    error = capsys.readouterr().err
    assert "benchmark windows is not known" in error
    assert all(name in error for name in NAMES)


def test_a_report_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot be written"):
        run("window", quick=True, json_path=tmp_path / "missing" / "r.json")


def test_plots_are_refused_before_the_work_where_there_are_none(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="window has no plots"):
        run("window", quick=True, plots=tmp_path)


def test_without_a_name_the_benchmarks_are_listed(capsys) -> None:
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in NAMES)
