"""Checks that find what is wrong, tried on machines that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.console import doctor


def fake_java(directory: Path, version: str) -> None:
    (directory / "bin").mkdir()
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("version", "state"), [("1.8.0_392", "fail"), ("17.0.9", "ok"), ("21", "ok")]
)
def test_java_must_be_17_or_newer(
    version: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java().state == state


def test_a_missing_java_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert doctor.java().state == "fail"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = doctor.java()
    assert (finding.state, finding.detail) == ("fail", "no java on the PATH")
    assert "install Java" in finding.remedy


def test_a_workspace_must_be_a_place_that_can_be_written(tmp_path: Path) -> None:
    assert doctor.place(tmp_path / "new" / "deep").state == "ok"
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("")
    assert doctor.place(tmp_path / "file").state == "fail"


def test_packages_are_named_with_their_versions() -> None:
    finding = doctor.packages()
    assert finding.state == "ok"
    assert "pyspark 4" in finding.detail
