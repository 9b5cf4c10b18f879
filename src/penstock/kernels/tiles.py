"""Bitmaps of terms in tiles of 2,048; see `selection`, and `matching` for what reads them.

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
    CHANGED_WORD_ROWS,
    FLAG_ROWS,
    INT,
    INT_ROWS,
    INTS,
    WORD_ROWS,
    Bytes,
    Flags,
    Ints,
    SmallInts,
    Words,
    inner,
    kernel,
)
from penstock.kernels.matching import TILE, TILE_WORDS, match_rows, survivors
from penstock.kernels.terms import TermRows


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
        self._live = np.empty((0, TILE_WORDS), np.uint64)
        self._map_count = 0
        self._maps = np.empty((0, TILE_WORDS), np.uint64)  # a bitmap for each bucket of each map
        self._borders = np.empty((0, TILE_WORDS), np.uint64)
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
        return match_rows(
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
            TILE_WORDS,
        )

    def survivors(self, layout: Layout, buckets: Bytes, prefix: int) -> tuple[Ints, Ints]:
        """Bits left after each attribute in order, and if each came after the prefix, in all."""
        return survivors(
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
                    for w in range(TILE_WORDS):
                        some |= maps[base + bucket, w]
                if some != 0:
                    _set(summary, attribute * BUCKETS + bucket, tile)
    return summary
