"""The durable memory of an engine: streams, queries, rings, epochs and counters in one SQLite file.

Every change that a running ring must notice raises the registry version by one. A slot lives in the
versions from `added` up to, not including, `dropped`; what a worker must know to go from one
version to another is therefore one query on two columns.

Queries that are dropped are forgotten after a while, all but the last ones, as soon as no
micro-batch that may run again needs them: the file does not grow with all that ever were. A worker
that is further behind than what is remembered begins anew.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from penstock.control.disorder import inherited, nothing_seen
from penstock.control.punctuation import NEVER_US
from penstock.errors import EngineError, WorkspaceError
from penstock.plan.catalog import RegionSet, Stream
from penstock.plan.codec import canonical, dumps, region_set_from, stream_from

FORMAT = 1
REPLAY = 1  # a ring that reads the source from its beginning
ALONE = 2  # one that feeds a derived stream
KEPT_DROPPED = 1000  # queries that are remembered for those who still hold them
_PURGED_EVERY = 256  # versions
_REPLAYED = 3  # epochs of an input; Spark runs no more than the last one again
INPUT = "input"  # state of a ring's row that is not a ring: an input of a join

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS streams (name TEXT PRIMARY KEY COLLATE NOCASE, definition TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS regions (
  name TEXT PRIMARY KEY COLLATE NOCASE, definition TEXT NOT NULL, digest TEXT NOT NULL,
  body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS rings (
  id TEXT PRIMARY KEY, stream TEXT NOT NULL COLLATE NOCASE, composition TEXT NOT NULL,
  outputs TEXT NOT NULL, state TEXT NOT NULL, error TEXT, replay INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS queries (
  slot INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL COLLATE NOCASE, text TEXT NOT NULL,
  ring TEXT NOT NULL, state TEXT NOT NULL, error TEXT, spec TEXT NOT NULL, sink TEXT NOT NULL,
  added INTEGER NOT NULL, dropped INTEGER, rows INTEGER NOT NULL DEFAULT 0,
  last_batch INTEGER NOT NULL DEFAULT -1, late INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0, columns TEXT NOT NULL DEFAULT '');
CREATE UNIQUE INDEX IF NOT EXISTS live_names ON queries (name) WHERE dropped IS NULL;
CREATE INDEX IF NOT EXISTS slots_by_ring ON queries (ring, added, dropped);
CREATE INDEX IF NOT EXISTS live_by_ring ON queries (ring) WHERE dropped IS NULL;
CREATE INDEX IF NOT EXISTS dropped_by_ring ON queries (ring, dropped) WHERE dropped IS NOT NULL;
CREATE TABLE IF NOT EXISTS moves (
  slot INTEGER NOT NULL, origin TEXT NOT NULL, version INTEGER NOT NULL, delivered INTEGER NOT NULL,
  PRIMARY KEY (slot, version)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS moves_by_origin ON moves (origin, version);
CREATE TABLE IF NOT EXISTS forgotten (
  ring TEXT PRIMARY KEY, queries INTEGER NOT NULL, late INTEGER NOT NULL,
  lost INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS epochs (
  ring TEXT NOT NULL, number INTEGER NOT NULL, version INTEGER NOT NULL,
  punctuation_us INTEGER NOT NULL, clock_us INTEGER, work TEXT NOT NULL,
  PRIMARY KEY (ring, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS consumed (
  ring TEXT NOT NULL, item TEXT NOT NULL, number INTEGER NOT NULL,
  PRIMARY KEY (ring, item)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS progress (
  ring TEXT PRIMARY KEY, through INTEGER NOT NULL, facts TEXT NOT NULL,
  punctuation_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bad_records (
  stream TEXT NOT NULL COLLATE NOCASE, piece TEXT NOT NULL, rows INTEGER NOT NULL,
  PRIMARY KEY (stream, piece)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (
  stream TEXT PRIMARY KEY COLLATE NOCASE, name TEXT NOT NULL, incarnation TEXT NOT NULL,
  last_batch INTEGER, safe_batch INTEGER, safe_position INTEGER) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class RingRow:
    id: str
    stream: str
    composition: str
    outputs: str
    state: str
    error: str | None
    replay: int  # REPLAY or ALONE: shared with nobody; 0: shared


@dataclass(frozen=True, slots=True)
class QueryRow:
    slot: int
    name: str
    text: str
    ring: str
    state: str
    error: str | None
    spec: str
    sink: str
    added: int
    dropped: int | None
    rows: int
    last_batch: int
    late: int
    lost: int
    columns: str  # which of the ring's it shows; empty: all, as they are


@dataclass(frozen=True, slots=True)
class QueueRow:
    """The queue of a derived stream; last_batch: the last micro-batch of its ring that is in it;
    safe_…: the last one that all consumers are done with, and the position at its end."""

    stream: str
    name: str
    incarnation: str
    last_batch: int | None = None
    safe_batch: int | None = None
    safe_position: int | None = None


@dataclass(frozen=True, slots=True)
class EpochRow:
    ring: str
    number: int
    version: int
    punctuation_us: int
    clock_us: int | None
    work: str


# columns in the order of the row classes
_QUERY = ", ".join(f.name for f in fields(QueryRow))
_EPOCH = ", ".join(f.name for f in fields(EpochRow))
_QUEUE = ", ".join(f.name for f in fields(QueueRow))
_RING = ", ".join(f.name for f in fields(RingRow))
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
# rings of a stream ?1 and of its companions
_OF_STREAM = "stream = ?1 OR substr(stream, 1, length(?1) + 1) = ?1 || '.' COLLATE NOCASE"


class Registry:
    """All reads and writes of the catalog file; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._guard = threading.RLock()
        self._looked = 0  # version at which dropped queries were forgotten last
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLES)
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('format', ?)", (FORMAT,))
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('version', 0), ('purged', 0)")
            found = self._meta("format")
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
        return {column[1] for column in self._rows(f"PRAGMA table_info({table})")}

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
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def read(self, sql: str, *arguments: Any) -> list[Any]:
        """Rows of a table that somebody else has made in the catalog."""
        return self._rows(sql, *arguments)

    def _rows(self, sql: str, *arguments: Any) -> list[Any]:
        with self._guard:
            return self._db.execute(sql, arguments).fetchall()

    def _meta(self, key: str) -> int:
        return int(self._rows("SELECT value FROM meta WHERE key = ?", key)[0][0])

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

    # streams

    def streams(self) -> list[Stream]:
        return [
            stream_from(r[0]) for r in self._rows("SELECT definition FROM streams ORDER BY rowid")
        ]

    def put_stream(self, stream: Stream) -> None:
        with self.change() as db:
            db.execute(
                "INSERT INTO streams VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET definition = excluded.definition",
                (stream.name, dumps(stream)),
            )

    def drop_stream(self, name: str) -> None:
        with self.change() as db:
            for table in ("progress", "consumed", "epochs"):  # another stream may take the name
                db.execute(
                    f"DELETE FROM {table} WHERE ring IN (SELECT id FROM rings WHERE {_OF_STREAM})",
                    (name,),
                )
            db.execute("DELETE FROM streams WHERE name = ?", (name,))
            db.execute("DELETE FROM queues WHERE stream = ?", (name,))
            db.execute("DELETE FROM bad_records WHERE stream = ?", (name,))

    def queues(self) -> list[QueueRow]:
        return [QueueRow(*row) for row in self._rows(f"SELECT {_QUEUE} FROM queues")]

    def queue(self, stream: str) -> QueueRow | None:
        rows = self._rows(f"SELECT {_QUEUE} FROM queues WHERE stream = ?", stream)
        return QueueRow(*rows[0]) if rows else None

    def put_queue(self, queue: QueueRow) -> None:
        with self.change() as db:
            db.execute(
                f"INSERT OR REPLACE INTO queues ({_QUEUE}) VALUES (?, ?, ?, ?, ?, ?)",
                astuple(queue),
            )

    def count_bad(self, stream: str, piece: str, rows: int) -> bool:
        """Note the bad records of one piece of input, once; False if they were known already."""
        with self.change() as db:
            cursor = db.execute(
                "INSERT OR IGNORE INTO bad_records VALUES (?, ?, ?)", (stream, piece, rows)
            )
            return cursor.rowcount == 1

    def bad_count(self, stream: str) -> int:
        sql = "SELECT coalesce(sum(rows), 0) FROM bad_records WHERE stream = ?"
        return int(self._rows(sql, stream)[0][0])

    def stream_counts(self, stream: str) -> tuple[int, int, int, int]:
        """Tuples read by the ring that read most, and those that are no place in the ring that
        found most; late and lost ones of all queries ever.

        Rings of an earlier stream of that name have no progress any more and do not count.
        """
        read = (
            "SELECT coalesce(max(coalesce(json_extract(p.facts, '$.rows'), 0)"
            " + coalesce(json_extract(p.facts, '$.untimed'), 0)), 0),"
            " coalesce(max(coalesce(json_extract(p.facts, '$.unplaced'), 0)), 0)"
            " FROM progress p JOIN rings r ON r.id = p.ring WHERE r.stream = ?"
        )
        missed = (
            "SELECT coalesce(sum(q.late), 0), coalesce(sum(q.lost), 0) FROM ("
            "SELECT ring, late, lost FROM queries UNION ALL SELECT ring, late, lost FROM forgotten"
            ") q JOIN rings r ON r.id = q.ring JOIN progress p ON p.ring = r.id WHERE r.stream = ?"
        )
        return (*self._rows(read, stream)[0], *self._rows(missed, stream)[0])

    # regions

    def regions(self) -> list[RegionSet]:
        rows = self._rows("SELECT definition FROM regions ORDER BY rowid")
        return [region_set_from(row[0]) for row in rows]

    def put_regions(self, regions: RegionSet, body: bytes) -> None:
        with self.change() as db:
            row = (regions.name, dumps(regions), regions.digest, body)
            db.execute("INSERT INTO regions VALUES (?, ?, ?, ?)", row)

    def region_body(self, digest: str) -> bytes:
        """The regions themselves, as `region_tables` writes them."""
        return bytes(self._rows("SELECT body FROM regions WHERE digest = ?", digest)[0][0])

    def drop_regions(self, name: str) -> None:
        with self.change() as db:
            db.execute("DELETE FROM regions WHERE name = ?", (name,))

    def rings_of_regions(self, name: str) -> list[str]:
        """The rings that join a stream with them."""
        joined = (
            "coalesce(json_extract(composition, '$.regions.regions'),"
            " json_extract(composition, '$.following.regions.regions'))"
        )
        sql = f"SELECT id FROM rings WHERE state <> 'retired' AND {joined} = ? COLLATE NOCASE"
        return [row[0] for row in self._rows(sql, name)]

    # rings

    def rings(self, inputs: bool = False) -> list[RingRow]:
        """All rings, in order; `inputs`: and what is kept of the inputs of joins."""
        sql = f"SELECT {_RING} FROM rings WHERE ? OR state <> '{INPUT}' ORDER BY rowid"
        return [RingRow(*row) for row in self._rows(sql, inputs)]

    def add_ring(self, ring: RingRow) -> None:
        with self.change() as db:
            db.execute(f"INSERT INTO rings ({_RING}) VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(ring))

    def has_failed(self, ring: str) -> bool:
        return bool(self._rows("SELECT 1 FROM rings WHERE id = ? AND state = 'failed'", ring))

    def failed_readers(self, stream: str) -> list[str]:
        """Rings that read a stream and have failed."""
        owner = "substr(id, 1, instr(id || '#', '#') - 1)"
        sql = (
            "SELECT id FROM rings WHERE state = 'failed'"
            f" AND id IN (SELECT {owner} FROM rings WHERE stream = ?) ORDER BY rowid"
        )
        return [r[0] for r in self._rows(sql, stream)]

    def set_ring_state(self, ring: str, state: str, error: str | None = None) -> None:
        with self.change() as db:
            db.execute("UPDATE rings SET state = ?, error = ? WHERE id = ?", (state, error, ring))

    def retire_ring(self, ring: str) -> None:
        """Mark a ring, and the inputs of a join, as gone."""
        with self.change() as db:
            inputs = f"(state = '{INPUT}' AND substr(id, 1, length(?1) + 1) = ?1 || '#')"
            sql = f"UPDATE rings SET state = 'retired', error = NULL WHERE id = ?1 OR {inputs}"
            db.execute(sql, (ring,))
            db.execute(  # none of them runs again; where the last one was, others may begin
                "DELETE FROM epochs WHERE substr(ring, 1, instr(ring || '#', '#') - 1) = ?"
                " AND number < (SELECT through FROM progress p WHERE p.ring = epochs.ring)",
                (ring,),
            )

    # queries

    def queries(self, ring: str | None = None, dropped: bool = False) -> list[QueryRow]:
        sql = (
            f"SELECT {_QUERY} FROM queries WHERE (?1 IS NULL OR ring = ?1)"
            " AND (?2 OR dropped IS NULL) ORDER BY slot"
        )
        return [QueryRow(*row) for row in self._rows(sql, ring, dropped)]

    def readers_of(self, stream: str) -> list[str]:
        """Names of the queries on a stream or on its companions."""
        owner = "substr(id, 1, instr(id || '#', '#') - 1)"
        sql = (
            "SELECT name FROM queries WHERE dropped IS NULL"
            f" AND ring IN (SELECT {owner} FROM rings WHERE {_OF_STREAM}) ORDER BY slot"
        )
        return [r[0] for r in self._rows(sql, stream)]

    def count_queries(self, ring: str) -> int:
        sql = "SELECT count(*) FROM queries WHERE ring = ? AND dropped IS NULL"
        return int(self._rows(sql, ring)[0][0])

    def names_in(self, ring: str, besides: int | None, most: int) -> list[str]:
        """Names of some live queries of a ring, one slot aside."""
        sql = (
            "SELECT name FROM queries WHERE ring = ? AND dropped IS NULL AND slot IS NOT ?"
            " ORDER BY slot LIMIT ?"
        )
        return [r[0] for r in self._rows(sql, ring, besides, most)]

    def count_specs(
        self, ring: str, text: str, longer: str, besides: int | None
    ) -> tuple[int, int]:
        """Live queries of a ring, one slot aside, whose specs contain a text, and a longer one."""
        sql = (
            "SELECT count(*), coalesce(sum(instr(spec, ?) > 0), 0) FROM queries"
            " WHERE ring = ? AND dropped IS NULL AND slot IS NOT ? AND instr(spec, ?) > 0"
        )
        found: tuple[int, int] = self._rows(sql, longer, ring, besides, text)[0]
        return found

    def query(self, name: str) -> QueryRow | None:
        sql = f"SELECT {_QUERY} FROM queries WHERE name = ? AND dropped IS NULL"
        rows = self._rows(sql, name)
        return QueryRow(*rows[0]) if rows else None

    def query_by_slot(self, slot: int) -> QueryRow:
        rows = self._rows(f"SELECT {_QUERY} FROM queries WHERE slot = ?", slot)
        if not rows:
            hint = f"the last {KEPT_DROPPED} that were dropped are remembered"
            raise EngineError("the query was dropped long ago", hint)
        return QueryRow(*rows[0])

    def next_slot(self) -> int:
        """The number the next query gets; numbers are never used again."""
        rows = self._rows("SELECT seq FROM sqlite_sequence WHERE name = 'queries'")
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

    def specs_since(self, ring: str, version: int) -> list[str]:
        """Specs of all queries that came to a ring after a version, dropped ones too."""
        sql = "SELECT spec FROM queries WHERE ring = ? AND added > ?"
        return [r[0] for r in self._rows(sql, ring, max(0, version))]

    def slots_since(self, ring: str, version: int) -> list[int]:
        """Live slots that came to a ring after a version."""
        sql = "SELECT slot FROM queries WHERE ring = ? AND added > ? AND dropped IS NULL"
        return [r[0] for r in self._rows(sql, ring, version)]

    def derived_of(self, ring: str) -> list[dict[str, str]]:
        """Attributes that Spark derives for the slots that a micro-batch of a ring may still have.

        One that was cut short is run again with the slots it had.
        """
        last = self.last_epoch(ring)
        sql = (
            "SELECT spec FROM queries WHERE instr(spec, '\"derived\":[{') > 0 AND ("
            "ring = ?1 AND (dropped IS NULL OR dropped > ?2)"
            " OR slot IN (SELECT slot FROM moves WHERE origin = ?1 AND version > ?2))"
        )
        specs = self._rows(sql, ring, 0 if last is None else last.version)
        found = {a["name"]: a for (spec,) in specs for a in json.loads(spec)["derived"]}
        return [found[name] for name in sorted(found)]

    def start_after(self, ring: str, since: int, version: int, from_us: int) -> None:
        """New window queries report only windows that begin at or after an event time."""
        sql = "SELECT slot, spec FROM queries WHERE ring = ? AND added > ? AND added <= ?"
        with self.change() as db:
            for slot, spec in self._rows(sql, ring, since, version):
                text = canonical({**json.loads(spec), "from_us": from_us})
                db.execute("UPDATE queries SET spec = ? WHERE slot = ?", (text, slot))

    def drop_query(self, slot: int) -> int:
        with self.change() as db:
            version = self.raise_version()
            db.execute(
                "UPDATE queries SET dropped = ?, state = 'dropped' WHERE slot = ?", (version, slot)
            )
            if version >= self._looked + _PURGED_EVERY:
                self._looked = version
                self.forget_dropped()
            return version

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
            if not (found := self._rows(oldest, KEPT_DROPPED)):
                return
            gone = [row[0] for row in self._rows(_FORGETTABLE, found[0][0])]
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
        added = self._rows(
            "SELECT spec FROM queries WHERE ring = ?1 AND added > ?2 AND added <= ?3"
            " AND (dropped IS NULL OR dropped > ?3) ORDER BY slot",
            ring,
            since,
            version,
        )
        dropped = self._rows(
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
        return [r[0] for r in self._rows(sql, slot)]

    def delivered_before(self, ring: str) -> dict[int, int]:
        """Of slots that came with a ring's copy: the last micro-batch that the ring delivered."""
        sql = (
            "SELECT slot, max(m.version), m.delivered FROM moves m JOIN queries q USING (slot)"
            " WHERE q.ring = ? AND q.dropped IS NULL GROUP BY slot"
        )
        return {slot: delivered for slot, _, delivered in self._rows(sql, ring)}

    # epochs

    def epoch(self, ring: str, number: int) -> EpochRow | None:
        sql = f"SELECT {_EPOCH} FROM epochs WHERE ring = ? AND number = ?"
        rows = self._rows(sql, ring, number)
        return EpochRow(*rows[0]) if rows else None

    def last_epoch(self, ring: str) -> EpochRow | None:
        sql = f"SELECT {_EPOCH} FROM epochs WHERE ring = ? ORDER BY number DESC LIMIT 1"
        rows = self._rows(sql, ring)
        return EpochRow(*rows[0]) if rows else None

    def has_begun(self, ring: str) -> bool:
        """Whether a ring has had an epoch of its own, not only an inherited position."""
        last = self.last_epoch(ring)
        return last is not None and last.version > 0

    def add_epoch(self, epoch: EpochRow, consumed: list[str]) -> None:
        """Log an epoch and what it takes from the source in one transaction; old ones go."""
        with self.change() as db:
            db.execute(f"INSERT INTO epochs ({_EPOCH}) VALUES (?, ?, ?, ?, ?, ?)", astuple(epoch))
            db.executemany(
                "INSERT OR IGNORE INTO consumed VALUES (?, ?, ?)",
                [(epoch.ring, item, epoch.number) for item in consumed],
            )
            # Spark replays at most the last uncommitted batch and keeps 100 for roll-back
            db.execute(
                "DELETE FROM epochs WHERE ring = ? AND number < ?", (epoch.ring, epoch.number - 200)
            )

    def consumed(self, ring: str) -> set[str]:
        return {r[0] for r in self._rows("SELECT item FROM consumed WHERE ring = ?", ring)}

    def inherit_position(self, ring: str, stream: str, event_time: str | None) -> None:
        """Start a ring where the stream's other rings are.

        What they have read and counted, it has not to read; what they are just reading, it reads
        too. The times and delays they have seen count as seen if they are of the same event time:
        then its first windows begin after them.
        """
        with self.change() as db:
            others = self._rows(
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
        rows = self._rows(sql, ring)
        return (rows[0][0], json.loads(rows[0][1]), rows[0][2]) if rows else None

    def set_progress(
        self, ring: str, through: int, facts: dict[str, Any], punctuation: int
    ) -> None:
        with self.change() as db:
            db.execute(
                "INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)",
                (ring, through, json.dumps(facts), punctuation),
            )

    def count_late(self, late: Mapping[int, int], lost: Mapping[int, int]) -> None:
        """Add to the tuples that missed windows of a query, and to those that are in none of it."""
        with self.change() as db:
            db.executemany(
                "UPDATE queries SET late = late + ?, lost = lost + ? WHERE slot = ?",
                [(n, lost.get(slot, 0), slot) for slot, n in late.items()],
            )
