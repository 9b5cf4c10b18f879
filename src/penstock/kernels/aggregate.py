"""A partial aggregate's column: an argument folded into panes, the panes into windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa

from penstock.kernels.columns import (
    decimal_array,
    doubles,
    is_string,
    ordered_keys,
    string_ranks,
    valid_flags,
)
from penstock.kernels.folds import (
    fold_count,
    fold_doubles,
    fold_integers,
    fold_least,
    fold_moments,
    merge_moments,
    sum_magnitudes,
)
from penstock.kernels.jit import Flags, Ints
from penstock.kernels.partials import MOMENTS, partial_type
from penstock.plan.specs import Partial
from penstock.schema import FLOAT_TYPES, decimal_parts


@dataclass(frozen=True, slots=True)
class Fold:
    """Result `ids[i]`, of `size`, takes the value at `rows[i]`."""

    ids: Ints
    rows: Ints
    size: int


def sums_fit(batch: pa.RecordBatch, partials: Sequence[Partial], types: Mapping[str, str]) -> bool:
    """Whether no integer sum over rows of this batch can leave 64 bits.

    A window holds a row once, so the sum of all magnitudes bounds every sum. As a double it is off
    by less than rows · 2^-53 of itself, which the margin below 2^63 covers.
    """
    for partial in partials:
        if partial.kind == "sum" and partial.argument is not None:
            type_, column = types[partial.argument], batch.column(partial.argument)
            if type_ == "bigint" or decimal_parts(type_):
                partial_type("sum", type_)  # refuses decimals that are no 64-bit integers
                if sum_magnitudes(ordered_keys(column, type_), valid_flags(column)) > 2.0**62.9:
                    return False
    return True


def fold_partial(
    batch: pa.RecordBatch,
    partial: Partial,
    types: Mapping[str, str],
    panes: Fold,
    windows: Fold,
) -> pa.Array:
    """The column of one partial, a value per result of `windows`."""
    if partial.argument is None or partial.kind == "count_star":
        return _count(np.ones(batch.num_rows, np.bool_), panes, windows)
    column, type_ = batch.column(partial.argument), types[partial.argument]
    out = partial_type(partial.kind, type_)
    valid = valid_flags(column)
    match partial.kind:
        case "count":
            return _count(valid, panes, windows)
        case "sum":
            if type_ in FLOAT_TYPES:
                totals, some = fold_doubles(
                    panes.ids, panes.rows, doubles(column, type_), valid, panes.size
                )
                totals, some = fold_doubles(windows.ids, windows.rows, totals, some, windows.size)
                return pa.array(totals, out, mask=~some)
            sums, some = fold_integers(
                panes.ids, panes.rows, ordered_keys(column, type_), valid, panes.size
            )
            sums, some = fold_integers(windows.ids, windows.rows, sums, some, windows.size)
            return decimal_array(sums, some, out) if decimal_parts(type_) else _masked(sums, some)
        case "min" | "max":
            return _extreme(column, type_, valid, partial.kind == "max", panes, windows)
        case "moments":
            moments = fold_moments(panes.ids, panes.rows, doubles(column, type_), valid, panes.size)
            moments = merge_moments(windows.ids, windows.rows, *moments, windows.size)
            return pa.StructArray.from_arrays([pa.array(m) for m in moments], fields=list(MOMENTS))
    assert_never(partial.kind)


def _count(valid: Flags, panes: Fold, windows: Fold) -> pa.Array:
    counts = fold_count(panes.ids, panes.rows, valid, panes.size)
    all_ = np.ones(panes.size, np.bool_)
    return pa.array(fold_integers(windows.ids, windows.rows, counts, all_, windows.size)[0])


def _extreme(
    column: pa.Array, type_: str, valid: Flags, greatest: bool, panes: Fold, windows: Fold
) -> pa.Array:
    """Find the rows that hold the extremes and take their values: one way for all types."""
    keys = string_ranks(column) if is_string(column) else ordered_keys(column, type_)
    if greatest:
        keys = ~keys
    best = fold_least(panes.ids, panes.rows, keys, valid, panes.size)
    # a pane without a value (-1) takes some other row's key, but is not valid
    pane_keys = keys[best] if keys.size else keys
    chosen = fold_least(windows.ids, windows.rows, pane_keys, best >= 0, windows.size)
    rows = np.where(chosen >= 0, best[chosen], -1) if best.size else chosen
    values = column.take(_masked(rows, rows >= 0))
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


def _masked(values: Ints, some: Flags) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~some)
