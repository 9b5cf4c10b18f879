"""The catalog file itself: its tables, transactions, and the version that changes raise."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from penstock.errors import WorkspaceError

FORMAT = 1
_TABLES = files(__package__) / "tables.sql"


class Database:
    """Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._guard = threading.RLock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES.read_text("utf-8"))
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (FORMAT,))
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('version', 0), ('purged', 0)")
            found = self._meta("format")
        except sqlite3.OperationalError as error:  # a full disk, say: the file itself may be well
            self._db.close()
            hint = "make room there and start again; what it holds is kept"
            raise WorkspaceError(f"cannot write {path}: {error}", hint) from None
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise WorkspaceError(
                f"{path} is damaged: {error}", "restore it, or remove it"
            ) from None
        if found != FORMAT:
            self._db.close()
            raise WorkspaceError(
                f"the workspace is of format {found}, this version reads {FORMAT}",
                "use the penstock version that wrote it, or a new workspace",
            )
        self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        """Workspaces of before counted as late only what was lost, and had no clocks.

        Their queries show the columns of their rings as they are.
        """
        with self.change() as db:
            if "lost" not in self._columns("queries"):
                db.execute("ALTER TABLE queries ADD COLUMN lost INTEGER NOT NULL DEFAULT 0")
                db.execute("UPDATE queries SET lost = late")
            if "columns" not in self._columns("queries"):
                db.execute("ALTER TABLE queries ADD COLUMN columns TEXT NOT NULL DEFAULT ''")
            if "previous_max_us" in self._columns("epochs"):
                db.execute("ALTER TABLE epochs RENAME COLUMN previous_max_us TO clock_us")

    def _columns(self, table: str) -> set[str]:
        return {column[1] for column in self.read(f"PRAGMA table_info({table})")}

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction; nothing of it stays if the body fails. May be nested."""
        with self._guard:
            if self._db.in_transaction:
                yield self._db
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite has ended it itself where the disk is full
                    self._db.execute("ROLLBACK")
                raise

    def read(self, sql: str, *arguments: Any) -> list[Any]:
        with self._guard:
            return self._db.execute(sql, arguments).fetchall()

    def _meta(self, key: str) -> int:
        return int(self.read("SELECT value FROM meta WHERE key = ?", key)[0][0])

    @property
    def version(self) -> int:
        return self._meta("version")

    def raise_version(self) -> int:
        with self.change() as db:
            db.execute("UPDATE meta SET value = value + 1 WHERE key = 'version'")
            return self.version

    def close(self) -> None:
        with self._guard:
            self._db.close()
