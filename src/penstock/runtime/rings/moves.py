"""Slots that go from one ring to another of the same composition, in the registry.

A split makes a *copy* of a ring that stands still: its checkpoint with all state, its epochs, what
it has read and seen. Ring and copy then go on from the same tuple, each for its own slots; what
either still holds of the other's slots comes to nobody and expires. So no window starts anew,
whatever the ring computes and wherever its tuples come from.

A merge gives a ring the slots of another one that has read exactly the same tuples and keeps no
state.

All of it is one transaction: a slot has one ring at any moment, whenever the engine is killed.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.runtime.registry import Registry, RingRow

_COPIED = {
    "epochs": "number, version, punctuation_us, clock_us, work",
    "consumed": "item, number",
    "progress": "through, facts, punctuation_us",
}


def split_slots(
    registry: Registry,
    rows: Sequence[tuple[RingRow, RingRow]],
    slots: Sequence[int],
    delivered: int,
) -> int:
    """Give slots to a copy of their ring.

    rows: the ring, and the inputs of a join, each with its copy. delivered: the last micro-batch
    whose results have reached the sinks.
    """
    (ring, copy), *_ = rows
    with registry.change() as db:
        for old, new in rows:
            registry.add_ring(new)
            for table, columns in _COPIED.items():
                db.execute(
                    f"INSERT INTO {table} (ring, {columns}) SELECT ?, {columns} FROM {table}"
                    " WHERE ring = ?",
                    (new.id, old.id),
                )
        version = registry.raise_version()
        for slot in slots:
            _move(registry, slot, ring.id, copy.id, version, delivered)
    return version


def merge_slots(registry: Registry, ring: str, into: str, slots: Sequence[int]) -> int:
    """Give slots to another ring, which takes them up with its next epoch."""
    with registry.change() as db:
        version = registry.raise_version()
        for slot in slots:
            _move(registry, slot, ring, into, version, -1)
            db.execute(
                "UPDATE queries SET added = ?, last_batch = -1 WHERE slot = ? AND ring = ?",
                (version, slot, into),
            )
    return version


def _move(registry: Registry, slot: int, ring: str, to: str, version: int, delivered: int) -> None:
    with registry.change() as db:
        sql = "UPDATE queries SET ring = ? WHERE slot = ? AND ring = ? AND dropped IS NULL"
        if db.execute(sql, (to, slot, ring)).rowcount:
            db.execute("INSERT INTO moves VALUES (?, ?, ?, ?)", (slot, ring, version, delivered))
