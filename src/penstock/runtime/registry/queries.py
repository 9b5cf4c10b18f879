"""Queries: the slots of rings from version to version, where they were before, and their counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from penstock.errors import EngineError
from penstock.plan.codec import canonical
from penstock.runtime.registry.epochs import EpochTables
from penstock.runtime.registry.rows import OF_STREAM, OWNER, QUERY, QueryRow

KEPT_DROPPED = 1000  # queries that are remembered for those who still hold them
_PURGED_EVERY = 256  # versions
_REPLAYED = 3  # epochs of an input; Spark runs no more than the last one again
# dropped queries up to version ?1 that no micro-batch needs again
_FORGETTABLE = f"""
WITH again AS (
  SELECT owner, version FROM (
    SELECT substr(ring, 1, instr(ring || '#', '#') - 1) AS owner, version,
      row_number() OVER (PARTITION BY ring ORDER BY number DESC) AS back FROM epochs)
  WHERE back <= {_REPLAYED} AND owner NOT IN (SELECT id FROM rings WHERE state = 'retired'))
SELECT slot FROM queries WHERE dropped <= ?1 AND NOT EXISTS (
  SELECT 1 FROM again WHERE owner = queries.ring AND added <= version AND dropped > version)
"""


class QueryTables(EpochTables):
    _looked = 0  # version at which dropped queries were forgotten last

    def queries(self, ring: str | None = None, dropped: bool = False) -> list[QueryRow]:
        sql = (
            f"SELECT {QUERY} FROM queries WHERE (?1 IS NULL OR ring = ?1)"
            " AND (?2 OR dropped IS NULL) ORDER BY slot"
        )
        return [QueryRow(*row) for row in self.read(sql, ring, dropped)]

    def readers_of(self, stream: str) -> list[str]:
        """Names of the queries on a stream or on its companions."""
        sql = (
            "SELECT name FROM queries WHERE dropped IS NULL"
            f" AND ring IN (SELECT {OWNER} FROM rings WHERE {OF_STREAM}) ORDER BY slot"
        )
        return [r[0] for r in self.read(sql, stream)]

    def count_queries(self, ring: str) -> int:
        sql = "SELECT count(*) FROM queries WHERE ring = ? AND dropped IS NULL"
        return int(self.read(sql, ring)[0][0])

    def names_in(self, ring: str, besides: int | None, most: int) -> list[str]:
        """Names of some live queries of a ring, one slot aside."""
        sql = (
            "SELECT name FROM queries WHERE ring = ? AND dropped IS NULL AND slot IS NOT ?"
            " ORDER BY slot LIMIT ?"
        )
        return [r[0] for r in self.read(sql, ring, besides, most)]

    def count_specs(
        self, ring: str, text: str, longer: str, besides: int | None
    ) -> tuple[int, int]:
        """Live queries of a ring, one slot aside, whose specs contain a text, and a longer one."""
        sql = (
            "SELECT count(*), coalesce(sum(instr(spec, ?) > 0), 0) FROM queries"
            " WHERE ring = ? AND dropped IS NULL AND slot IS NOT ? AND instr(spec, ?) > 0"
        )
        found: tuple[int, int] = self.read(sql, longer, ring, besides, text)[0]
        return found

    def query(self, name: str) -> QueryRow | None:
        sql = f"SELECT {QUERY} FROM queries WHERE name = ? AND dropped IS NULL"
        rows = self.read(sql, name)
        return QueryRow(*rows[0]) if rows else None

    def query_by_slot(self, slot: int) -> QueryRow:
        rows = self.read(f"SELECT {QUERY} FROM queries WHERE slot = ?", slot)
        if not rows:
            hint = f"the last {KEPT_DROPPED} that were dropped are remembered"
            raise EngineError("the query was dropped long ago", hint)
        return QueryRow(*rows[0])

    def next_slot(self) -> int:
        """The number the next query gets; numbers are never used again."""
        rows = self.read("SELECT seq FROM sqlite_sequence WHERE name = 'queries'")
        return int(rows[0][0]) + 1 if rows else 1

    def add_query(self, name: str, text: str, ring: str, sink: str, columns: str = "") -> int:
        """Take a slot; it is live only once `publish` gives it a spec and a version."""
        with self.change() as db:
            cursor = db.execute(
                "INSERT INTO queries (name, text, ring, state, spec, sink, columns, added)"
                " VALUES (?, ?, ?, 'running', '', ?, ?, 0)",
                (name, text, ring, sink, columns),
            )
            return int(cursor.lastrowid or 0)

    def publish(self, slot: int, spec: str) -> int:
        with self.change() as db:
            version = self.raise_version()
            db.execute(
                "UPDATE queries SET spec = ?, added = ? WHERE slot = ?", (spec, version, slot)
            )
            return version

    def spec(self, slot: int) -> str:
        """What the ring of a query has to know of it."""
        return str(self.read("SELECT spec FROM queries WHERE slot = ?", slot)[0][0])

    def specs_since(self, ring: str, version: int) -> list[str]:
        """Specs of all queries that came to a ring after a version, dropped ones too."""
        sql = "SELECT spec FROM queries WHERE ring = ? AND added > ?"
        return [r[0] for r in self.read(sql, ring, max(0, version))]

    def live_specs_since(self, ring: str, version: int) -> list[str]:
        """Specs of the live queries that came to a ring after a version."""
        sql = "SELECT spec FROM queries WHERE ring = ? AND added > ? AND dropped IS NULL"
        return [r[0] for r in self.read(sql, ring, version)]

    def derived_of(self, ring: str) -> list[dict[str, str]]:
        """Attributes that Spark derives for the slots that a micro-batch of a ring may still have.

        One that was cut short is run again with the slots it had. No micro-batch had a query that
        was refused.
        """
        last = self.last_epoch(ring)
        sql = (
            "SELECT spec FROM queries WHERE instr(spec, '\"derived\":[{') > 0 AND ("
            "ring = ?1 AND (dropped IS NULL OR dropped > ?2 AND state <> 'refused')"
            " OR slot IN (SELECT slot FROM moves WHERE origin = ?1 AND version > ?2))"
        )
        specs = self.read(sql, ring, 0 if last is None else last.version)
        found = {a["name"]: a for (spec,) in specs for a in json.loads(spec)["derived"]}
        return [found[name] for name in sorted(found)]

    def start_after(self, ring: str, since: int, version: int, from_us: int) -> None:
        """New window queries report only windows that begin at or after an event time."""
        sql = "SELECT slot, spec FROM queries WHERE ring = ? AND added > ? AND added <= ?"
        with self.change() as db:
            for slot, spec in self.read(sql, ring, since, version):
                text = canonical({**json.loads(spec), "from_us": from_us})
                db.execute("UPDATE queries SET spec = ? WHERE slot = ?", (text, slot))

    def drop_query(self, slot: int, error: str | None = None) -> int:
        """Take a query out; with an error, as one that was refused."""
        told = ("dropped", None) if error is None else ("refused", error)
        with self.change() as db:
            version = self.raise_version()
            db.execute(
                "UPDATE queries SET dropped = ?, state = ?, error = coalesce(?, error)"
                " WHERE slot = ? AND dropped IS NULL",
                (version, *told, slot),
            )
            if version >= self._looked + _PURGED_EVERY:
                self._looked = version
                self.forget_dropped()
            return version

    def refused(self) -> list[QueryRow]:
        """Queries that were refused, while they are remembered and nobody else has their names."""
        sql = (
            f"SELECT {QUERY} FROM queries q WHERE state = 'refused' AND NOT EXISTS ("
            "SELECT 1 FROM queries other WHERE other.name = q.name AND other.slot > q.slot)"
            " ORDER BY slot"
        )
        return [QueryRow(*row) for row in self.read(sql)]

    def refused_among(self, slots: Sequence[int]) -> list[QueryRow]:
        """Those of some queries that were refused."""
        sql = (
            f"SELECT {QUERY} FROM queries WHERE state = 'refused'"
            " AND slot IN (SELECT value FROM json_each(?)) ORDER BY slot"
        )
        return [QueryRow(*row) for row in self.read(sql, json.dumps(list(slots)))]

    def forget_dropped(self) -> None:
        """Remove dropped queries, but the last ones and those that an epoch may need again.

        An epoch of version v has the slots with added <= v < dropped. Only the versions of a ring's
        last epochs, and later ones, can be asked for.
        """
        oldest = (
            "SELECT dropped FROM queries WHERE dropped IS NOT NULL"
            " ORDER BY dropped DESC LIMIT 1 OFFSET ?"
        )
        with self.change() as db:
            if not (found := self.read(oldest, KEPT_DROPPED)):
                return
            gone = [row[0] for row in self.read(_FORGETTABLE, found[0][0])]
            marks = [(slot,) for slot in gone]
            db.executemany(
                "INSERT INTO forgotten SELECT ring, 1, late, lost FROM queries WHERE slot = ?"
                " ON CONFLICT (ring) DO UPDATE SET queries = queries + 1,"
                " late = late + excluded.late, lost = lost + excluded.lost",
                marks,
            )
            for table in ("queries", "moves"):
                db.executemany(f"DELETE FROM {table} WHERE slot = ?", marks)
            db.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'purged'", found[0])

    def set_query_state(self, slot: int, state: str, error: str | None) -> None:
        with self.change() as db:
            sql = "UPDATE queries SET state = ?, error = ? WHERE slot = ? AND dropped IS NULL"
            db.execute(sql, (state, error, slot))

    def count_results(self, batch: int, rows: dict[int, int]) -> None:
        """Add to each query's row count; a replayed batch adds nothing."""
        with self.change() as db:
            db.executemany(
                "UPDATE queries SET rows = rows + ?, last_batch = ?"
                " WHERE slot = ? AND last_batch < ?",
                [(n, batch, slot, batch) for slot, n in rows.items()],
            )

    def remembers(self, version: int) -> bool:
        """Whether all that has changed since a version is still known."""
        return version >= self._meta("purged")

    def slots_between(self, ring: str, since: int, version: int) -> tuple[list[str], list[int]]:
        """Specs added and slots dropped between two registry versions (since 0: all that live)."""
        added = self.read(
            "SELECT spec FROM queries WHERE ring = ?1 AND added > ?2 AND added <= ?3"
            " AND (dropped IS NULL OR dropped > ?3) ORDER BY slot",
            ring,
            since,
            version,
        )
        dropped = self.read(
            "SELECT slot FROM queries WHERE ring = ?1 AND dropped > ?2 AND dropped <= ?3"
            " UNION SELECT slot FROM moves WHERE origin = ?1 AND version > ?2 AND version <= ?3",
            ring,
            since,
            version,
        )
        return [r[0] for r in added], [r[0] for r in dropped]

    def origins(self, slot: int) -> list[str]:
        """The rings that a slot was in before, the first one first."""
        sql = "SELECT origin FROM moves WHERE slot = ? ORDER BY version"
        return [r[0] for r in self.read(sql, slot)]

    def delivered_before(self, ring: str) -> dict[int, int]:
        """Of slots that came with a ring's copy: the last micro-batch that the ring delivered."""
        sql = (
            "SELECT slot, max(m.version), m.delivered FROM moves m JOIN queries q USING (slot)"
            " WHERE q.ring = ? AND q.dropped IS NULL GROUP BY slot"
        )
        return {slot: delivered for slot, _, delivered in self.read(sql, ring)}

    def count_late(self, late: Mapping[int, int], lost: Mapping[int, int]) -> None:
        """Add to the tuples that missed windows of a query, and to those that are in none of it."""
        with self.change() as db:
            db.executemany(
                "UPDATE queries SET late = late + ?, lost = lost + ? WHERE slot = ?",
                [(n, lost.get(slot, 0), slot) for slot, n in late.items()],
            )
