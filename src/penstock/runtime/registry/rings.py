"""Rings, and the inputs of joins, which have epochs like rings."""

from __future__ import annotations

from dataclasses import astuple

from penstock.runtime.registry.database import Database
from penstock.runtime.registry.rows import INPUT, OWNER, RING, RingRow


class RingTables(Database):
    def rings(self, inputs: bool = False) -> list[RingRow]:
        """All rings, in order; `inputs`: and what is kept of the inputs of joins."""
        sql = f"SELECT {RING} FROM rings WHERE ? OR state <> '{INPUT}' ORDER BY rowid"
        return [RingRow(*row) for row in self.read(sql, inputs)]

    def add_ring(self, ring: RingRow) -> None:
        with self.change() as db:
            db.execute(f"INSERT INTO rings ({RING}) VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(ring))

    def has_failed(self, ring: str) -> bool:
        return bool(self.read("SELECT 1 FROM rings WHERE id = ? AND state = 'failed'", ring))

    def failed_readers(self, stream: str) -> list[str]:
        """Rings that read a stream and have failed."""
        sql = (
            "SELECT id FROM rings WHERE state = 'failed'"
            f" AND id IN (SELECT {OWNER} FROM rings WHERE stream = ?) ORDER BY rowid"
        )
        return [r[0] for r in self.read(sql, stream)]

    def set_ring_state(self, ring: str, state: str, error: str | None = None) -> None:
        with self.change() as db:
            db.execute("UPDATE rings SET state = ?, error = ? WHERE id = ?", (state, error, ring))
