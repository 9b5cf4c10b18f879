"""Thousands of selections in one pass: attribute selection constructs (ASC, Lee and Lee).

Every term (conjunction) of every slot is one bit. Each attribute that some term uses has, per
comparison region (`regions`), a bitmap of the terms that a value there satisfies or that do not use
the attribute; all of it is computed when queries are registered. A row's result bitmap starts with
all ones and is ANDed with one bitmap per attribute; a row whose bitmap is zero is dropped at once
and costs no further look-up. Equality and ranges cost the same: a binary search and an AND.

A slot's terms are neighbouring bits, so ascending bits are ascending slots and a slot that several
terms match is written once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kernels.columns import valid_flags
from penstock.kernels.jit import (
    FLAG_ROWS,
    FLAGS,
    INT,
    INT_ROWS,
    INTS,
    SMALL_INTS,
    WORD_ROWS,
    WORDS,
    Flags,
    Ints,
    SmallInts,
    Words,
    inner,
    kernel,
)
from penstock.kernels.regions import (
    Regions,
    column_keys,
    constant_key,
    cut_domain,
    region_range,
)
from penstock.plan.specs import SlotSpec, ValueSet


@dataclass(frozen=True, slots=True)
class Selection:
    """The slots' predicates, ready for matching."""

    slot_count: int
    attributes: tuple[tuple[str, Regions], ...]  # in the order of evaluation
    constants: Ints  # of all keyed attributes, one after the other
    constant_offsets: Ints
    bitmaps: Words  # one row per region of every attribute, one bit per term
    bitmap_offsets: Ints
    all_terms: Words
    term_slots: SmallInts  # position of each term's slot


@dataclass(frozen=True, slots=True)
class Matches:
    """Row i belongs to the slots at positions `slots[offsets[i]:offsets[i + 1]]`, ascending."""

    slot_count: int
    offsets: Ints
    slots: SmallInts
    visits: int  # attribute look-ups that the batch cost


# (term, set) per attribute
_Uses = dict[str, list[tuple[int, ValueSet]]]


def build_selection(
    slots: Sequence[SlotSpec], types: Mapping[str, str], order: Sequence[str] = ()
) -> Selection:
    """Compute regions and bitmaps; attributes of `order` come first, then those of most terms."""
    uses: _Uses = defaultdict(list)
    term_slots: list[int] = []
    for position, slot in enumerate(slots):
        for term in slot.terms:
            for name, values in term.sets:
                uses[name].append((len(term_slots), values))
            term_slots.append(position)
    rank = {name: place for place, name in enumerate(order)}
    names = sorted(uses, key=lambda n: (rank.get(n, len(rank)), -len(uses[n])))
    if unknown := [n for n in names if n not in types]:
        raise PenstockError(
            f"predicates use {unknown[0]}, which has no type", f"known: {', '.join(sorted(types))}"
        )
    all_terms = _bits(np.arange(len(term_slots)), len(term_slots))
    attributes = tuple(
        (name, cut_domain(types[name], _constants(uses[name], types[name]))) for name in names
    )
    bitmap_offsets = np.cumsum([0, *(r.count for _, r in attributes)], dtype=np.int64)
    bitmaps = np.zeros((bitmap_offsets[-1], all_terms.size), np.uint64)
    for i, (name, regions) in enumerate(attributes):
        part = bitmaps[bitmap_offsets[i] : bitmap_offsets[i + 1]]
        _fill_bitmaps(part, uses[name], regions, all_terms)
    keys = [np.array(r.constants if r.keyed else (), np.int64) for _, r in attributes]
    return Selection(
        len(slots),
        attributes,
        np.concatenate([np.empty(0, np.int64), *keys]),
        np.cumsum([0, *map(len, keys)], dtype=np.int64),
        bitmaps,
        bitmap_offsets,
        all_terms,
        np.array(term_slots, np.int32),
    )


def select(selection: Selection, batch: pa.RecordBatch) -> Matches:
    """Match every row of a batch with all slots."""
    shape = len(selection.attributes), batch.num_rows
    keys, valid = np.empty(shape, np.int64), np.empty(shape, np.bool_)
    for i, (name, regions) in enumerate(selection.attributes):
        column = batch.column(name)
        keys[i] = column_keys(column, regions)
        valid[i] = valid_flags(column) if regions.keyed else True
    offsets, slots, visits = _match_rows(
        batch.num_rows,
        keys,
        valid,
        np.array([r.keyed for _, r in selection.attributes], np.bool_),
        selection.constants,
        selection.constant_offsets,
        selection.bitmaps,
        selection.bitmap_offsets,
        selection.all_terms,
        selection.term_slots,
    )
    return Matches(selection.slot_count, offsets, slots, visits)


def rows_by_slot(matches: Matches) -> tuple[Ints, Ints]:
    """The matches by slot: offsets per slot position, and row indexes, ascending."""
    return _transpose(matches.offsets, matches.slots, matches.slot_count)


def _constants(uses: list[tuple[int, ValueSet]], type_: str) -> set[int | bytes]:
    return {
        constant_key(bound, type_)
        for _, values in uses
        for interval in values.intervals
        for bound in (interval.low, interval.high)
        if bound is not None
    }


def _fill_bitmaps(
    bitmaps: Words, uses: list[tuple[int, ValueSet]], regions: Regions, all_terms: Words
) -> None:
    """Set each region's bits: note where terms begin and cease to hold, then accumulate."""
    position = {constant: i for i, constant in enumerate(regions.constants)}
    users: list[int] = []
    holds_on_null: list[int] = []
    toggled: list[int] = []
    at: list[int] = []
    for term, values in uses:
        if users and users[-1] == term:
            raise PenstockError("a term names an attribute twice", "intersect the two sets")
        users.append(term)
        if values.null:
            holds_on_null.append(term)
        end = 0
        for interval in values.intervals:
            if span := region_range(interval, regions, position):
                if span[0] < end:
                    raise PenstockError("intervals overlap or are not sorted", "unite them first")
                end = span[1]
                toggled += [term, term]
                at += span
    terms = all_terms.size * 64
    bits = np.uint64(1) << (np.array(toggled, np.uint64) & np.uint64(63))
    words = np.array(toggled, np.int64) >> 6
    np.bitwise_xor.at(bitmaps, (np.array(at, np.int64), words), bits)
    others = all_terms & ~_bits(np.array(users, np.int64), terms)
    bitmaps[0] ^= others
    np.bitwise_xor.accumulate(bitmaps, axis=0, out=bitmaps)
    bitmaps[regions.null] = others | _bits(np.array(holds_on_null, np.int64), terms)


def _bits(positions: Ints, size: int) -> Words:
    flags = np.zeros(-(-size // 64) * 64, np.uint8)
    flags[positions] = 1
    return np.packbits(flags, bitorder="little").view(np.uint64)


# position of a word's lowest set bit, by de Bruijn multiplication
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_PLACES = np.zeros(64, np.int64)
for _bit in range(64):
    _BIT_PLACES[((1 << _bit) * int(_DE_BRUIJN) % 2**64) >> 58] = _bit


@inner
def _lower_bound(constants: Ints, begin: int, end: int, key: int) -> int:
    """First constant not below the key; the halving has no branch to mispredict."""
    size = end - begin
    while size > 0:
        half = (size + 1) >> 1
        begin += half if constants[begin + half - 1] < key else 0
        size -= half
    return begin


@kernel(INT, INT_ROWS, FLAG_ROWS, FLAGS, INTS, INTS, WORD_ROWS, INTS, WORDS, SMALL_INTS)
def _match_rows(
    row_count: int,
    keys: Ints,
    valid: Flags,
    keyed: Flags,
    constants: Ints,
    constant_offsets: Ints,
    bitmaps: Words,
    bitmap_offsets: Ints,
    all_terms: Words,
    term_slots: SmallInts,
) -> tuple[Ints, SmallInts, int]:
    width = all_terms.size
    # a block of result bitmaps stays in the first-level cache while attribute after attribute,
    # each with its constants and bitmaps, passes over it
    block = max(16, min(1024, 2048 // max(1, width)))
    result = np.empty((block, width), np.uint64)
    alive = np.empty(block, np.int64)
    offsets = np.zeros(row_count + 1, np.int64)
    slots = np.empty(max(row_count, 1024), np.int32)
    used = 0
    visits = 0
    for start in range(0, row_count, block):
        count = min(block, row_count - start)
        for i in range(count):
            alive[i] = i
            result[i] = all_terms
        for a in range(keyed.size):
            first, last = constant_offsets[a], constant_offsets[a + 1]
            base = bitmap_offsets[a]
            null = bitmap_offsets[a + 1] - 1
            visits += count
            kept = 0
            for s in range(count):
                i = alive[s]
                key = keys[a, start + i]
                if not keyed[a]:
                    region = base + key
                elif not valid[a, start + i]:
                    region = null
                else:
                    place = _lower_bound(constants, first, last, key)
                    equal = place < last and constants[place] == key
                    region = base + 2 * (place - first) + (1 if equal else 0)
                some = np.uint64(0)
                for w in range(width):
                    word = result[i, w] & bitmaps[region, w]
                    result[i, w] = word
                    some |= word
                alive[kept] = i
                kept += 1 if some != 0 else 0
            count = kept
            if count == 0:
                break
        for s in range(count):
            i = alive[s]
            if used + term_slots.size > slots.size:
                grown = np.empty(2 * slots.size + term_slots.size, np.int32)
                grown[:used] = slots[:used]
                slots = grown
            before = used
            previous = -1
            for w in range(width):
                word = result[i, w]
                while word != 0:
                    lowest = word & (~word + np.uint64(1))
                    bit = _BIT_PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)]
                    slot = term_slots[64 * w + bit]
                    if slot != previous:
                        slots[used] = slot
                        used += 1
                        previous = slot
                    word ^= lowest
            offsets[start + i + 1] = used - before
    for i in range(row_count):
        offsets[i + 1] += offsets[i]
    return offsets, slots[:used].copy(), visits


@kernel(INTS, SMALL_INTS, INT)
def _transpose(offsets: Ints, slots: SmallInts, slot_count: int) -> tuple[Ints, Ints]:
    slot_offsets = np.zeros(slot_count + 1, np.int64)
    for slot in slots:
        slot_offsets[slot + 1] += 1
    for slot in range(slot_count):
        slot_offsets[slot + 1] += slot_offsets[slot]
    place = slot_offsets.copy()
    rows = np.empty(slots.size, np.int64)
    for row in range(offsets.size - 1):
        for at in range(offsets[row], offsets[row + 1]):
            rows[place[slots[at]]] = row
            place[slots[at]] += 1
    return slot_offsets, rows
