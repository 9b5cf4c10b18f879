"""Workspaces: one engine at a time, and registries that survive."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import PenstockError, WorkspaceError
from penstock.plan.catalog import Stream
from penstock.plan.codec import columns_from, dump_columns
from penstock.plan.specs import Shown
from penstock.runtime.registry import EpochRow, Registry, RingRow
from penstock.runtime.settings import Settings
from penstock.runtime.workspace import Workspace
from penstock.schema import Schema


def test_a_second_engine_on_a_workspace_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    first = Workspace(tmp_path)
    with pytest.raises(WorkspaceError, match=r"is in use by process \d+"):
        Workspace(tmp_path)
    first.close()
    Workspace(tmp_path).close()


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    script = (
        "import sys, time; from penstock.runtime.workspace import Workspace;"
        "w = Workspace(sys.argv[1]); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(WorkspaceError, match=str(holder.pid)):
        Workspace(tmp_path)
    holder.kill()
    holder.wait()
    Workspace(tmp_path).close()


def test_a_workspace_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot use"):
        Workspace(tmp_path / "file" / "deeper")


def test_a_temporary_workspace_goes_away() -> None:
    workspace = Workspace()
    path = workspace.path
    assert path.exists()
    workspace.close()
    assert not path.exists()


def _registry(path: Path) -> Registry:
    registry = Registry(path / "catalog.sqlite")
    registry.put_stream(Stream("S", Schema.of("id INT"), "file", options=(("path", "in"),)))
    registry.add_ring(RingRow("r1", "S", "{}", "{}", "running", None, 0))
    return registry


def test_what_was_registered_is_there_after_reopening(tmp_path: Path) -> None:
    registry = _registry(tmp_path)
    slot = registry.add_query("q", "SELECT 1", "r1", "{}")
    version = registry.publish(slot, '{"slot": 1}')
    registry.add_epoch(EpochRow("r1", 1, version, 5, None, "{}"), ["a", "b"])
    registry.close()
    again = Registry(tmp_path / "catalog.sqlite")
    assert again.version == version
    assert again.query("Q") is not None
    assert again.consumed("r1") == {"a", "b"}
    assert again.epoch("r1", 1) == EpochRow("r1", 1, version, 5, None, "{}")
    assert again.streams()[0].schema == Schema.of("id INT")
    again.close()


def test_a_catalog_without_lost_tuples_still_opens(tmp_path: Path) -> None:
    registry = _registry(tmp_path)
    slot = registry.add_query("q", "SELECT 1", "r1", "{}")
    registry.count_late({slot: 3}, {})
    registry.close()
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as db:
        db.execute("ALTER TABLE queries DROP COLUMN lost")
    for _ in range(2):
        again = Registry(tmp_path / "catalog.sqlite")
        found = again.query_by_slot(slot)
        assert (found.name, found.late, found.lost) == ("q", 3, 3)  # late meant lost then
        again.close()
    again = Registry(tmp_path / "catalog.sqlite")
    again.count_late({slot: 2}, {slot: 1})
    found = again.query_by_slot(slot)
    assert (found.late, found.lost) == (5, 4)
    again.close()


def test_queries_of_an_older_catalog_show_the_columns_of_their_rings(tmp_path: Path) -> None:
    registry = _registry(tmp_path)
    slot = registry.add_query("q", "SELECT 1", "r1", "{}", dump_columns([Shown("n", 1)]))
    assert columns_from(registry.query_by_slot(slot).columns) == (Shown("n", 1),)
    registry.close()
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as db:
        db.execute("ALTER TABLE queries DROP COLUMN columns")
    again = Registry(tmp_path / "catalog.sqlite")
    assert columns_from(again.query_by_slot(slot).columns) is None
    again.close()


def test_workers_learn_only_what_changed_between_two_versions(tmp_path: Path) -> None:
    registry = _registry(tmp_path)
    slots = [registry.add_query(f"q{i}", "", "r1", "{}") for i in range(3)]
    versions = [registry.publish(slot, f"spec {slot}") for slot in slots]
    dropped = registry.drop_query(slots[0])
    assert registry.slots_between("r1", 0, versions[1]) == (["spec 1", "spec 2"], [])
    assert registry.slots_between("r1", versions[1], dropped) == (["spec 3"], [slots[0]])
    assert registry.slots_between("r1", 0, dropped)[0] == ["spec 2", "spec 3"]
    registry.close()


def test_a_replayed_batch_is_counted_once(tmp_path: Path) -> None:
    registry = _registry(tmp_path)
    slot = registry.add_query("q", "", "r1", "{}")
    registry.count_results(0, {slot: 5})
    registry.count_results(0, {slot: 5})
    registry.count_results(1, {slot: 2})
    assert registry.query_by_slot(slot).rows == 7
    registry.close()


def test_a_failed_change_leaves_nothing_behind(tmp_path: Path) -> None:
    registry = _registry(tmp_path)
    before = registry.version

    def publish_and_fail() -> None:
        with registry.change():
            registry.publish(registry.add_query("q", "", "r1", "{}"), "spec")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        publish_and_fail()
    assert registry.version == before
    assert registry.queries() == []
    registry.close()


def test_a_damaged_catalog_is_named(tmp_path: Path) -> None:
    (tmp_path / "catalog.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(WorkspaceError, match="damaged"):
        Registry(tmp_path / "catalog.sqlite")


def test_a_full_disk_is_not_taken_for_a_damaged_catalog(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(WorkspaceError, match="cannot write") as error:
            Registry(tmp_path / "catalog.sqlite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "remove" not in str(error.value)
    Registry(tmp_path / "catalog.sqlite").close()


def test_settings_are_checked() -> None:
    assert Settings().changed({"trigger": "1 s", "parallelism": "3"}).trigger_ms == 1000
    with pytest.raises(PenstockError, match="setting triger is not known") as error:
        Settings().changed({"triger": 5})
    assert "trigger" in str(error.value)
    with pytest.raises(PenstockError, match="not positive"):
        Settings().changed({"parallelism": 0})


def test_what_a_kill_left_behind_goes_and_what_can_be_asked_for_stays(tmp_path: Path) -> None:
    with closing(Workspace(tmp_path)) as workspace:
        for folder in ("rings", "waiting", "results"):
            for ring in ("runs", "retired", "never"):
                (tmp_path / folder / ring).mkdir(parents=True)
        workspace.forget_unknown({"runs"}, {"runs", "retired"})
        left = {f: {p.name for p in (tmp_path / f).iterdir()} for f in ("rings", "waiting")}
        assert left == {"rings": {"runs"}, "waiting": {"runs"}}
        assert {p.name for p in (tmp_path / "results").iterdir()} == {"runs", "retired"}
        workspace.forget_results("retired")
        assert [p.name for p in (tmp_path / "results").iterdir()] == ["runs"]
