"""Epochs of rings: what each takes from its source, and how far they have come."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

from penstock.control.disorder import inherited, nothing_seen
from penstock.control.punctuation import NEVER_US
from penstock.runtime.registry.database import Database
from penstock.runtime.registry.rows import EPOCH, EpochRow


class EpochTables(Database):
    def epoch(self, ring: str, number: int) -> EpochRow | None:
        sql = f"SELECT {EPOCH} FROM epochs WHERE ring = ? AND number = ?"
        rows = self.read(sql, ring, number)
        return EpochRow(*rows[0]) if rows else None

    def last_epoch(self, ring: str, through: int | None = None) -> EpochRow | None:
        """The last one that there is, or the last one up to a number."""
        sql = (
            f"SELECT {EPOCH} FROM epochs WHERE ring = ?1 AND number <= coalesce(?2, number)"
            " ORDER BY number DESC LIMIT 1"
        )
        rows = self.read(sql, ring, through)
        return EpochRow(*rows[0]) if rows else None

    def has_begun(self, ring: str) -> bool:
        """Whether a ring has had an epoch of its own, not only an inherited position."""
        last = self.last_epoch(ring)
        return last is not None and last.version > 0

    def add_epoch(self, epoch: EpochRow, consumed: list[str]) -> None:
        """Log an epoch and what it takes from the source in one transaction; old ones go."""
        with self.change() as db:
            db.execute(f"INSERT INTO epochs ({EPOCH}) VALUES (?, ?, ?, ?, ?, ?)", astuple(epoch))
            db.executemany(
                "INSERT OR IGNORE INTO consumed VALUES (?, ?, ?)",
                [(epoch.ring, item, epoch.number) for item in consumed],
            )
            # Spark replays at most the last uncommitted batch and keeps 100 for roll-back
            db.execute(
                "DELETE FROM epochs WHERE ring = ? AND number < ?", (epoch.ring, epoch.number - 200)
            )

    def consumed(self, ring: str) -> set[str]:
        return {r[0] for r in self.read("SELECT item FROM consumed WHERE ring = ?", ring)}

    def inherit_position(self, ring: str, stream: str, event_time: str | None) -> None:
        """Start a ring where the stream's other rings are.

        What they have read and counted, it has not to read; what they are just reading, it reads
        too. The times and delays they have seen count as seen if they are of the same event time:
        then its first windows begin after them.
        """
        with self.change() as db:
            others = self.read(
                "SELECT p.ring, p.through, p.facts, r.composition FROM progress p"
                " JOIN rings r ON r.id = p.ring"
                " WHERE r.stream = ? AND p.ring <> ? AND p.through >= 0",
                stream,
                ring,
            )
            position = 0
            for other, through, _, _ in others:
                db.execute(
                    "INSERT OR IGNORE INTO consumed SELECT ?, item, 0 FROM consumed"
                    " WHERE ring = ? AND number <= ?",
                    (ring, other, through),
                )
                if (epoch := self.epoch(other, through)) is not None:
                    position = max(position, json.loads(epoch.work).get("through", 0))
            if not others:
                return
            start = EpochRow(
                ring, 0, 0, NEVER_US, None, json.dumps({"pieces": [], "through": position})
            )
            self.add_epoch(start, [])
            same = [f for _, _, f, c in others if json.loads(c)["event_time"] == event_time]
            known = [inherited(json.loads(f)) for f in same] or [nothing_seen()]
            self.set_progress(ring, 0, max(known, key=lambda k: k["event_us"]), NEVER_US)

    def progress(self, ring: str) -> tuple[int, dict[str, Any], int] | None:
        """(last epoch absorbed, state of the disorder, punctuation) of a ring."""
        sql = "SELECT through, facts, punctuation_us FROM progress WHERE ring = ?"
        rows = self.read(sql, ring)
        return (rows[0][0], json.loads(rows[0][1]), rows[0][2]) if rows else None

    def set_progress(
        self, ring: str, through: int, facts: dict[str, Any], punctuation: int
    ) -> None:
        with self.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)",
                (ring, through, json.dumps(facts), punctuation),
            )
