"""How the tuples of a stream join are laid out in arrays, by the names of their columns.

Slots, an open-addressing table at most half full, lead to entries: the low half of a hash is the
place, its high half stands in the slot next to the entry's number, so that a new key costs one
cache miss and a known one two. Entries and tuples are only ever appended.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.kernels.jit import (
    BYTES,
    CHANGED_BYTES,
    CHANGED_INT_ROWS,
    CHANGED_INTS,
    FLAGS,
    INTS,
    Bytes,
    Flags,
    Ints,
    named_tuple,
)

TIME, NUMBER, NEXT, ENTRY = range(4)
REACH, WANTED = range(2)
HASH, BITS, HEADS = range(3)
LIMIT, RANGE, LIVE, ADDED, NEWEST, DISORDER = range(6)
TUPLES, KEPT, ENTRIES, IN_USE, FULL, ONES = range(6)
POSITION, DEPTH = range(2)
PATH, LATEST, LEAST, COMMON, FOUND = range(5)

NONE = -1


class Table(NamedTuple):
    """What a join keeps.

    slots: 0, or high half of a hash and number of its entry + 1. entries: HASH, BITS, then the
    first tuple of each stream's chain. tuples: TIME, NUMBER (where only keys are wanted: how many
    tuples the row stands for), NEXT, ENTRY. bounds: where tuples are wanted by different ones, else
    without rows; the REACH of each tuple, the latest time that a partner may have, and by whom it
    is WANTED, as bits. streams: of each tuple. by_stream: LIMIT, RANGE, LIVE tuples, tuples ever
    ADDED, the NEWEST time of all that came, and how far a tuple came behind it at most (DISORDER).
    figures: rows of tuples, of which KEPT are live; rows of entries, of which IN_USE have a bit,
    FULL all; and the number of bits that are set.
    """

    slots: Ints
    entries: Ints
    tuples: Ints
    bounds: Ints
    streams: Bytes
    by_stream: Ints
    figures: Ints


class Arrivals(NamedTuple):
    """Tuples to add, in order of arrival; known: the key is not NULL."""

    streams: Bytes
    hashes: Ints
    known: Flags
    times: Ints


class Bounds(NamedTuple):
    """Of tuples to add: the latest time that a partner may have, and bits, of which all members of
    a combination must have one in common."""

    reaches: Ints
    wanted: Ints


class Walk(NamedTuple):
    """Where an enumeration stands.

    at: POSITION in the input, DEPTH (0: before this tuple). steps, for each depth: the tuple to try
    next (PATH), the LATEST time, the LEAST reach and the COMMON bits above; FOUND: numbers, by
    stream.
    """

    at: Ints
    steps: Ints


ARRIVALS = named_tuple(Arrivals, BYTES, INTS, FLAGS, INTS)
BOUNDS = named_tuple(Bounds, INTS, INTS)
TABLE = named_tuple(
    Table,
    CHANGED_INTS,
    CHANGED_INT_ROWS,
    CHANGED_INT_ROWS,
    CHANGED_INT_ROWS,
    CHANGED_BYTES,
    CHANGED_INT_ROWS,
    CHANGED_INTS,
)
WALK = named_tuple(Walk, CHANGED_INTS, CHANGED_INT_ROWS)
