"""Windows as data: rows become partial aggregates per (slot, group, window end).

Windows end at the multiples k of SLIDE, so within one slide [q·SLIDE, (q+1)·SLIDE) the set of
windows that hold a time changes only once, where windows begin: with RANGE = full·SLIDE + rest, at
the offset SLIDE - rest. These at most two pieces are the panes (Krishnamurthy's paired windows).
For a time at offset r, bit = [r >= SLIDE - rest], the pane is 2q + bit and its windows are
    k = q + 1 … q + full + bit,
none if the time lies in a gap. Rows are folded once per pane, panes into their windows.
A window k of a slot is reported unless it begins before the slot's from_us, and closed if it ends
at or before the punctuation closed_us. A row is late for a slot if it has windows to report and
misses some of them because they are closed; it still counts in the others.

closed_us is one punctuation for all rows or one per row, for streams that are punctuated source by
source. The source is then part of the group: rows of one group of a slot have equal closed_us, and
a pane, too, has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kernels.aggregate import Fold, fold_partial, sums_fit
from penstock.kernels.groups import group_rows, number_pairs
from penstock.kernels.jit import FLAGS, INTS, SMALL_INTS, Flags, Ints, SmallInts, inner, kernel
from penstock.kernels.selection import Matches, rows_by_slot
from penstock.plan.specs import Partial, SlotSpec

# Beyond every window: closed_us may be extreme, and differences must not overflow
_FAR = 2**61


@dataclass(frozen=True, slots=True)
class LatePairs:
    """Every (row, slot) that missed windows which the slot would have reported."""

    rows: Ints
    positions: Ints  # of the slots
    first_us: Ints  # end of the first missed window
    last_us: Ints  # end of the last missed window
    missed: Ints  # how many
    lost: Flags  # the row is in no window at all


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows for open windows, and who missed closed ones."""

    batch: pa.RecordBatch
    late: LatePairs


@dataclass(frozen=True, slots=True)
class _Windows:
    """The slots' windows in units of their slides."""

    slides: Ints
    fulls: Ints
    rests: Ints
    first_own: Ints  # least k that does not begin before from_us


def preaggregate(
    batch: pa.RecordBatch,
    matches: Matches,
    slots: Sequence[SlotSpec],
    ts_us: Ints,
    keys: Sequence[str],
    partials: Sequence[Partial],
    types: Mapping[str, str],
    closed_us: int | Ints,
    mask: Flags | None = None,
) -> WindowRows:
    """One row per (slot, group, window end): __slot, __end_us, the keys, the partials.

    Rows whose `mask` is False have no event time and take no part. Where an integer sum might
    overflow, each tuple gets rows of its own, which whoever merges the partials adds up.
    """
    windows, closings = _lay_out(slots), _closings(closed_us)
    groups = group_rows(batch, keys, types)
    offsets, rows, panes, late_offsets, late_rows = _find_panes(
        *rows_by_slot(matches), ts_us, closings, _present(batch, mask), *_arrays(windows)
    )
    mergeable = sums_fit(batch, partials, types)
    members = groups.ids[rows]
    pane_ids, firsts = _number(offsets, members, panes, mergeable)
    pane_slots = np.searchsorted(offsets, firsts, "right") - 1
    edge_offsets, sources, ks = _find_windows(
        np.searchsorted(firsts, offsets),
        panes[firsts],
        _of_rows(closings, rows[firsts]),
        windows.slides,
        windows.fulls,
        windows.first_own,
    )
    pane_groups = members[firsts]
    out_ids, firsts = _number(edge_offsets, pane_groups[sources], ks, mergeable)

    into_panes = Fold(pane_ids, rows, pane_slots.size)
    into_windows = Fold(out_ids, sources, firsts.size)
    out_slots = pane_slots[sources[firsts]]
    representatives = pa.array(groups.rows[pane_groups[sources[firsts]]])
    arrays = [_slot_numbers(slots)[out_slots], ks[firsts] * windows.slides[out_slots]]
    arrays += [batch.column(name).take(representatives) for name in keys]
    arrays += [fold_partial(batch, p, types, into_panes, into_windows) for p in partials]
    names = ["__slot", "__end_us", *keys, *(p.name for p in partials)]
    out = pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], names)
    late_positions = np.repeat(np.arange(len(slots)), np.diff(late_offsets))
    return WindowRows(out, _late_pairs(late_rows, late_positions, ts_us, closings, windows))


def expand(
    batch: pa.RecordBatch,
    matches: Matches,
    slots: Sequence[SlotSpec],
    ts_us: Ints,
    closed_us: int | Ints,
    columns: Sequence[str],
    mask: Flags | None = None,
) -> WindowRows:
    """One row per (row, slot, window end), in row order: __slot, __end_us, the columns."""
    windows, closings = _lay_out(slots), _closings(closed_us)
    rows, positions, ks, late_rows, late_positions = _expand_rows(
        matches.offsets, matches.slots, ts_us, closings, _present(batch, mask), *_arrays(windows)
    )
    taken = pa.array(rows)
    arrays = [pa.array(_slot_numbers(slots)[positions]), pa.array(ks * windows.slides[positions])]
    arrays += [batch.column(name).take(taken) for name in columns]
    out = pa.RecordBatch.from_arrays(arrays, ["__slot", "__end_us", *columns])
    return WindowRows(out, _late_pairs(late_rows, late_positions, ts_us, closings, windows))


def _lay_out(slots: Sequence[SlotSpec]) -> _Windows:
    columns: list[tuple[int, int, int, int]] = []
    for slot in slots:
        if slot.window is None:
            raise PenstockError(f"slot {slot.slot} has no window")
        range_us, slide_us = slot.window.range_us, slot.window.slide_us
        first_own = -_FAR
        if slot.from_us is not None:
            first_own = _within_reach(-(-(slot.from_us + range_us) // slide_us))
        columns.append((slide_us, range_us // slide_us, range_us % slide_us, first_own))
    table = np.array(columns, np.int64).reshape(-1, 4).T
    return _Windows(*(np.ascontiguousarray(column) for column in table))


def _closings(closed_us: int | Ints) -> Ints:
    """A punctuation per row, or a single one for all of them."""
    if isinstance(closed_us, np.ndarray):
        return np.clip(closed_us, -_FAR, _FAR)
    return np.array([_within_reach(closed_us)], np.int64)


def _of_rows(closings: Ints, rows: Ints) -> Ints:
    return closings if closings.size == 1 else closings[rows]


def _within_reach(number: int) -> int:
    return min(max(number, -_FAR), _FAR)


def _late_pairs(
    rows: Ints, positions: Ints, ts_us: Ints, closings: Ints, windows: _Windows
) -> LatePairs:
    """What each late pair missed: its windows from the first to report to the last closed one."""
    slides, fulls, rests, first_own = (column[positions] for column in _arrays(windows))
    last = (ts_us[rows] + fulls * slides + rests) // slides
    first_missed = np.maximum(ts_us[rows] // slides + 1, first_own)
    last_missed = np.minimum(last, _of_rows(closings, rows) // slides)
    return LatePairs(
        rows,
        positions,
        first_missed * slides,
        last_missed * slides,
        last_missed - first_missed + 1,
        last == last_missed,
    )


def _arrays(windows: _Windows) -> tuple[Ints, Ints, Ints, Ints]:
    return windows.slides, windows.fulls, windows.rests, windows.first_own


def _present(batch: pa.RecordBatch, mask: Flags | None) -> Flags:
    return np.ones(batch.num_rows, np.bool_) if mask is None else mask


def _slot_numbers(slots: Sequence[SlotSpec]) -> Ints:
    return np.array([slot.slot for slot in slots], np.int64)


def _number(offsets: Ints, a: Ints, b: Ints, mergeable: bool) -> tuple[Ints, Ints]:
    if mergeable:
        return number_pairs(offsets, a, b)
    each = np.arange(a.size, dtype=np.int64)
    return each, each


@inner
def _slide_of(time: int, slide: int, guess: int) -> int:
    """Floor of time / slide; in a stream the previous row's answer mostly spares the division."""
    begin = guess * slide
    if begin <= time and time - begin < slide:
        return guess
    return time // slide


@kernel(INTS, INTS, INTS, INTS, FLAGS, INTS, INTS, INTS, INTS)
def _find_panes(
    slot_offsets: Ints,
    slot_rows: Ints,
    ts_us: Ints,
    closings: Ints,
    present: Flags,
    slides: Ints,
    fulls: Ints,
    rests: Ints,
    first_own: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Per slot the rows that have open windows to report, with their panes; and the late rows."""
    offsets = np.zeros(slides.size + 1, np.int64)
    rows = np.empty(slot_rows.size, np.int64)
    panes = np.empty(slot_rows.size, np.int64)
    late_offsets = np.zeros(slides.size + 1, np.int64)
    late_rows = np.empty(slot_rows.size, np.int64)
    step = 0 if closings.size == 1 else 1
    count = 0
    late_count = 0
    for slot in range(slides.size):
        slide, full, rest, own = slides[slot], fulls[slot], rests[slot], first_own[slot]
        q = 0
        closing_us = 0
        closed = 0
        for i in range(slot_offsets[slot], slot_offsets[slot + 1]):
            row = slot_rows[i]
            if not present[row]:
                continue
            q = _slide_of(ts_us[row], slide, q)
            bit = 1 if ts_us[row] - q * slide >= slide - rest else 0
            first, last = max(q + 1, own), q + full + bit
            if first > last:
                continue
            if closings[step * row] != closing_us:
                closing_us = closings[step * row]
                closed = closing_us // slide
            if closed < last:
                rows[count] = row
                panes[count] = 2 * q + bit
                count += 1
            if first <= closed:
                late_rows[late_count] = row
                late_count += 1
        offsets[slot + 1] = count
        late_offsets[slot + 1] = late_count
    return offsets, rows[:count], panes[:count], late_offsets, late_rows[:late_count].copy()


@kernel(INTS, INTS, INTS, INTS, INTS, INTS)
def _find_windows(
    offsets: Ints,
    panes: Ints,
    closings: Ints,
    slides: Ints,
    fulls: Ints,
    first_own: Ints,
) -> tuple[Ints, Ints, Ints]:
    """Per slot the pairs (pane, window k) to report."""
    edge_offsets = np.zeros(fulls.size + 1, np.int64)
    step = 0 if closings.size == 1 else 1
    sources, ks = np.empty(0, np.int64), np.empty(0, np.int64)
    for writing in (False, True):
        count = 0
        for slot in range(fulls.size):
            closed = 0
            for i in range(offsets[slot], offsets[slot + 1]):
                q = panes[i] >> 1
                closed = _slide_of(closings[step * i], slides[slot], closed)
                first = max(q, closed, first_own[slot] - 1) + 1
                last = q + fulls[slot] + (panes[i] & 1)
                if not writing:
                    count += last - first + 1
                    continue
                for k in range(first, last + 1):
                    sources[count] = i
                    ks[count] = k
                    count += 1
            edge_offsets[slot + 1] = count
        if not writing:
            sources, ks = np.empty(count, np.int64), np.empty(count, np.int64)
    return edge_offsets, sources, ks


@kernel(INTS, SMALL_INTS, INTS, INTS, FLAGS, INTS, INTS, INTS, INTS)
def _expand_rows(
    offsets: Ints,
    slots: SmallInts,
    ts_us: Ints,
    closings: Ints,
    present: Flags,
    slides: Ints,
    fulls: Ints,
    rests: Ints,
    first_own: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """All (row, slot, window k) to report, counted first and then written; and the late pairs."""
    rows, positions = np.empty(0, np.int64), np.empty(0, np.int64)
    ks = np.empty(0, np.int64)
    late_rows, late_positions = np.empty(0, np.int64), np.empty(0, np.int64)
    step = 0 if closings.size == 1 else 1
    begun, closed = np.zeros(slides.size, np.int64), np.zeros(slides.size, np.int64)
    for writing in (False, True):
        count = 0
        late_count = 0
        for row in range(ts_us.size):
            if not present[row]:
                continue
            for i in range(offsets[row], offsets[row + 1]):
                slot = slots[i]
                slide = slides[slot]
                q = _slide_of(ts_us[row], slide, begun[slot])
                begun[slot] = q
                closed[slot] = _slide_of(closings[step * row], slide, closed[slot])
                bit = 1 if ts_us[row] - q * slide >= slide - rests[slot] else 0
                first = max(q + 1, first_own[slot])
                last = q + fulls[slot] + bit
                is_late = first <= min(last, closed[slot])
                first_open = max(first, closed[slot] + 1)
                if not writing:
                    count += max(0, last - first_open + 1)
                    late_count += 1 if is_late else 0
                    continue
                if is_late:
                    late_rows[late_count] = row
                    late_positions[late_count] = slot
                    late_count += 1
                for k in range(first_open, last + 1):
                    rows[count] = row
                    positions[count] = slot
                    ks[count] = k
                    count += 1
        if not writing:
            rows, positions = np.empty(count, np.int64), np.empty(count, np.int64)
            ks = np.empty(count, np.int64)
            late_rows = np.empty(late_count, np.int64)
            late_positions = np.empty(late_count, np.int64)
    return rows, positions, ks, late_rows, late_positions
