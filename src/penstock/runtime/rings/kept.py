"""Which kept results have reached a query's sink by now, and which never will; in the catalog.

The log of a ring holds what could not be delivered, and goes on holding it afterwards. What of it
is still to be delivered are the rows of a query from one micro-batch of its ring on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.runtime.registry import Registry

_TABLES = (
    "CREATE TABLE IF NOT EXISTS kept ("
    "slot INTEGER PRIMARY KEY, first INTEGER NOT NULL, cut INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS closed (slot INTEGER PRIMARY KEY)",
)


class KeptBook:
    """first: the micro-batch from which on a query's kept rows are still to be delivered.

    cut: rows that went from the log before they were. Closed queries have no results at all.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        with registry.change() as db:
            for table in _TABLES:
                db.execute(table)

    def begin(self, slots: Iterable[int], first: int) -> None:
        """All of before a micro-batch is delivered, or gone."""
        with self._registry.change() as db:
            db.executemany(
                "INSERT INTO kept (slot, first) VALUES (?, ?)"
                " ON CONFLICT (slot) DO UPDATE SET first = max(first, excluded.first)",
                [(slot, first) for slot in slots],
            )

    def set_first(self, slots: Iterable[int], first: int) -> None:
        """Queries whose micro-batches are numbered otherwise from now on."""
        with self._registry.change() as db:
            sql = "UPDATE kept SET first = ? WHERE slot = ?"
            db.executemany(sql, [(first, slot) for slot in slots])

    def firsts(self, slots: Collection[int]) -> dict[int, int]:
        """By slot; 0 for those of whom nothing is known."""
        return {slot: self._row(slot)[0] for slot in slots}

    def cut(self, slot: int) -> int:
        """Rows of a query that never reach its sink."""
        return self._row(slot)[1]

    def count_cut(self, slots: Collection[int], cut: Mapping[int, Mapping[int, int]]) -> None:
        """Rows by slot went with micro-batches; those delivered before do not count."""
        firsts = self.firsts(slots)
        lost = [
            (rows, slot)
            for batch, counts in cut.items()
            for slot, rows in counts.items()
            if slot in firsts and batch >= firsts[slot]
        ]
        with self._registry.change() as db:
            db.executemany(
                "INSERT INTO kept (cut, slot, first) VALUES (?, ?, 0)"
                " ON CONFLICT (slot) DO UPDATE SET cut = cut + excluded.cut",
                lost,
            )

    def close(self, slot: int) -> None:
        with self._registry.change() as db:
            db.execute("INSERT OR IGNORE INTO closed (slot) VALUES (?)", (slot,))

    def open(self, slot: int) -> None:
        with self._registry.change() as db:
            db.execute("DELETE FROM closed WHERE slot = ?", (slot,))

    def is_closed(self, slot: int) -> bool:
        return bool(self._registry.read("SELECT 1 FROM closed WHERE slot = ?", slot))

    def forget(self, slot: int) -> None:
        with self._registry.change() as db:
            for table in ("kept", "closed"):
                db.execute(f"DELETE FROM {table} WHERE slot = ?", (slot,))

    def _row(self, slot: int) -> tuple[int, int]:
        rows = self._registry.read("SELECT first, cut FROM kept WHERE slot = ?", slot)
        return (int(rows[0][0]), int(rows[0][1])) if rows else (0, 0)
