"""How many tuples a second one core matches with k queries, their memory, the cost of one more.

The rival is predicate at a time in NumPy: for each query, the rows that are left are narrowed down
column by column. It also says what is right.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.bench.report import Value
from penstock.bench.select.queries import types
from penstock.bench.select.workload import Workload, bounds, rows, slots
from penstock.kernels.jit import Ints
from penstock.kernels.selection import Selection, build_selection, select
from penstock.plan.specs import SlotSpec

BATCH = 65_536
CHECKED = 1000  # tuples whose matches are compared
MOST_IN_TURN = 10_000  # queries up to which predicate at a time is timed
_PASSES = 3
_ADDED = 20


def kernel_row(k: int) -> tuple[dict[str, Value], bool]:
    """The figures for k queries, and whether the matches are right."""
    workload = Workload(k)
    asked = slots(workload)
    started = time.perf_counter()
    selection = build_selection(asked, types(workload.names))
    build_s = time.perf_counter() - started
    batch = rows(workload, BATCH, seed=1)
    sample = batch.slice(0, CHECKED)
    matches = select(selection, sample)
    seconds = statistics.median(_seconds(lambda: select(selection, batch)) for _ in range(_PASSES))
    in_turn_s = _seconds(lambda: match_in_turn(workload, batch)) if k <= MOST_IN_TURN else None
    row: dict[str, Value] = {
        "experiment": "6 kernel, one core",
        "queries": k,
        "tuples_per_s": BATCH / seconds,
        "numpy_tuples_per_s": None if in_turn_s is None else BATCH / in_turn_s,
        "matches_per_tuple": matches.slots.size / CHECKED,
        "build_s": build_s,
        "memory_mb": selection.nbytes / 2**20,
        "add_query_ms": 1000 * _add_query_s(selection, workload),
    }
    found = np.repeat(np.arange(CHECKED), np.diff(matches.offsets)) * k + matches.slots
    row_of, number_of = match_in_turn(workload, sample)
    return row, np.array_equal(np.sort(found), row_of * k + number_of)


def match_in_turn(
    workload: Workload, batch: pa.RecordBatch, narrowing: bool = True
) -> tuple[Ints, Ints]:
    """Rows and query numbers of all matches, by row, then by query: a predicate at a time.

    On the rows that are left of the predicates before it (`narrowing`), or on whole columns.
    """
    columns = [column.to_numpy() for column in batch.columns]
    lasts = [domain - 1 for domain in workload.domains]
    find = _narrow if narrowing else _mask
    found = []
    for lows, highs in zip(*(ends.tolist() for ends in bounds(workload)), strict=True):
        used = [
            (column, first, last)
            for column, first, last, end in zip(columns, lows, highs, lasts, strict=True)
            if first > 0 or last < end
        ]
        found.append(find(used, batch.num_rows))
    matched = np.concatenate(found)
    numbers = np.repeat(np.arange(len(found)), [left.size for left in found])
    order = np.argsort(matched, kind="stable")
    return matched[order], numbers[order]


def _narrow(used: list[tuple[Ints, int, int]], rows: int) -> Ints:
    left = None
    for column, first, last in used:
        values = column if left is None else column[left]
        holds = np.flatnonzero((first <= values) & (values <= last))
        left = holds if left is None else left[holds]
    return np.arange(rows) if left is None else left


def _mask(used: list[tuple[Ints, int, int]], rows: int) -> Ints:
    holds = np.ones(rows, dtype=bool)
    for column, first, last in used:
        holds &= (first <= column) & (column <= last)
    return np.flatnonzero(holds)


def _add_query_s(selection: Selection, workload: Workload) -> float:
    """One query more, until the next tuple is matched: the median of a few."""
    tuple_ = rows(workload, 1, seed=0)
    new = [replace(slot, slot=workload.k + slot.slot) for slot in slots(Workload(_ADDED, seed=1))]

    def add(slot: SlotSpec) -> None:
        selection.change([slot])
        select(selection, tuple_)

    return statistics.median(_seconds(partial(add, slot)) for slot in new)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
