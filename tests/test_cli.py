"""The program as a user starts it: exit codes, what goes to stdout and what to stderr."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.console.failures import guarded
from penstock.errors import EngineError, PenstockError, QueryError, Span, WorkspaceError

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-m", "penstock.cli"]
STREAM = """
CREATE STREAM S (id INT, ts TIMESTAMP) WITH (source = 'generator', rate = 100, event_time = 'ts'{});
"""


def invoke(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    return result.exit_code, result.stdout, result.stderr


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=480,
        env=environment(),
        cwd=ROOT,
    )


def test_the_version_is_one_line() -> None:
    code, out, _ = invoke("--version")
    assert code == 0
    assert out.startswith("penstock ")


def test_help_names_every_command() -> None:
    code, out, _ = invoke("--help")
    assert code == 0
    for command in ("run", "sql", "explain", "demo", "doctor", "node", "bench"):
        assert f" {command} " in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "missing.cql"], "cannot read missing.cql: no such file"),
        (["run", "-", "--set", "triger=1 s"], "did you mean trigger?"),
        (["run", "-", "--set", "trigger"], "not key=value"),
        (["run", "-", "--set", "memory"], "not key=value"),
        (["run", "-", "--format", "xml"], "xml"),
        (["run", "-", "--twice"], "--twice"),
        (["explain"], "FILE"),
        (["bench", "nothing"], "benchmark nothing is not known"),
        (["demo", "--seconds", "soon"], "--seconds"),
    ],
)
def test_wrong_usage_is_named_and_ends_with_status_2(arguments: list[str], told: str) -> None:
    code, out, err = invoke(*arguments, stdin="SHOW RINGS;")
    assert (code, out) == (2, "")
    assert told in err


def test_a_script_error_is_marked_without_starting_spark() -> None:
    began = time.monotonic()
    code, out, err = invoke("run", "-", "--once", stdin="SHOW STREAMS;\nSELECT id FORM S;\n")
    assert (code, out) == (2, "")
    assert "line 2, column 11" in err
    assert "  SELECT id FORM S;\n            ^^^^\n" in err
    assert "Traceback" not in err
    assert "starting Spark" not in err
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (QueryError("wrong", None, Span(0, 1)), 2),
        (PenstockError("wrong option"), 2),
        (EngineError("a ring failed"), 1),
        (WorkspaceError("in use"), 1),
        (ZeroDivisionError("division by zero"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_error_has_its_status_and_no_traceback(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> int:
        raise error

    assert guarded(work) == code
    assert "Traceback" not in capsys.readouterr().err


def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    assert guarded(lambda: 1 // 0) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow
def test_a_query_on_a_stream_that_is_not_there_is_refused_with_its_place(tmp_path: Path) -> None:
    script = tmp_path / "wrong.cql"
    script.write_text(STREAM.format("") + "SELECT id FROM T;\n")
    done = run("run", str(script), "--once")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "line 3, column 16: stream T not found" in done.stderr
    assert "  SELECT id FROM T;" in done.stderr
    assert "Traceback" not in done.stderr
    assert "WARN" not in done.stderr


@pytest.mark.slow
def test_a_run_says_what_is_in_no_result(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = ['{"id": 1, "ts": "2026-01-01 00:00:01"}', "not json", '{"id": "x"}']
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    script = tmp_path / "bad.cql"
    script.write_text(
        f"CREATE STREAM S (id INT, ts TIMESTAMP) WITH (source = 'file', path = '{tmp_path}/in',"
        " format = 'json', event_time = 'ts');\nSELECT id FROM S;\n"
    )
    done = run("run", str(script), "--once", "--format", "jsonl")
    assert done.returncode == 0
    assert done.stdout == '{"query": "query_1", "id": 1}\n'
    assert "stream S: malformed records: 2; SELECT * FROM S.bad has them" in done.stderr


@pytest.mark.slow
def test_statements_come_through_a_pipe_until_the_first_error() -> None:
    typed = STREAM.format(", rows = 500") + (
        "DESCRIBE S;\nSELECT id, ts FROM S\nWHERE id = 7;\n"
        ".queries\nDROP QUERY nothing;\nSHOW RINGS;\n"
    )
    done = run("sql", stdin=typed)
    assert done.returncode == 2
    assert "event time" in done.stdout
    assert "query_1  running" in done.stdout
    assert "line 7, column 1: query nothing not found" in done.stderr
    assert "rows_per_s" not in done.stdout


@pytest.mark.slow
def test_a_running_script_stops_at_ctrl_c_and_resumes_in_its_workspace(tmp_path: Path) -> None:
    script = tmp_path / "endless.cql"
    script.write_text(STREAM.format(", start = 'now'") + "SELECT id, ts FROM S WHERE id > 50;\n")
    command = [*PROGRAM, "run", str(script), "-f", "jsonl", "-w", str(tmp_path / "work")]
    for attempt in ("first", "second"):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            row = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=120)
        assert row.startswith('{"query": "query_1", "id": '), told
        assert process.returncode == 0
        assert f"resume with the same --workspace {tmp_path / 'work'}" in told
        assert ("resumed: 2 streams and queries" in told) == (attempt == "second")
        assert "Traceback" not in told
