"""Bitmaps of terms in tiles of 2,048, and the kernels that read them; see `selection`.

A term has a place, tile · 2,048 + bit. A tile has one map for each attribute that its terms use: a
bitmap per bucket of the terms that may hold there, and one of those that begin or end inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.kernels.binning import BUCKETS, NULL_BUCKET, Bins, find_buckets
from penstock.kernels.domains import Relabelling
from penstock.kernels.jit import (
    BYTE_ROWS,
    CHANGED_WORD_ROWS,
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

TILE = 2048
_WORDS = TILE // 64
_BLOCK = 1024  # rows that pass over a tile while its maps are in the cache


@dataclass(frozen=True, slots=True)
class TermRows:
    """Terms of slots; a term's predicates are the rows from one offset to the next.

    A row is (attribute, first key, last key, 1 if NULL holds), rows of an attribute are neighbours.
    """

    slots: Ints
    offsets: Ints
    rows: Ints

    @classmethod
    def of(
        cls, slots: Sequence[int], terms: Sequence[Sequence[tuple[int, int, int, int]]]
    ) -> TermRows:
        rows = np.array([row for term in terms for row in term], np.int64).reshape(-1, 4)
        offsets = np.cumsum([0, *map(len, terms)], dtype=np.int64)
        return cls(np.array(slots, np.int64), offsets, rows)

    def __len__(self) -> int:
        return int(self.slots.size)

    def taken(self, order: Ints) -> TermRows:
        """The terms in another order."""
        counts = np.diff(self.offsets)[order]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        return TermRows(
            self.slots[order], offsets, self.rows[np.repeat(self.offsets[order], counts) + within]
        )

    def followed_by(self, other: TermRows) -> TermRows:
        return TermRows(
            np.concatenate([self.slots, other.slots]),
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            np.concatenate([self.rows, other.rows]),
        )

    def bounds_of(self, attribute: int) -> tuple[Ints, Ints]:
        """First and last keys of an attribute's predicates."""
        rows = self.rows[(self.rows[:, 0] == attribute) & (self.rows[:, 1] <= self.rows[:, 2])]
        return np.ascontiguousarray(rows[:, 1]), np.ascontiguousarray(rows[:, 2])


NO_TERMS = TermRows.of((), ())


@dataclass(frozen=True, slots=True)
class Layout:
    """What matching reads: for each tile the attributes to look at, in order, and their maps."""

    attributes: Ints  # in use, in order
    visit_offsets: Ints  # by tile
    visit_attributes: Words  # unsigned, as whatever is an index in the innermost loops
    visit_bases: Words  # where the map's bitmaps begin
    visit_exact: Flags  # no predicate begins or ends inside a bucket
    summary: Words  # by attribute in use, bucket: a bit per tile
    positions: SmallInts  # by place: of the slot; ~position if the slot has several terms
    slot_count: int
    map_bases: Ints  # by tile and attribute in use; -1 without


class Tiles:
    """The terms and their bitmaps."""

    def __init__(self) -> None:
        self.term_count = 0
        self._tile_count = 0
        self._slots = np.empty(0, np.int64)  # by place; -1: free
        self._spans = np.empty((0, 2), np.int64)  # by place: the term's rows
        self._rows = np.empty((0, 4), np.int64)
        self._row_count = 0
        self._live = np.empty((0, _WORDS), np.uint64)
        self._map_count = 0
        self._maps = np.empty((0, _WORDS), np.uint64)  # a bitmap for each bucket of each map
        self._borders = np.empty((0, _WORDS), np.uint64)
        self._bases = np.empty((0, 0), np.int64)  # by tile and attribute; -1 without
        self._free: list[int] = []

    @property
    def nbytes(self) -> int:
        arrays = (self._maps, self._borders, self._rows, self._spans, self._slots)
        return sum(a.nbytes for a in arrays)

    def terms(self) -> TermRows:
        """All terms, in the order of their places."""
        places = np.flatnonzero(self._slots >= 0)
        counts = self._spans[places, 1] - self._spans[places, 0]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        rows = self._rows[np.repeat(self._spans[places, 0], counts) + within]
        return TermRows(self._slots[places], offsets, rows)

    def attributes_of(self, place: int) -> set[int]:
        first, end = self._spans[place]
        return set(self._rows[first:end, 0].tolist())

    def add_together(self, terms: TermRows, bins: Sequence[Bins]) -> Ints:
        """Add many terms so that those whose narrowest predicates begin alike share tiles."""
        order = _alike(terms, bins)
        places = np.empty(len(terms), np.int64)
        places[order] = self.add(terms.taken(order), bins)
        return places

    def add(self, terms: TermRows, bins: Sequence[Bins]) -> Ints:
        """Add terms where there is room; their places."""
        places = self._take_places(len(terms))
        self._keep_rows(terms, places)
        of_rows = np.repeat(places, np.diff(terms.offsets))
        for attribute in np.unique(terms.rows[:, 0]):
            used_in = np.unique(of_rows[terms.rows[:, 0] == attribute] // TILE)
            self._need_maps(int(attribute), used_in, len(bins))
        bits = np.uint64(1) << (places & 63).astype(np.uint64)
        np.bitwise_or.at(self._live, (places // TILE, places % TILE // 64), bits)
        for attribute in range(self._bases.shape[1]):
            mine = terms.rows[:, 0] == attribute
            self._put(attribute, bins[attribute], places, of_rows[mine], terms.rows[mine])
        return places

    def drop(self, place: int) -> None:
        """Forget a term: clear its bits."""
        tile, bit = divmod(place, TILE)
        _clear(self._maps, self._borders, self._bases[tile], bit)
        self._live[tile, bit >> 6] &= ~(np.uint64(1) << np.uint64(bit & 63))
        self._slots[place] = -1
        self._free.append(place)
        self.term_count -= 1

    def relabel(self, attribute: int, moved: Relabelling) -> None:
        """Give an attribute's predicates their keys after labels have changed."""
        mine = self._rows[: self._row_count, 0] == attribute
        mine &= self._rows[: self._row_count, 1] <= self._rows[: self._row_count, 2]
        at = np.flatnonzero(mine)
        lows, highs = moved.apply(self._rows[at, 1], self._rows[at, 2])
        self._rows[at, 1], self._rows[at, 2] = lows, highs

    def put_again(self, attribute: int, bins: Bins) -> None:
        """Make an attribute's maps for other buckets."""
        for tile in np.flatnonzero(self._bases[:, attribute] >= 0):
            base = self._bases[tile, attribute]
            self._maps[base : base + BUCKETS] = 0
            self._borders[base : base + BUCKETS] = 0
        terms, places = self.terms(), np.flatnonzero(self._slots >= 0)
        of_rows = np.repeat(places, np.diff(terms.offsets))
        mine = terms.rows[:, 0] == attribute
        self._put(attribute, bins, places, of_rows[mine], terms.rows[mine])

    def _take_places(self, count: int) -> Ints:
        """Free places, in tiles that have some, then in new ones."""
        reused = self._free[len(self._free) - min(count, len(self._free)) :]
        del self._free[len(self._free) - len(reused) :]
        missing = count - len(reused)
        first = self._tile_count * TILE
        if missing:
            self._tile_count += -(-missing // TILE)
            end = self._tile_count * TILE
            self._slots = _grown(self._slots, end, -1)
            self._spans = _grown(self._spans, end)
            self._live = _grown(self._live, self._tile_count)
            self._bases = _grown(self._bases, self._tile_count, -1)
            self._free += range(end - 1, first + missing - 1, -1)
        self.term_count += count
        return np.array([*reused, *range(first, first + missing)], np.int64)

    def _keep_rows(self, terms: TermRows, places: Ints) -> None:
        begin, count = self._row_count, terms.rows.shape[0]
        if begin + count > self._rows.shape[0] and begin:
            self._compact()
            begin = self._row_count
        self._rows = _grown(self._rows, begin + count)
        self._rows[begin : begin + count] = terms.rows
        self._row_count = begin + count
        self._slots[places] = terms.slots
        self._spans[places, 0] = begin + terms.offsets[:-1]
        self._spans[places, 1] = begin + terms.offsets[1:]

    def _compact(self) -> None:
        """Leave out the rows of dropped terms."""
        terms, places = self.terms(), np.flatnonzero(self._slots >= 0)
        self._rows[: terms.rows.shape[0]] = terms.rows
        self._row_count = terms.rows.shape[0]
        self._spans[places, 0], self._spans[places, 1] = terms.offsets[:-1], terms.offsets[1:]

    def _need_maps(self, attribute: int, tiles: Ints, attribute_count: int) -> None:
        """Make the maps that are missing; terms that are there do not use the attribute."""
        if attribute_count > self._bases.shape[1]:
            more = attribute_count - self._bases.shape[1]
            self._bases = np.pad(self._bases, ((0, 0), (0, more)), constant_values=-1)
        new = [tile for tile in tiles if self._bases[tile, attribute] < 0]
        size = (self._map_count + len(new)) * BUCKETS
        self._maps, self._borders = _grown(self._maps, size), _grown(self._borders, size)
        for tile in new:
            base = self._map_count * BUCKETS
            self._bases[tile, attribute] = base
            self._maps[base : base + BUCKETS] = self._live[tile]
            self._map_count += 1

    def _put(self, attribute: int, bins: Bins, places: Ints, of_rows: Ints, rows: Ints) -> None:
        """Set the bits of terms in an attribute's maps; `rows` are their predicates on it."""
        bases = np.ascontiguousarray(self._bases[: self._tile_count, attribute])
        others = np.setdiff1d(places, of_rows, assume_unique=False)
        _put_everywhere(self._maps, bases, others)
        lows, highs = np.ascontiguousarray(rows[:, 1]), np.ascontiguousarray(rows[:, 2])
        some = np.ones(lows.size, np.bool_)
        first, last = find_buckets(bins, lows, some), find_buckets(bins, highs, some)
        _put_predicates(
            self._maps,
            self._borders,
            bases,
            of_rows,
            np.stack([first, last]).astype(np.int64),
            np.stack(
                [
                    lows > highs,
                    rows[:, 3] != 0,
                    lows != bins.lows[first],
                    highs != bins.highs[last],
                ]
            ),
        )

    def layout(
        self, order: Sequence[int], exact: Sequence[bool], slot_numbers: Ints, several: Ints
    ) -> Layout:
        attributes = np.array(order, np.int64)
        bases = np.ascontiguousarray(self._bases[: self._tile_count][:, attributes])
        tiles, at = np.nonzero(bases >= 0)
        offsets = np.searchsorted(tiles, np.arange(self._tile_count + 1))
        visited = attributes[at]
        positions = np.searchsorted(slot_numbers, self._slots).astype(np.int32)
        multiple = np.isin(self._slots, several)
        return Layout(
            attributes,
            offsets.astype(np.int64),
            visited.astype(np.uint64),
            bases[tiles, at].astype(np.uint64),
            np.array(exact, np.bool_)[visited],
            _summarise(self._maps, bases.ravel(), self._tile_count, attributes.size),
            np.where(multiple, ~positions, positions),
            slot_numbers.size,
            bases.ravel(),
        )

    def match(
        self, layout: Layout, keys: Ints, valid: Flags, buckets: Bytes, together: int
    ) -> tuple[Ints, SmallInts, int]:
        """Offsets by row, positions of slots, look-ups."""
        return _match_rows(
            keys,
            valid,
            buckets,
            self._tile_count,
            layout.attributes,
            layout.visit_offsets,
            layout.visit_attributes,
            layout.visit_bases,
            layout.visit_exact,
            layout.summary,
            layout.positions,
            layout.slot_count,
            self._maps,
            self._borders,
            self._live,
            self._spans,
            self._rows,
            together,
            _WORDS,
        )

    def survivors(self, layout: Layout, buckets: Bytes, prefix: int) -> tuple[Ints, Ints]:
        """Bits left after each attribute in order, and if each came after the prefix, in all."""
        return _survivors(
            buckets,
            self._tile_count,
            layout.attributes,
            layout.map_bases,
            self._maps,
            self._live,
            prefix,
        )


def _grown(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """The array with room for `size` elements; it at least doubles."""
    if size <= array.shape[0]:
        return array
    grown = np.full((max(size, 2 * array.shape[0]), *array.shape[1:]), fill, array.dtype)
    grown[: array.shape[0]] = array
    return grown


def _alike(terms: TermRows, bins: Sequence[Bins]) -> Ints:
    """An order of terms: by the attribute whose predicate covers the fewest buckets, and where."""
    count, rows = len(terms), terms.rows
    of_rows = np.repeat(np.arange(count), np.diff(terms.offsets))
    first, width = np.zeros(of_rows.size, np.int64), np.zeros(of_rows.size, np.int64)
    for attribute, each in enumerate(bins):
        mine = np.flatnonzero(rows[:, 0] == attribute)
        some = np.ones(mine.size, np.bool_)
        first[mine] = find_buckets(each, np.ascontiguousarray(rows[mine, 1]), some)
        last = find_buckets(each, np.ascontiguousarray(rows[mine, 2]), some)
        # several intervals of one attribute count as one that is too wide to choose
        width[mine] = (last - first[mine]) * BUCKETS // (each.edges.size + 1)
    narrowest = np.lexsort((first, rows[:, 0], width, of_rows))
    chosen = narrowest[np.unique(of_rows[narrowest], return_index=True)[1]]
    key = np.full((2, count), -1, np.int64)
    key[0, of_rows[chosen]], key[1, of_rows[chosen]] = rows[chosen, 0], first[chosen]
    return np.lexsort((key[1], key[0]))


@inner
def _set(maps: Words, at: int, bit: int) -> None:
    maps[at, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)


@kernel(CHANGED_WORD_ROWS, INTS, INTS)
def _put_everywhere(maps: Words, bases: Ints, places: Ints) -> None:
    for place in places:
        base, bit = bases[place // TILE], place % TILE
        if base >= 0:
            for bucket in range(BUCKETS):
                _set(maps, base + bucket, bit)


@kernel(CHANGED_WORD_ROWS, CHANGED_WORD_ROWS, INTS, INTS, INT_ROWS, FLAG_ROWS)
def _put_predicates(
    maps: Words, borders: Words, bases: Ints, places: Ints, buckets: Ints, flags: Flags
) -> None:
    """`buckets`: first and last; `flags`: empty, holds on NULL, begins inside, ends inside."""
    for i in range(places.size):
        base, bit = bases[places[i] // TILE], places[i] % TILE
        if flags[1, i]:
            _set(maps, base + NULL_BUCKET, bit)
        if flags[0, i]:
            continue
        for bucket in range(buckets[0, i], buckets[1, i] + 1):
            _set(maps, base + bucket, bit)
        if flags[2, i]:
            _set(borders, base + buckets[0, i], bit)
        if flags[3, i]:
            _set(borders, base + buckets[1, i], bit)


@kernel(CHANGED_WORD_ROWS, CHANGED_WORD_ROWS, INTS, INT)
def _clear(maps: Words, borders: Words, bases: Ints, bit: int) -> None:
    others = ~(np.uint64(1) << np.uint64(bit & 63))
    for base in bases:
        if base >= 0:
            for at in range(base, base + BUCKETS):
                maps[at, bit >> 6] &= others
                borders[at, bit >> 6] &= others


@kernel(WORD_ROWS, INTS, INT, INT)
def _summarise(maps: Words, bases: Ints, tile_count: int, attribute_count: int) -> Words:
    """By attribute and bucket a bit for each tile: some term of it may hold there."""
    width = (tile_count + 63) // 64
    summary = np.zeros((attribute_count * BUCKETS, width), np.uint64)
    for tile in range(tile_count):
        for attribute in range(attribute_count):
            base = bases[tile * attribute_count + attribute]
            for bucket in range(BUCKETS):
                some = np.uint64(1) if base < 0 else np.uint64(0)
                if base >= 0:
                    for w in range(_WORDS):
                        some |= maps[base + bucket, w]
                if some != 0:
                    _set(summary, attribute * BUCKETS + bucket, tile)
    return summary


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
def _match_rows(
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
    result = np.empty(_WORDS, np.uint64)
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
                for w in range(_WORDS):
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
def _survivors(
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
    result = np.empty(_WORDS, np.uint64)
    for row in range(buckets.shape[0]):
        for tile in range(tile_count):
            for w in range(_WORDS):
                result[w] = live[tile, w]
            for a in range(count):
                if a == prefix:
                    for other in range(prefix, count):
                        base = bases[tile * count + other]
                        at = base + np.int64(buckets[row, attributes[other]])
                        for w in range(_WORDS):
                            word = result[w] if base < 0 else result[w] & maps[at, w]
                            candidates[other] += _count_bits(word)
                base = bases[tile * count + a]
                at = base + np.int64(buckets[row, attributes[a]])
                for w in range(_WORDS):
                    if base >= 0:
                        result[w] &= maps[at, w]
                    after[a] += _count_bits(result[w])
    return after, candidates
