"""Rings that are gone: of all that a stream ever had, one position stays.

A new ring begins where the stream's others have come to: it has not to read what any of them has
read, and takes over the times of the one that has seen most (`inherit_position`). Both are a union
or a maximum over rings. So what rings that are gone know of a stream, by one event time, can be put
together in one of them, the *holder*: what they have read and where they were soon after they go,
times and counts with the last of their queries that is remembered. Nothing else of them is needed.
"""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from penstock.control.punctuation import NEVER_US
from penstock.kernels.delays import UNKNOWN_US
from penstock.runtime.registry.epochs import EpochTables
from penstock.runtime.registry.rows import INPUT, OWNER, EpochRow

# rings, and inputs of joins, that are gone and have come somewhere; the newest of a group is last
_GONE = """
SELECT r.id, lower(r.stream), json_extract(r.composition, '$.event_time'), p.through,
  EXISTS (SELECT 1 FROM epochs e WHERE e.ring = r.id)
  OR EXISTS (SELECT 1 FROM consumed c WHERE c.ring = r.id)
FROM rings r JOIN progress p ON p.ring = r.id WHERE r.state = 'retired' ORDER BY r.rowid
"""
# rings that are gone and that no query, not even one that is remembered, was ever in
_UNKNOWN = f"""
SELECT id FROM rings WHERE state = 'retired' AND {OWNER} NOT IN (SELECT ring FROM queries)
AND {OWNER} NOT IN (SELECT origin FROM moves) ORDER BY rowid
"""
_AT_ONCE = 2000  # items in one transaction: some 10 ms


class _Part(NamedTuple):
    ring: str
    stream: str
    event_time: str | None
    through: int
    has_position: int


class RetiredTables(EpochTables):
    def retire_ring(self, ring: str) -> None:
        """Mark a ring, and the inputs of a join, as gone; `forget_rings` puts things together."""
        with self.change() as db:
            inputs = f"(state = '{INPUT}' AND substr(id, 1, length(?1) + 1) = ?1 || '#')"
            sql = f"UPDATE rings SET state = 'retired', error = NULL WHERE id = ?1 OR {inputs}"
            db.execute(sql, (ring,))
            for part in (_Part(*row) for row in self.read(_GONE)):
                if part.ring.split("#")[0] == ring:
                    self._forget_unfinished(part)

    def _forget_unfinished(self, part: _Part) -> None:
        """It does not run again; where it had come to, others may begin."""
        with self.change() as db:
            where = part.ring, part.through
            db.execute("DELETE FROM epochs WHERE ring = ? AND number <> ?", where)
            db.execute("DELETE FROM consumed WHERE ring = ? AND number > ?", where)

    def _gather_positions(self) -> None:
        """Give the holders what others that are gone have read.

        A ring may have read 200,000 files: some at a time, so that nobody waits for all of them.
        In between, and if this is cut short, each is known by one ring or the other.
        """
        while self._gather_some():
            time.sleep(0.001)  # whoever waits for the lock gets it

    def _gather_some(self) -> bool:
        with self.change():
            parts = [_Part(*row) for row in self.read(_GONE)]
            holders = _holders(parts)
            for part in (part for part in parts if part.has_position):
                if (holder := holders[part.stream, part.event_time]) != part:
                    self._give_position(part, holder)
                    self._give_items(part, holder)
                    return True
            return False

    def _give_position(self, part: _Part, holder: _Part) -> None:
        """Before the items: they count for a ring that has come somewhere."""
        with self.change() as db:
            given = self.epoch(part.ring, part.through)
            db.execute("DELETE FROM epochs WHERE ring = ?", (part.ring,))
            if given is None:
                return
            through = max(0, holder.through)
            own = self.epoch(holder.ring, through)
            position = max(_position(given), -1 if own is None else _position(own))
            work = json.dumps({"pieces": [], "through": position})
            db.execute("DELETE FROM epochs WHERE ring = ?", (holder.ring,))
            self.add_epoch(EpochRow(holder.ring, through, 0, NEVER_US, None, work), [])
            sql = "UPDATE progress SET through = ? WHERE ring = ?"
            db.execute(sql, (through, holder.ring))

    def _give_items(self, part: _Part, holder: _Part) -> None:
        next_ = "SELECT item FROM consumed WHERE ring = ? ORDER BY item LIMIT 1 OFFSET ?"
        with self.change() as db:
            rest = self.read(next_, part.ring, _AT_ONCE)
            end = rest[0][0] if rest else b""  # to SQLite, bytes come after all texts
            db.execute(
                "INSERT OR IGNORE INTO consumed SELECT ?, item, 0 FROM consumed"
                " WHERE ring = ? AND item < ? AND number <= ?",
                (holder.ring, part.ring, end, part.through),
            )
            db.execute("DELETE FROM consumed WHERE ring = ? AND item < ?", (part.ring, end))

    def forget_rings(self) -> list[str]:
        """Remove rings that are gone and have no queries any more, but holders; which they were.

        Nobody can ask for their results. May take its time, not in one transaction.
        """
        self._gather_positions()
        with self.change() as db:
            parts = [_Part(*row) for row in self.read(_GONE)]
            holders, known = _holders(parts), {part.ring: part for part in parts}
            gone = []
            for (ring,) in self.read(_UNKNOWN):
                if (part := known.get(ring)) is not None:
                    holder = holders[part.stream, part.event_time]
                    if holder == part or part.has_position:  # the latter: it went just now
                        continue
                    self._give_counts(ring, holder.ring)
                for table in ("progress", "epochs", "consumed", "forgotten"):
                    db.execute(f"DELETE FROM {table} WHERE ring = ?", (ring,))
                db.execute("DELETE FROM rings WHERE id = ?", (ring,))
                gone.append(ring)
            return gone

    def _give_counts(self, ring: str, holder: str) -> None:
        """Late tuples of forgotten queries go on counting, and so does how much was read."""
        with self.change() as db:
            db.execute(
                "INSERT INTO forgotten SELECT ?, queries, late, lost FROM forgotten WHERE ring = ?"
                " ON CONFLICT (ring) DO UPDATE SET queries = queries + excluded.queries,"
                " late = late + excluded.late, lost = lost + excluded.lost",
                (holder, ring),
            )
            given, own = self.progress(ring), self.progress(holder)
            assert given is not None
            assert own is not None
            through, facts, punctuation_us = own
            self.set_progress(holder, through, _together(facts, given[1]), punctuation_us)


def _holders(parts: list[_Part]) -> dict[tuple[str, str | None], _Part]:
    return {(part.stream, part.event_time): part for part in parts}


def _position(epoch: EpochRow) -> int:
    return int(json.loads(epoch.work).get("through", 0))


def _together(*seen: dict[str, Any]) -> dict[str, Any]:
    """Times of whoever has seen the latest, counts of whoever has read most."""
    latest = max(seen, key=lambda facts: facts.get("event_us", UNKNOWN_US))
    most = max(seen, key=lambda facts: facts.get("rows", 0) + facts.get("untimed", 0))
    counts = {name: most[name] for name in ("rows", "untimed") if name in most}
    unplaced = max(facts.get("unplaced", 0) for facts in seen)
    return latest | counts | ({"unplaced": unplaced} if unplaced else {})
