"""Streams, the queues of derived ones, what was bad in them, and sets of regions."""

from __future__ import annotations

from dataclasses import astuple

from penstock.plan.catalog import Catalog, RegionSet, Stream
from penstock.plan.codec import dumps, region_set_from, stream_from
from penstock.runtime.registry.database import Database
from penstock.runtime.registry.rows import OF_STREAM, QUEUE, QueueRow


class StreamTables(Database):
    def catalog(self) -> Catalog:
        return Catalog.of(self.streams(), self.regions())

    def streams(self) -> list[Stream]:
        return [
            stream_from(r[0]) for r in self.read("SELECT definition FROM streams ORDER BY rowid")
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
                    f"DELETE FROM {table} WHERE ring IN (SELECT id FROM rings WHERE {OF_STREAM})",
                    (name,),
                )
            db.execute("DELETE FROM streams WHERE name = ?", (name,))
            db.execute("DELETE FROM queues WHERE stream = ?", (name,))
            db.execute("DELETE FROM bad_records WHERE stream = ?", (name,))

    def queues(self) -> list[QueueRow]:
        return [QueueRow(*row) for row in self.read(f"SELECT {QUEUE} FROM queues")]

    def queue(self, stream: str) -> QueueRow | None:
        rows = self.read(f"SELECT {QUEUE} FROM queues WHERE stream = ?", stream)
        return QueueRow(*rows[0]) if rows else None

    def put_queue(self, queue: QueueRow) -> None:
        with self.change() as db:
            db.execute(
                f"INSERT OR REPLACE INTO queues ({QUEUE}) VALUES (?, ?, ?, ?, ?, ?)",
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
        return int(self.read(sql, stream)[0][0])

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
        return (*self.read(read, stream)[0], *self.read(missed, stream)[0])

    # regions

    def regions(self) -> list[RegionSet]:
        rows = self.read("SELECT definition FROM regions ORDER BY rowid")
        return [region_set_from(row[0]) for row in rows]

    def put_regions(self, regions: RegionSet, body: bytes) -> None:
        with self.change() as db:
            row = (regions.name, dumps(regions), regions.digest, body)
            db.execute("INSERT INTO regions VALUES (?, ?, ?, ?)", row)

    def region_body(self, digest: str) -> bytes:
        """The regions themselves, as `region_tables` writes them."""
        return bytes(self.read("SELECT body FROM regions WHERE digest = ?", digest)[0][0])

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
        return [row[0] for row in self.read(sql, name)]
