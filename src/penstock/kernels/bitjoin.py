"""The kernels of an n-way stream join on a bit-vector hash table (`kernels.bit_table`).

One entry per key holds a bit for each stream, set while the stream has a live tuple with this key,
and for each stream the chain of these tuples, newest first. An arriving tuple is linked, its bit
set, and only if all bits are set are the chains of the other streams looked at: one check, no join
order (Kwon, Kim, Lee, Kim: An Efficient M-way Stream Join Algorithm Exploiting a Bit-vector Hash
Table). A combination is found by its last member to arrive, so exactly once.

With t the latest time of a combination, all its members must satisfy t <= reach, which is time +
range, and somebody must want all of them. So on the way to a combination three numbers tell all:
the latest time so far, the least reach, and the common bits; it is dead as soon as the first
exceeds the second or no bit is left, and no further member can revive it. Ranges and bits are the
tuples' own where queries differ in them, so that nobody pays for how far another one reaches.

What stands below a tuple in its chain came before it, so it is later by no more than the stream's
disorder, the most that any tuple came behind the newest. A walk ends where even that is out of
reach: in a stream in order, the tuples within the range are all that is looked at.

A tuple is live while its time is not below the limit of its stream. The first tuple of a chain is
always live: `expire` sees to it, and clears the bit of an empty chain. Dead tuples further down are
unlinked when a walk meets them.
"""

from __future__ import annotations

import numpy as np

from penstock.kernels.bit_table import (
    ADDED,
    ARRIVALS,
    BITS,
    BOUNDS,
    COMMON,
    DEPTH,
    DISORDER,
    ENTRIES,
    ENTRY,
    FOUND,
    FULL,
    HASH,
    HEADS,
    IN_USE,
    KEPT,
    LATEST,
    LEAST,
    LIMIT,
    LIVE,
    NEWEST,
    NEXT,
    NONE,
    NUMBER,
    ONES,
    PATH,
    POSITION,
    RANGE,
    REACH,
    TABLE,
    TIME,
    TUPLES,
    WALK,
    WANTED,
    Arrivals,
    Bounds,
    Table,
    Walk,
)
from penstock.kernels.columns import INT64_MAX
from penstock.kernels.jit import (
    CHANGED_INT_ROWS,
    FLAG,
    INT,
    SMALL_INTS,
    Ints,
    SmallInts,
    inner,
    kernel,
    prefetch,
)

_LOW = 0xFFFFFFFF
_AHEAD = 16  # tuples


@inner
def _plus(a: int, b: int) -> int:
    """a + b, or the largest integer if that is more, or if b is: a range without end."""
    return INT64_MAX if a > INT64_MAX - b or b == INT64_MAX else a + b


@inner
def _note_time(table: Table, stream: int, time: int) -> None:
    by_stream = table.by_stream
    newest = by_stream[NEWEST, stream]
    if time >= newest:
        by_stream[NEWEST, stream] = time
    else:
        too_far = newest >= 0 and time < newest - INT64_MAX  # for the difference to be an integer
        behind = INT64_MAX if too_far else newest - time
        by_stream[DISORDER, stream] = max(by_stream[DISORDER, stream], behind)


@inner
def _fetch(table: Table, hashes: Ints, i: int) -> None:
    """Ask early for what later tuples need: a slot, and soon after the entry it leads to."""
    places, last = table.slots.size - 1, hashes.size - 1
    prefetch(table.slots, hashes[min(i + 2 * _AHEAD, last)] & places)
    slot = table.slots[hashes[min(i + _AHEAD, last)] & places]
    if slot != 0:
        prefetch(table.entries, ((slot & _LOW) - 1) * table.entries.shape[1])


@inner
def _entry_of(table: Table, hash_: int) -> int:
    """The entry of a key; a new one if it has none."""
    last = table.slots.size - 1
    place = hash_ & last
    while True:
        slot = table.slots[place]
        if slot == 0:
            break
        entry: int = (slot & _LOW) - 1
        if (slot ^ hash_) >> 32 == 0 and table.entries[entry, HASH] == hash_:
            return entry
        place = (place + 1) & last
    entry = table.figures[ENTRIES]
    table.figures[ENTRIES] += 1
    table.slots[place] = (hash_ & ~_LOW) | (entry + 1)
    entries = table.entries
    entries[entry, HASH] = hash_
    entries[entry, BITS] = 0
    for column in range(HEADS, entries.shape[1]):
        entries[entry, column] = NONE
    return entry


@inner
def _link(table: Table, entry: int, stream: int, time: int, number: int) -> None:
    """Append a tuple and set its bit."""
    figures, entries, tuples = table.figures, table.entries, table.tuples
    place = figures[TUPLES]
    figures[TUPLES] += 1
    figures[KEPT] += 1
    _note_time(table, stream, time)
    table.streams[place] = stream
    tuples[place, TIME] = time
    tuples[place, NUMBER] = number
    tuples[place, NEXT] = entries[entry, HEADS + stream]
    tuples[place, ENTRY] = entry
    entries[entry, HEADS + stream] = place
    before = entries[entry, BITS]
    after = before | (1 << stream)
    if after != before:
        entries[entry, BITS] = after
        figures[ONES] += 1
        figures[IN_USE] += before == 0
        figures[FULL] += after == _all_bits(table)


@inner
def _all_bits(table: Table) -> int:
    return int((1 << table.by_stream.shape[1]) - 1)


@inner
def _live_from(table: Table, place: int, limit: int) -> int:
    """The first live tuple of a chain from a place on."""
    while place >= 0 and table.tuples[place, TIME] < limit:
        place = table.tuples[place, NEXT]
    return place


@inner
def _after(table: Table, place: int, limit: int) -> int:
    """The next live tuple of a chain; dead ones between are unlinked."""
    following = table.tuples[place, NEXT]
    live = _live_from(table, following, limit)
    if live != following:
        table.tuples[place, NEXT] = live
    return live


@inner
def _enumerate(table: Table, walk: Walk, stream: int, results: Ints, count: int) -> int:
    """Go on with the combinations of the newest tuple, which is of this stream."""
    steps, by_stream = walk.steps, table.by_stream
    last, own = steps.shape[1] - 1, table.bounds.shape[0] > 0
    entry = table.tuples[table.figures[TUPLES] - 1, ENTRY]
    depth = walk.at[DEPTH]
    while depth > 0 and count < results.shape[0]:
        place = steps[PATH, depth]
        if place < 0:
            depth -= 1
            continue
        other = depth - 1 if depth <= stream else depth
        time = table.tuples[place, TIME]
        reach = _plus(time, by_stream[RANGE, other])  # that of the tuple, or of others beside it
        if reach < steps[LATEST, depth]:
            if _plus(reach, by_stream[DISORDER, other]) < steps[LATEST, depth]:
                depth -= 1  # what comes after it is out of reach, too
                continue
            steps[PATH, depth] = _after(table, place, by_stream[LIMIT, other])
            continue
        steps[PATH, depth] = _after(table, place, by_stream[LIMIT, other])
        common = steps[COMMON, depth]
        if own:
            reach = table.bounds[place, REACH]
            common &= table.bounds[place, WANTED]
        latest = max(steps[LATEST, depth], time)
        least = min(steps[LEAST, depth], reach)
        if latest > least or common == 0:
            continue
        steps[FOUND, other] = table.tuples[place, NUMBER]
        if depth == last:
            for i in range(last + 1):
                results[count, i] = steps[FOUND, i]
            count += 1
        else:
            depth += 1
            steps[LATEST, depth] = latest
            steps[LEAST, depth] = least
            steps[COMMON, depth] = common
            following = depth - 1 if depth <= stream else depth
            steps[PATH, depth] = table.entries[entry, HEADS + following]
    walk.at[DEPTH] = depth
    return count


@inner
def _bind(table: Table, bounds: Bounds, i: int) -> None:
    """Note the bounds of the newest tuple, where tuples have their own."""
    if table.bounds.shape[0] > 0:
        place = table.figures[TUPLES] - 1
        table.bounds[place, REACH] = bounds.reaches[i]
        table.bounds[place, WANTED] = bounds.wanted[i]


@kernel(ARRIVALS, BOUNDS, TABLE, WALK, CHANGED_INT_ROWS, INT)
def add_tuples(
    arrivals: Arrivals, bounds: Bounds, table: Table, walk: Walk, results: Ints, count: int
) -> int:
    """Add tuples from where the walk stands until all are in or the results are full."""
    streams, hashes, known, times = arrivals
    by_stream, steps, own = table.by_stream, walk.steps, table.bounds.shape[0] > 0
    for i in range(walk.at[POSITION], streams.size):
        stream = streams[i]
        _fetch(table, hashes, i)
        if walk.at[DEPTH] == 0:
            number = by_stream[ADDED, stream]
            by_stream[ADDED, stream] += 1
            if not known[i] or times[i] < by_stream[LIMIT, stream]:
                continue
            by_stream[LIVE, stream] += 1
            entry = _entry_of(table, hashes[i])
            _link(table, entry, stream, times[i], number)
            _bind(table, bounds, i)
            if table.entries[entry, BITS] != _all_bits(table):
                continue
            walk.at[DEPTH] = 1
            steps[FOUND, stream] = number
            steps[LATEST, 1] = times[i]
            steps[LEAST, 1] = (
                bounds.reaches[i] if own else _plus(times[i], by_stream[RANGE, stream])
            )
            steps[COMMON, 1] = bounds.wanted[i] if own else 1
            steps[PATH, 1] = table.entries[entry, HEADS + (0 if stream > 0 else 1)]
        count = _enumerate(table, walk, stream, results, count)
        if count == results.shape[0]:
            walk.at[POSITION] = i
            return count
    walk.at[POSITION] = streams.size
    return count


@kernel(ARRIVALS, BOUNDS, TABLE)
def load_tuples(arrivals: Arrivals, bounds: Bounds, table: Table) -> None:
    """Add tuples without looking for combinations."""
    streams, hashes, known, times = arrivals
    by_stream = table.by_stream
    for i in range(streams.size):
        stream = streams[i]
        _fetch(table, hashes, i)
        number = by_stream[ADDED, stream]
        by_stream[ADDED, stream] += 1
        if known[i] and times[i] >= by_stream[LIMIT, stream]:
            by_stream[LIVE, stream] += 1
            _link(table, _entry_of(table, hashes[i]), stream, times[i], number)
            _bind(table, bounds, i)


@inner
def _times(a: int, b: int) -> int:
    """a * b, or the largest integer."""
    return INT64_MAX if b > 0 and a > INT64_MAX // b else a * b


@inner
def _reaching(table: Table, entry: int, stream: int, latest: int, ties: bool) -> int:
    """How many tuples of a chain may stand with the latest time; ties: and may have that time."""
    limit, range_ = table.by_stream[LIMIT, stream], table.by_stream[RANGE, stream]
    place = table.entries[entry, HEADS + stream]
    count = 0
    while place >= 0:
        time = table.tuples[place, TIME]
        reach = _plus(time, range_)
        if reach < latest:
            if _plus(reach, table.by_stream[DISORDER, stream]) < latest:
                break
        elif time < latest or (ties and time == latest):
            count += table.tuples[place, NUMBER]
        place = _after(table, place, limit)
    return count


@inner
def _combinations(table: Table, entry: int, stream: int, time: int) -> int:
    """How many combinations an arriving tuple completes.

    If it is the latest of them, a product of counts; else summed over the tuples that may be the
    latest. Of equally late ones, that of the first stream counts as the latest.
    """
    streams = table.by_stream.shape[1]
    total = 1
    for other in range(streams):
        if other != stream:
            total = _times(total, _reaching(table, entry, other, time, True))
    last = _plus(time, table.by_stream[RANGE, stream])
    for leader in range(streams):
        place = table.entries[entry, HEADS + leader] if leader != stream else NONE
        while place >= 0:
            latest = table.tuples[place, TIME]
            if latest < time and _plus(latest, table.by_stream[DISORDER, leader]) < time:
                break
            if time < latest <= last:
                found = table.tuples[place, NUMBER]
                for other in range(streams):
                    if other != stream and other != leader:
                        ties = other > leader
                        found = _times(found, _reaching(table, entry, other, latest, ties))
                total = _plus(total, found)
            place = _after(table, place, table.by_stream[LIMIT, leader])
    return total


@kernel(ARRIVALS, TABLE)
def count_combinations(arrivals: Arrivals, table: Table) -> tuple[Ints, Ints]:
    """Add tuples; positions of those that complete combinations, and how many."""
    streams, hashes, known, times = arrivals
    by_stream = table.by_stream
    positions = np.empty(streams.size, np.int64)
    counts = np.empty(streams.size, np.int64)
    found = 0
    for i in range(streams.size):
        stream, time = streams[i], times[i]
        _fetch(table, hashes, i)
        by_stream[ADDED, stream] += 1
        if not known[i] or time < by_stream[LIMIT, stream]:
            continue
        by_stream[LIVE, stream] += 1
        entry = _entry_of(table, hashes[i])
        newest = table.entries[entry, HEADS + stream]
        if newest >= 0 and table.tuples[newest, TIME] == time:
            table.tuples[newest, NUMBER] += 1
        else:
            _link(table, entry, stream, time, 1)
        if table.entries[entry, BITS] == _all_bits(table):
            positions[found] = i
            counts[found] = _combinations(table, entry, stream, time)
            found += counts[found] > 0
    return positions[:found].copy(), counts[:found].copy()


@kernel(ARRIVALS, TABLE)
def count_for_ever(arrivals: Arrivals, table: Table) -> tuple[Ints, Ints]:
    """As `count_combinations`, where no range ends: no tuples, in place of a chain their number."""
    streams, hashes, known, _ = arrivals
    entries, figures, by_stream = table.entries, table.figures, table.by_stream
    positions = np.empty(streams.size, np.int64)
    counts = np.empty(streams.size, np.int64)
    found, every = 0, _all_bits(table)
    for i in range(streams.size):
        stream = streams[i]
        _fetch(table, hashes, i)
        by_stream[ADDED, stream] += 1
        if not known[i]:
            continue
        by_stream[LIVE, stream] += 1
        entry = _entry_of(table, hashes[i])
        before = entries[entry, BITS]
        bits = before | (1 << stream)
        if bits != before:
            entries[entry, BITS] = bits
            entries[entry, HEADS + stream] = 0
            figures[IN_USE] += before == 0
            figures[ONES] += 1
            figures[FULL] += bits == every
        entries[entry, HEADS + stream] += 1
        if bits == every:
            count = 1
            for other in range(by_stream.shape[1]):
                if other != stream:
                    count = _times(count, entries[entry, HEADS + other])
            positions[found], counts[found] = i, count
            found += 1
    return positions[:found].copy(), counts[:found].copy()


@kernel(SMALL_INTS, INT, INT, FLAG, TABLE)
def expire_tuples(order: SmallInts, begin: int, stream: int, grouped: bool, table: Table) -> int:
    """Forget the dead among tuples in order of time; returns where the live ones begin.

    grouped: NUMBER is how many tuples a row stands for.
    """
    figures, tuples, entries = table.figures, table.tuples, table.entries
    limit = table.by_stream[LIMIT, stream]
    head = HEADS + stream
    for i in range(begin, order.size):
        place = order[i]
        if tuples[place, TIME] >= limit:
            return i
        figures[KEPT] -= 1
        table.by_stream[LIVE, stream] -= tuples[place, NUMBER] if grouped else 1
        entry = tuples[place, ENTRY]
        before = entries[entry, BITS]
        entries[entry, head] = _live_from(table, entries[entry, head], limit)
        if entries[entry, head] == NONE and before >> stream & 1:
            entries[entry, BITS] = before ^ (1 << stream)
            figures[ONES] -= 1
            figures[FULL] -= before == _all_bits(table)
            figures[IN_USE] -= entries[entry, BITS] == 0
    return order.size


@kernel(TABLE, TABLE)
def copy_live(old: Table, new: Table) -> None:
    """Put the live tuples of a table into an empty one."""
    last = old.figures[TUPLES] - 1
    for place in range(last + 1):
        ahead = old.tuples[min(place + _AHEAD, last), ENTRY]
        prefetch(new.slots, old.entries[ahead, HASH] & (new.slots.size - 1))
        stream, time = old.streams[place], old.tuples[place, TIME]
        if time >= old.by_stream[LIMIT, stream]:
            entry = _entry_of(new, old.entries[old.tuples[place, ENTRY], HASH])
            _link(new, entry, stream, time, old.tuples[place, NUMBER])
            if new.bounds.shape[0] > 0:
                new.bounds[new.figures[TUPLES] - 1] = old.bounds[place]


@kernel(TABLE)
def fill_slots(table: Table) -> None:
    """Lead from empty slots to the entries."""
    last, entries = table.slots.size - 1, table.figures[ENTRIES]
    for entry in range(entries):
        prefetch(table.slots, table.entries[min(entry + _AHEAD, entries - 1), HASH] & last)
        hash_ = table.entries[entry, HASH]
        place = hash_ & last
        while table.slots[place] != 0:
            place = (place + 1) & last
        table.slots[place] = (hash_ & ~_LOW) | (entry + 1)
