"""The rivals of the bit-vector hash table, each at its best: without windows, and compiled.

MJoin           a hash table for each stream; a tuple is put into its own and asks the others, until
                one has no match. Each stream asks first where matches have been rarest so far
MJoin, counts   the same for queries that want only the key: tables of counts, no tuples
chain           symmetric hash joins, left-deep: the first two streams, their pairs with the third,
                and so on; what lies between two joins is kept in a hash table as well

All tables are open-addressing ones, at most half full, that grow with what they hold. A slot has
the hash and the newest tuple's number + 1 (or a count); rows lead to the next older tuple with the
same key. A probe costs one cache miss, and slots are fetched ahead. The tables lie one after the
other in the same arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels.jit import (
    BYTES,
    CHANGED_INT_ROWS,
    CHANGED_INTS,
    INT,
    INT_ROWS,
    INTS,
    Bytes,
    Ints,
    inner,
    kernel,
    named_tuple,
    prefetch,
)

HASH, HEAD = range(2)
NEXT, LEFT, RIGHT = range(3)  # of a stream's tuple LEFT is the time
ASKED, MATCHED = range(2)

_AHEAD = 16  # tuples


class Tables(NamedTuple):
    """slots: HASH, HEAD; rows: NEXT, then what is kept; by table, how many keys and rows it has."""

    slots: Ints
    rows: Ints
    keys: Ints
    used: Ints


TABLES = named_tuple(Tables, CHANGED_INT_ROWS, CHANGED_INT_ROWS, CHANGED_INTS, CHANGED_INTS)


class MJoin:
    """`looks`: how many tables have been asked so far, in all."""

    def __init__(self, streams: int) -> None:
        self._tables = _empty(streams, columns=2)
        self._seen = np.zeros((streams * streams, 2), np.int64)

    @property
    def looks(self) -> int:
        return int(self._seen[:, ASKED].sum())

    def add(self, streams: Bytes, hashes: Ints, times_us: Ints) -> Ints:
        """Add tuples in order of arrival: the combinations that they complete."""
        self._tables = _with_rows(_with_slots(self._tables, streams.size), streams.size)
        orders = _rarest_first(self._seen, self._tables.used.size)
        return _probe_in_turn(streams, hashes, times_us, orders, self._tables, self._seen)


class CountingMJoin:
    def __init__(self, streams: int) -> None:
        self._tables = _empty(streams, columns=0)
        self._seen = np.zeros((streams * streams, 2), np.int64)

    def add(self, streams: Bytes, hashes: Ints) -> tuple[Ints, Ints]:
        """Add tuples: positions of those that complete combinations, and how many."""
        self._tables = _with_slots(self._tables, streams.size)
        orders = _rarest_first(self._seen, self._tables.used.size)
        return _count_in_turn(streams, hashes, orders, self._tables, self._seen)


class Chain:
    """Tables 0 to n - 1 are those of the streams, n to 2n - 3 hold what the first joins found."""

    def __init__(self, streams: int) -> None:
        self._tables = _empty(2 * streams - 2, columns=3)

    def add(self, streams: Bytes, hashes: Ints, times_us: Ints) -> Ints:
        """Add tuples in order of arrival: the combinations that they complete."""
        self._tables = _with_slots(self._tables, streams.size)
        results, rows = _join_in_chain(streams, hashes, times_us, self._tables)
        self._tables = self._tables._replace(rows=rows)
        return results


def _empty(tables: int, columns: int) -> Tables:
    return Tables(
        np.zeros((2 * tables, 2), np.int64),
        np.empty((tables, columns), np.int64),
        np.zeros(tables, np.int64),
        np.zeros(tables, np.int64),
    )


def _with_slots(tables: Tables, more: int) -> Tables:
    """The tables with slots for more keys in each of them."""
    count = tables.used.size
    needed = 2 * (int(tables.keys.max()) + more)
    if len(tables.slots) >= needed * count:
        return tables
    slots = np.zeros((count << (needed - 1).bit_length(), 2), np.int64)
    _refill(tables.slots, slots, count)
    return tables._replace(slots=slots)


def _with_rows(tables: Tables, more: int) -> Tables:
    """The tables with room for more rows in each of them."""
    count = tables.used.size
    while len(tables.rows) < count * (int(tables.used.max()) + more):
        tables = tables._replace(rows=_doubled(tables.rows, count))
    return tables


def _rarest_first(seen: Ints, streams: int) -> Ints:
    """For each stream the others, by how often they had a match; those never asked come first."""
    asked, matched = seen.T.reshape(2, streams, streams)
    share = matched / np.maximum(asked, 1)
    np.fill_diagonal(share, 2)
    return np.ascontiguousarray(np.argsort(share, axis=1, kind="stable")[:, :-1])


@kernel(CHANGED_INT_ROWS, INT)
def _doubled(rows: Ints, tables: int) -> Ints:
    room = rows.shape[0] // tables
    doubled = np.empty((2 * rows.shape[0], rows.shape[1]), np.int64)
    for table in range(tables):
        doubled[2 * table * room : (2 * table + 1) * room] = rows[table * room : (table + 1) * room]
    return doubled


@inner
def _slot(slots: Ints, places: int, table: int, hash_: int) -> int:
    """The slot of a key, or the free one that it would get; each table has so many places."""
    first, place = table * places, hash_ & (places - 1)
    while slots[first + place, HEAD] != 0 and slots[first + place, HASH] != hash_:
        place = (place + 1) & (places - 1)
    return first + place


@kernel(CHANGED_INT_ROWS, CHANGED_INT_ROWS, INT)
def _refill(old: Ints, new: Ints, tables: int) -> None:
    places, new_places = old.shape[0] // tables, new.shape[0] // tables
    for i in range(old.shape[0]):
        if old[i, HEAD] != 0:
            slot = _slot(new, new_places, i // places, old[i, HASH])
            new[slot, HASH] = old[i, HASH]
            new[slot, HEAD] = old[i, HEAD]


@inner
def _fetch(slots: Ints, tables: int, places: int, hashes: Ints, i: int) -> None:
    """Ask early for the slots that a later tuple needs."""
    place = hashes[min(i + _AHEAD, hashes.size - 1)] & (places - 1)
    for table in range(tables):
        prefetch(slots, 2 * (table * places + place))


@inner
def _insert(tables: Tables, places: int, room: int, table: int, hash_: int, left: int) -> int:
    """Append a row with this key; its place in the table, which has room for so many rows."""
    slots, rows, keys, used = tables
    slot = _slot(slots, places, table, hash_)
    place: int = used[table]
    row = table * room + place
    rows[row, NEXT] = slots[slot, HEAD]
    rows[row, LEFT] = left
    used[table] += 1
    keys[table] += slots[slot, HEAD] == 0
    slots[slot, HASH] = hash_
    slots[slot, HEAD] = place + 1
    return place


@inner
def _all_match(
    slots: Ints, places: int, orders: Ints, seen: Ints, stream: int, hash_: int, heads: Ints
) -> bool:
    """Ask the other tables in order; whether all have the key, and what they have in the slot."""
    for k in range(orders.shape[1]):
        other = orders[stream, k]
        pair = stream * (orders.shape[1] + 1) + other
        seen[pair, ASKED] += 1
        heads[other] = slots[_slot(slots, places, other, hash_), HEAD]
        if heads[other] == 0:
            return False
        seen[pair, MATCHED] += 1
    return True


@inner
def _next_combination(rows: Ints, room: int, heads: Ints, stream: int, path: Ints) -> bool:
    """Go on along the chains like an odometer, the tuple of this stream fixed; False at the end."""
    for other in range(path.size):
        if other != stream:
            path[other] = rows[other * room + path[other] - 1, NEXT]
            if path[other] != 0:
                return True
            path[other] = heads[other]
    return False


@kernel(BYTES, INTS, INTS, INT_ROWS, TABLES, CHANGED_INT_ROWS)
def _probe_in_turn(
    streams: Bytes, hashes: Ints, times: Ints, orders: Ints, tables: Tables, seen: Ints
) -> Ints:
    slots, rows, _, used = tables
    joined = used.size
    places, room = slots.shape[0] // joined, rows.shape[0] // joined
    heads, path = np.empty(joined, np.int64), np.empty(joined, np.int64)
    results = np.empty((streams.size, joined), np.int64)
    count = 0
    for i in range(streams.size):
        stream, hash_ = streams[i], hashes[i]
        _fetch(slots, joined, places, hashes, i)
        path[stream] = _insert(tables, places, room, stream, hash_, times[i]) + 1
        if not _all_match(slots, places, orders, seen, stream, hash_, heads):
            continue
        heads[stream] = path[stream]
        path[:] = heads
        more = True
        while more:
            if count == results.shape[0]:
                results = _doubled(results, 1)
            for k in range(joined):
                results[count, k] = path[k] - 1
            count += 1
            more = _next_combination(rows, room, heads, stream, path)
    return results[:count]


@kernel(BYTES, INTS, INT_ROWS, TABLES, CHANGED_INT_ROWS)
def _count_in_turn(
    streams: Bytes, hashes: Ints, orders: Ints, tables: Tables, seen: Ints
) -> tuple[Ints, Ints]:
    slots, _, keys, _ = tables
    joined = keys.size
    places = slots.shape[0] // joined
    heads = np.empty(joined, np.int64)
    positions, counts = np.empty(streams.size, np.int64), np.empty(streams.size, np.int64)
    found = 0
    for i in range(streams.size):
        stream, hash_ = streams[i], hashes[i]
        _fetch(slots, joined, places, hashes, i)
        slot = _slot(slots, places, stream, hash_)
        keys[stream] += slots[slot, HEAD] == 0
        slots[slot, HASH] = hash_
        slots[slot, HEAD] += 1
        if _all_match(slots, places, orders, seen, stream, hash_, heads):
            positions[found] = i
            counts[found] = 1
            for k in range(orders.shape[1]):
                counts[found] *= heads[orders[stream, k]]
            found += 1
    return positions[:found].copy(), counts[:found].copy()


@inner
def _head(slots: Ints, places: int, table: int, hash_: int) -> int:
    head: int = slots[_slot(slots, places, table, hash_), HEAD]
    return head


@inner
def _unfold(rows: Ints, room: int, left: int, right: int, result: Ints) -> None:
    """The tuples of the last join's pair: the left side is a pair of the join before, and so on."""
    joined = result.size
    result[joined - 1] = right
    for k in range(joined - 2, 0, -1):
        row = (joined + k - 1) * room + left
        result[k] = rows[row, RIGHT]
        left = rows[row, LEFT]
    result[0] = left


@kernel(BYTES, INTS, INTS, TABLES)
def _join_in_chain(streams: Bytes, hashes: Ints, times: Ints, tables: Tables) -> tuple[Ints, Ints]:
    """The combinations, and the rows, which may have grown.

    Join k has the pairs of join k - 1 (or stream 0) on its left and stream k on its right. For an
    arriving tuple, one side is what is new, from the head of its chain down to what was the head
    before, and the other is the whole chain.
    """
    slots, rows, keys, used = tables
    count, joined = used.size, used.size // 2 + 1
    places, room = slots.shape[0] // count, rows.shape[0] // count
    results = np.empty((streams.size, joined), np.int64)
    found = 0
    for i in range(streams.size):
        stream, hash_ = streams[i], hashes[i]
        _fetch(slots, count, places, hashes, i)
        if used[stream] == room:
            rows, room = _doubled(rows, count), 2 * room
        older = _head(slots, places, stream, hash_)
        _insert(Tables(slots, rows, keys, used), places, room, stream, hash_, times[i])
        left_end, right_end = (older, 0) if stream == 0 else (0, older)
        for k in range(max(stream, 1), joined):
            left_table, into = joined + k - 2 if k > 1 else 0, joined + k - 1
            left = _head(slots, places, left_table, hash_)
            right_head = _head(slots, places, k, hash_)
            if left == left_end or right_head == right_end:
                break
            before = _head(slots, places, into, hash_) if into < count else 0
            while left != left_end:
                right = right_head
                while right != right_end:
                    if into == count:
                        if found == results.shape[0]:
                            results = _doubled(results, 1)
                        _unfold(rows, room, left - 1, right - 1, results[found])
                        found += 1
                    else:
                        if used[into] == room:
                            rows, room = _doubled(rows, count), 2 * room
                        pair = _insert(
                            Tables(slots, rows, keys, used), places, room, into, hash_, left - 1
                        )
                        rows[into * room + pair, RIGHT] = right - 1
                    right = rows[k * room + right - 1, NEXT]
                left = rows[left_table * room + left - 1, NEXT]
            left_end, right_end = before, 0
    return results[:found], rows
