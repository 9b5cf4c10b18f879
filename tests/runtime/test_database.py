"""The catalog file when the disk does not take what is written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from penstock.runtime.registry import Registry, RingRow


def fill(registry: Registry) -> None:
    for number in range(10_000):
        registry.add_ring(RingRow(f"r{number}", "S", "x" * 4000, "", "running", None, 0))


def test_a_full_disk_is_told_as_such_and_changes_nothing(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "catalog.sqlite")
    [[pages]] = registry.read("PRAGMA page_count")
    registry.read(f"PRAGMA max_page_count = {pages + 20}")
    with pytest.raises(sqlite3.OperationalError, match="full"), registry.change():
        fill(registry)
    assert registry.rings() == []
    registry.read("PRAGMA max_page_count = 1000000")
    with registry.change():
        registry.add_ring(RingRow("r", "S", "", "", "running", None, 0))
    registry.close()
    again = Registry(tmp_path / "catalog.sqlite")
    assert [row.id for row in again.rings()] == ["r"]
    again.close()
