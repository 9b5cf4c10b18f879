"""Windows as data: rows become partial aggregates per (slot, group, window end).

Windows end at the multiples k of SLIDE, so within one slide [q·SLIDE, (q+1)·SLIDE) the set of
windows that hold a time changes only once, where windows begin: with RANGE = full·SLIDE + rest, at
the offset SLIDE - rest. These at most two pieces are the panes (Krishnamurthy's paired windows).
For a time at offset r, bit = [r >= SLIDE - rest], the pane is 2q + bit and its windows are
    k = q + 1 … q + full + bit,
none if the time lies in a gap. Rows are folded once per pane, panes into their windows.
A row is late for a slot if it has windows and all of them are closed.
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

# Beyond every window: closed_us may be extreme, and differences of window numbers must not overflow
_FAR = 2**62


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows for open windows; late rows counted by slot position; which rows were late for any."""

    batch: pa.RecordBatch
    late_by_slot: Ints
    late_rows: Flags


@dataclass(frozen=True, slots=True)
class _Windows:
    """The slots' windows in units of their slides."""

    slides: Ints
    fulls: Ints
    rests: Ints
    first_open: Ints  # least k that is not closed
    first_reported: Ints  # least k that is neither closed nor begins before from_us


def preaggregate(
    batch: pa.RecordBatch,
    matches: Matches,
    slots: Sequence[SlotSpec],
    ts_us: Ints,
    keys: Sequence[str],
    partials: Sequence[Partial],
    types: Mapping[str, str],
    closed_us: int,
    mask: Flags | None = None,
) -> WindowRows:
    """One row per (slot, group, window end): slot, window_end_us, the keys, the partials.

    Rows whose `mask` is False have no event time and take no part. Where an integer sum might
    overflow, each tuple gets rows of its own, which whoever merges the partials adds up.
    """
    windows = _lay_out(slots, closed_us)
    groups = group_rows(batch, keys, types)
    offsets, rows, panes, late_by_slot, late_rows = _find_panes(
        *rows_by_slot(matches), ts_us, _present(batch, mask), *_arrays(windows)
    )
    mergeable = sums_fit(batch, partials, types)
    members = groups.ids[rows]
    pane_ids, firsts = _number(offsets, members, panes, mergeable)
    pane_slots = np.searchsorted(offsets, firsts, "right") - 1
    edge_offsets, sources, ks = _find_windows(
        np.searchsorted(firsts, offsets), panes[firsts], windows.fulls, windows.first_reported
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
    names = ["slot", "window_end_us", *keys, *(p.name for p in partials)]
    out = pa.RecordBatch.from_arrays([pa.array(a) for a in arrays], names)
    return WindowRows(out, late_by_slot, late_rows)


def expand(
    batch: pa.RecordBatch,
    matches: Matches,
    slots: Sequence[SlotSpec],
    ts_us: Ints,
    closed_us: int,
    columns: Sequence[str],
    mask: Flags | None = None,
) -> WindowRows:
    """One row per (row, slot, window end), in row order: slot, window_end_us, the columns."""
    windows = _lay_out(slots, closed_us)
    rows, positions, ks, late_by_slot, late_rows = _expand_rows(
        matches.offsets, matches.slots, ts_us, _present(batch, mask), *_arrays(windows)
    )
    taken = pa.array(rows)
    arrays = [pa.array(_slot_numbers(slots)[positions]), pa.array(ks * windows.slides[positions])]
    arrays += [batch.column(name).take(taken) for name in columns]
    out = pa.RecordBatch.from_arrays(arrays, ["slot", "window_end_us", *columns])
    return WindowRows(out, late_by_slot, late_rows)


def _lay_out(slots: Sequence[SlotSpec], closed_us: int) -> _Windows:
    columns: list[tuple[int, int, int, int, int]] = []
    for slot in slots:
        if slot.window is None:
            raise PenstockError(f"slot {slot.slot} has no window")
        range_us, slide_us = slot.window.range_us, slot.window.slide_us
        first_open = closed_us // slide_us + 1
        first_reported = first_open
        if slot.from_us is not None:
            first_reported = max(first_open, -(-(slot.from_us + range_us) // slide_us))
        columns.append(
            (
                slide_us,
                range_us // slide_us,
                range_us % slide_us,
                min(max(first_open, -_FAR), _FAR),
                min(max(first_reported, -_FAR), _FAR),
            )
        )
    table = np.array(columns, np.int64).reshape(-1, 5).T
    return _Windows(*(np.ascontiguousarray(column) for column in table))


def _arrays(windows: _Windows) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    return (
        windows.slides,
        windows.fulls,
        windows.rests,
        windows.first_open,
        windows.first_reported,
    )


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


@kernel(INTS, INTS, INTS, FLAGS, INTS, INTS, INTS, INTS, INTS)
def _find_panes(
    slot_offsets: Ints,
    slot_rows: Ints,
    ts_us: Ints,
    present: Flags,
    slides: Ints,
    fulls: Ints,
    rests: Ints,
    first_open: Ints,
    first_reported: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Flags]:
    """Per slot the rows that have windows to report, with their panes; and the late ones."""
    offsets = np.zeros(slides.size + 1, np.int64)
    rows = np.empty(slot_rows.size, np.int64)
    panes = np.empty(slot_rows.size, np.int64)
    late_by_slot = np.zeros(slides.size, np.int64)
    late_rows = np.zeros(ts_us.size, np.bool_)
    count = 0
    for slot in range(slides.size):
        slide, rest = slides[slot], rests[slot]
        q = 0
        for i in range(slot_offsets[slot], slot_offsets[slot + 1]):
            row = slot_rows[i]
            if not present[row]:
                continue
            q = _slide_of(ts_us[row], slide, q)
            bit = 1 if ts_us[row] - q * slide >= slide - rest else 0
            last = q + fulls[slot] + bit
            if last >= max(q + 1, first_reported[slot]):
                rows[count] = row
                panes[count] = 2 * q + bit
                count += 1
            elif q < last < first_open[slot]:
                late_by_slot[slot] += 1
                late_rows[row] = True
        offsets[slot + 1] = count
    return offsets, rows[:count].copy(), panes[:count].copy(), late_by_slot, late_rows


@kernel(INTS, INTS, INTS, INTS)
def _find_windows(
    offsets: Ints, panes: Ints, fulls: Ints, first_reported: Ints
) -> tuple[Ints, Ints, Ints]:
    """Per slot the pairs (pane, window k) to report."""
    edge_offsets = np.zeros(fulls.size + 1, np.int64)
    total = 0
    for slot in range(fulls.size):
        for i in range(offsets[slot], offsets[slot + 1]):
            first = max((panes[i] >> 1) + 1, first_reported[slot])
            total += (panes[i] >> 1) + fulls[slot] + (panes[i] & 1) - first + 1
        edge_offsets[slot + 1] = total
    sources, ks = np.empty(total, np.int64), np.empty(total, np.int64)
    count = 0
    for slot in range(fulls.size):
        for i in range(offsets[slot], offsets[slot + 1]):
            first = max((panes[i] >> 1) + 1, first_reported[slot])
            for k in range(first, (panes[i] >> 1) + fulls[slot] + (panes[i] & 1) + 1):
                sources[count] = i
                ks[count] = k
                count += 1
    return edge_offsets, sources, ks


@kernel(INTS, SMALL_INTS, INTS, FLAGS, INTS, INTS, INTS, INTS, INTS)
def _expand_rows(
    offsets: Ints,
    slots: SmallInts,
    ts_us: Ints,
    present: Flags,
    slides: Ints,
    fulls: Ints,
    rests: Ints,
    first_open: Ints,
    first_reported: Ints,
) -> tuple[Ints, Ints, Ints, Ints, Flags]:
    """All (row, slot, window k) to report, counted first and then written; and the late ones."""
    late_by_slot = np.zeros(slides.size, np.int64)
    late_rows = np.zeros(ts_us.size, np.bool_)
    rows = np.empty(0, np.int64)
    positions = np.empty(0, np.int64)
    ks = np.empty(0, np.int64)
    for writing in (False, True):
        count = 0
        for row in range(ts_us.size):
            if not present[row]:
                continue
            for i in range(offsets[row], offsets[row + 1]):
                slot = slots[i]
                q = ts_us[row] // slides[slot]
                offset = ts_us[row] - q * slides[slot]
                bit = 1 if offset >= slides[slot] - rests[slot] else 0
                last = q + fulls[slot] + bit
                first = max(q + 1, first_reported[slot])
                if not writing:
                    count += max(0, last - first + 1)
                    if q < last < first_open[slot]:
                        late_by_slot[slot] += 1
                        late_rows[row] = True
                    continue
                for k in range(first, last + 1):
                    rows[count] = row
                    positions[count] = slot
                    ks[count] = k
                    count += 1
        if not writing:
            rows = np.empty(count, np.int64)
            positions = np.empty(count, np.int64)
            ks = np.empty(count, np.int64)
    return rows, positions, ks, late_by_slot, late_rows
