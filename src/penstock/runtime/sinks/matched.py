"""Result rows of one micro-batch, each once, with the slots of the queries that want it.

A row that a thousand queries want stays one row here; a query's own rows are gathered only when its
sink takes them. Who wants what is turned round, from slots by row to rows by slot, once for all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.specs import Shown
from penstock.runtime.packing import packed_name, place_of
from penstock.schema import as_type

QUERIES_COLUMN = "_queries"
_FEW_SLOTS = 1 << 16


@dataclass(frozen=True, slots=True)
class Matched:
    rows: pa.Table
    slots: pa.ListArray  # of each row; offsets begin at 0


def matched_rows(results: pa.Table, names: Sequence[str]) -> Matched:
    """A ring's results under the names of its columns; window rows have one slot, tuples a list."""
    results = results.combine_chunks()
    if "__slot" in results.schema.names:
        values = results.column("__slot").chunk(0).cast(pa.int32())
        offsets = np.arange(results.num_rows + 1, dtype=np.int32)
        rows = results.drop_columns(["__slot"])
    else:
        lists = results.column("__slots").chunk(0)
        values = lists.flatten()
        offsets = lists.offsets.to_numpy() - lists.offsets[0].as_py()
        rows = _with_missing(results.drop_columns(["__slots"]), len(names))
    slots = pa.ListArray.from_arrays(pa.array(offsets), values)
    return Matched(rows.rename_columns(list(names)), slots)


def _with_missing(rows: pa.Table, count: int) -> pa.Table:
    """Rows with all columns of their ring; those that no query shows are NULL."""
    if rows.num_columns == count:
        return rows
    there = {place_of(name): rows.column(name) for name in rows.column_names}
    nothing = pa.nulls(rows.num_rows)
    columns = [there.get(place, nothing) for place in range(count)]
    return pa.table(columns, names=[packed_name(place) for place in range(count)])


def shown_rows(rows: pa.Table, columns: Sequence[Shown] | None) -> pa.Table:
    """A query's rows as it shows them; columns None: all as they are."""
    return rows if columns is None else typed_rows(picked_rows(rows, columns), columns)


def picked_rows(rows: pa.Table, columns: Sequence[Shown] | None) -> pa.Table:
    """The columns that a query shows, under its names, of anybody's rows."""
    if columns is None:
        return rows
    return rows.select([c.place for c in columns]).rename_columns([c.name for c in columns])


def typed_rows(rows: pa.Table, columns: Sequence[Shown] | None) -> pa.Table:
    """A query's rows with its columns, in its types: those of others need not fit them."""
    for place, column in enumerate(columns or ()):
        if column.type is not None:
            values = as_type(rows.column(place), column.type)
            rows = rows.set_column(place, column.name, values)
    return rows


def counts_by_slot(slots: pa.ListArray) -> dict[int, int]:
    """How many rows each slot has; counted in an array where numbers lie close together."""
    values = slots.values.to_numpy()
    if not values.size:
        return {}
    least, most = int(values.min()), int(values.max())
    if most - least > values.size + _FEW_SLOTS:
        found, counts = np.unique(values, return_counts=True)
        return dict(zip(found.tolist(), counts.tolist(), strict=True))
    counts = np.bincount(values - np.int32(least))  # a fifth of the time of a hash table
    (found,) = np.nonzero(counts)
    return dict(zip((found + least).tolist(), counts[found].tolist(), strict=True))


def rows_by_slot(slots: pa.ListArray) -> dict[int, npt.NDArray[np.int64]]:
    """Each slot's row numbers, ascending: one sort of slot and row as one number."""
    rows = np.repeat(np.arange(len(slots)), np.diff(slots.offsets.to_numpy()))
    pairs = np.sort((slots.values.to_numpy().astype(np.int64) << 32) | rows)
    if not pairs.size:
        return {}
    slot_of = pairs >> 32
    starts = np.flatnonzero(np.diff(slot_of, prepend=-1))
    parts = np.split(pairs & 0xFFFFFFFF, starts[1:])
    return dict(zip(slot_of[starts].tolist(), parts, strict=True))


def only(matched: Matched, slots: Collection[int]) -> Matched:
    """The rows of some slots, each with the list of just those; no copy if these are all."""
    values = matched.slots.values.to_numpy()
    hits = np.isin(values, np.fromiter(slots, np.int32, len(slots)))
    if hits.all():
        return matched
    offsets = np.concatenate([[0], np.cumsum(hits)])[matched.slots.offsets.to_numpy()]
    kept = np.diff(offsets) > 0
    ends = pa.array(np.concatenate([[0], offsets[1:][kept]]), pa.int32())
    lists = pa.ListArray.from_arrays(ends, pa.array(values[hits]))
    return Matched(matched.rows if kept.all() else matched.rows.filter(pa.array(kept)), lists)


def with_queries(matched: Matched, names: Mapping[int, str]) -> pa.Table:
    """The rows with a first column that lists the names of the queries; `names` has every slot."""
    known = np.array(sorted(names), np.int32)
    texts = pa.array([names[slot] for slot in known.tolist()], pa.string())
    places = np.searchsorted(known, matched.slots.values.to_numpy())
    lists = pa.ListArray.from_arrays(matched.slots.offsets, texts.take(pa.array(places)))
    return matched.rows.add_column(0, QUERIES_COLUMN, lists)
