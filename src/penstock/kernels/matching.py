"""Which terms hold for a row: the kernels that read the bitmaps of `tiles`."""

from __future__ import annotations

import numpy as np

from penstock.kernels.binning import BUCKETS
from penstock.kernels.jit import (
    BYTE_ROWS,
    FLAG_ROWS,
    FLAGS,
    INT,
    INT_ROWS,
    INTS,
    SMALL_INTS,
    WORD_ROWS,
    WORDS,
    Bytes,
    Flags,
    Ints,
    SmallInts,
    Words,
    inner,
    kernel,
)

TILE = 2048  # terms
TILE_WORDS = TILE // 64
_BLOCK = 1024  # rows that pass over a tile while its maps are in the cache

# position of a word's lowest set bit, by de Bruijn multiplication
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_PLACES = np.zeros(64, np.int64)
for _bit in range(64):
    _BIT_PLACES[((1 << _bit) * int(_DE_BRUIJN) % 2**64) >> 58] = _bit


@inner
def _place_of(lowest: np.uint64) -> np.int64:
    return np.int64(_BIT_PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)])


@inner
def _holds(keys: Ints, valid: Flags, row: int, rows: Ints, first: int, end: int) -> bool:
    """Whether a row satisfies all predicates of a term."""
    at = first
    while at < end:
        attribute = rows[at, 0]
        key, known = keys[attribute, row], valid[attribute, row]
        some = False
        while at < end and rows[at, 0] == attribute:
            some |= rows[at, 1] <= key <= rows[at, 2] if known else rows[at, 3] != 0
            at += 1
        if not some:
            return False
    return True


@kernel(
    INT_ROWS,
    FLAG_ROWS,
    BYTE_ROWS,
    INT,
    INTS,
    INTS,
    WORDS,
    WORDS,
    FLAGS,
    WORD_ROWS,
    SMALL_INTS,
    INT,
    WORD_ROWS,
    WORD_ROWS,
    WORD_ROWS,
    INT_ROWS,
    INT_ROWS,
    INT,
    INT,
)
def match_rows(
    keys: Ints,
    valid: Flags,
    buckets: Bytes,
    tile_count: int,
    attributes: Ints,
    visit_offsets: Ints,
    visit_attributes: Words,
    visit_bases: Words,
    visit_exact: Flags,
    summary: Words,
    positions: SmallInts,
    slot_count: int,
    maps: Words,
    borders: Words,
    live: Words,
    spans: Ints,
    rows: Ints,
    together: int,
    words: int,
) -> tuple[Ints, SmallInts, int]:
    """`words`: of a bitmap; as a constant it would keep the loops from being vectorised."""
    row_count = keys.shape[1]
    width = (tile_count + 63) // 64
    wanted = np.empty((_BLOCK, width), np.uint64)  # tiles that a row has to look at
    result = np.empty(TILE_WORDS, np.uint64)
    at = np.empty(attributes.size, np.uint64)  # the row's bitmaps in a tile
    pair_rows = np.empty(4 * TILE, np.int32)
    pair_terms = np.empty(4 * TILE, np.int32)
    place = np.empty(_BLOCK + 1, np.int64)
    last_row = np.full(slot_count, -1, np.int64)  # of slots with several terms
    offsets = np.zeros(row_count + 1, np.int64)
    slots = np.empty(max(row_count, 1024), np.int32)
    used = 0
    visits = 0
    for start in range(0, row_count, _BLOCK):
        count = min(_BLOCK, row_count - start)
        if tile_count > 1:
            for i in range(count):
                for w in range(width):
                    wanted[i, w] = ~np.uint64(0)
            for a in range(attributes.size):
                for i in range(count):
                    bucket = np.int64(buckets[start + i, attributes[a]])
                    for w in range(width):
                        wanted[i, w] &= summary[a * BUCKETS + bucket, w]
        pairs = 0
        for tile in range(tile_count):
            begin, end = visit_offsets[tile], visit_offsets[tile + 1]
            own = np.uint64(1) << np.uint64(tile & 63)
            for i in range(count):
                if tile_count > 1 and wanted[i, tile >> 6] & own == 0:
                    continue
                row = start + i
                some = np.uint64(0)
                for w in range(words):
                    result[w] = live[tile, w]
                    some |= live[tile, w]
                for visit in range(begin, end):
                    own_bucket = np.uint64(buckets[row, visit_attributes[visit]])
                    at[visit - begin] = visit_bases[visit] + own_bucket
                visit = 0
                while visit < end - begin and some != 0:
                    last = min(visit + together, end - begin) - 1
                    a, b = at[visit], at[min(visit + 1, last)]
                    c, d = at[min(visit + 2, last)], at[min(visit + 3, last)]
                    e = at[last]
                    some = np.uint64(0)
                    for w in range(words):
                        left = maps[a, w] & maps[b, w] & maps[c, w] & maps[d, w] & maps[e, w]
                        word = result[w] & left
                        result[w] = word
                        some |= word
                    visits += last + 1 - visit
                    visit = last + 1
                if some == 0:
                    continue
                if pairs + TILE > pair_rows.size:
                    more_rows = np.empty(2 * pair_rows.size, np.int32)
                    more_rows[:pairs] = pair_rows[:pairs]
                    pair_rows = more_rows
                    more_terms = np.empty(2 * pair_terms.size, np.int32)
                    more_terms[:pairs] = pair_terms[:pairs]
                    pair_terms = more_terms
                for w in range(TILE_WORDS):
                    word = result[w]
                    if word == 0:
                        continue
                    unsure = ~np.uint64(0)
                    if word & (word - np.uint64(1)):  # for a single bit it would not pay
                        unsure = np.uint64(0)
                        for visit in range(begin, end):
                            if not visit_exact[visit]:
                                unsure |= borders[at[visit - begin], w]
                    while word != 0:
                        lowest = word & (~word + np.uint64(1))
                        term = tile * TILE + 64 * w + _place_of(lowest)
                        pair_rows[pairs] = i
                        pair_terms[pairs] = ~term if lowest & unsure else term
                        pairs += 1
                        word ^= lowest
        # a loop of its own, so that its many cache misses overlap
        candidates, pairs = pairs, 0
        for p in range(candidates):
            row, term = start + pair_rows[p], np.int64(pair_terms[p])
            if term < 0:
                term = ~term
                if not _holds(keys, valid, row, rows, spans[term, 0], spans[term, 1]):
                    continue
            pair_rows[pairs] = pair_rows[p]
            pair_terms[pairs] = positions[term]
            pairs += 1
        # the pairs come tile by tile: bring them into the order of rows
        if used + pairs > slots.size:
            grown = np.empty(2 * slots.size + pairs, np.int32)
            grown[:used] = slots[:used]
            slots = grown
        for i in range(count + 1):
            place[i] = 0
        for p in range(pairs):
            place[pair_rows[p] + 1] += 1
        place[0] = used
        for i in range(count):
            place[i + 1] += place[i]
            offsets[start + i + 1] = place[i + 1]
        for p in range(pairs):
            slots[place[pair_rows[p]]] = pair_terms[p]
            place[pair_rows[p]] += 1
        begin = used
        for row in range(start, start + count):
            end = offsets[row + 1]
            for p in range(begin, end):
                position = slots[p]
                if position < 0:
                    position = ~position
                    if last_row[position] == row:
                        continue
                    last_row[position] = row
                slots[used] = position
                used += 1
            begin = end
            offsets[row + 1] = used
    return offsets, slots[:used].copy(), visits


_PAIRS, _NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_BYTES, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@inner
def _count_bits(word: np.uint64) -> np.int64:
    """Bits of a word: counted in pairs, nibbles and bytes, and added up."""
    pairs = word - ((word >> np.uint64(1)) & _PAIRS)
    nibbles = (pairs & _NIBBLES) + ((pairs >> np.uint64(2)) & _NIBBLES)
    octets = (nibbles + (nibbles >> np.uint64(4))) & _BYTES
    return np.int64((octets * _ONES) >> np.uint64(56))


@kernel(BYTE_ROWS, INT, INTS, INTS, WORD_ROWS, WORD_ROWS, INT)
def survivors(
    buckets: Bytes,
    tile_count: int,
    attributes: Ints,
    bases: Ints,
    maps: Words,
    live: Words,
    prefix: int,
) -> tuple[Ints, Ints]:
    count = attributes.size
    after, candidates = np.zeros(count, np.int64), np.zeros(count, np.int64)
    result = np.empty(TILE_WORDS, np.uint64)
    for row in range(buckets.shape[0]):
        for tile in range(tile_count):
            for w in range(TILE_WORDS):
                result[w] = live[tile, w]
            for a in range(count):
                if a == prefix:
                    for other in range(prefix, count):
                        base = bases[tile * count + other]
                        at = base + np.int64(buckets[row, attributes[other]])
                        for w in range(TILE_WORDS):
                            word = result[w] if base < 0 else result[w] & maps[at, w]
                            candidates[other] += _count_bits(word)
                base = bases[tile * count + a]
                at = base + np.int64(buckets[row, attributes[a]])
                for w in range(TILE_WORDS):
                    if base >= 0:
                        result[w] &= maps[at, w]
                    after[a] += _count_bits(result[w])
    return after, candidates
