"""Spark's classes are kept in a file that is whole or not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import EngineError
from penstock.runtime.class_archive import (
    archive_options,
    archive_path,
    await_end,
    new_archive,
)


@pytest.fixture(autouse=True)
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "with space"))
    return tmp_path


def jvm(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["java", *arguments], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)


def test_without_a_file_java_is_told_nothing() -> None:
    assert archive_options() == ""


def test_what_java_left_is_used_from_then_on() -> None:
    with new_archive() as options:
        assert archive_options() == ""  # not before it is whole
        made = options.split('"')[1]
        assert made.startswith("-XX:ArchiveClassesAtExit=")
        await_end(jvm(made, "-version"))
    assert str(archive_path()) in archive_options()
    shown = subprocess.run(
        ["java", f"-XX:SharedArchiveFile={archive_path()}", "-Xshare:on", "-version"],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0
    assert "sharing" in shown.stderr
    assert [file.name for file in archive_path().parent.iterdir()] == [archive_path().name]


def test_a_jvm_that_fails_leaves_nothing() -> None:
    def fail() -> None:
        with new_archive() as options:
            Path(options.split('"')[1].partition("=")[2]).write_bytes(b"half of it")
            await_end(jvm("-cp", "/nowhere", "NoSuchClass"))

    with pytest.raises(EngineError, match="ended with code 1"):
        fail()
    assert list(archive_path().parent.iterdir()) == []


def test_a_jvm_that_keeps_nothing_is_an_error() -> None:
    with pytest.raises(EngineError, match="kept no classes"), new_archive():
        pass


def test_a_place_that_cannot_be_written_is_an_error(prefix: Path) -> None:
    (prefix / "with space").write_text("a file")
    with pytest.raises(EngineError, match="cannot write"), new_archive():
        pass
