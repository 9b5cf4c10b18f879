"""Tuples of a batch folded for the slots of a window ring, into the rows that the ring's plan has.

Slots that give the ring's roles to the same columns are folded together; what none of them shows
is neither read nor folded. Where a ring speaks of the stream's columns themselves, all slots are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.jit import Flags, Ints
from penstock.kernels.selection import Matches, matches_of
from penstock.kernels.windows import LatePairs, WindowRows, preaggregate
from penstock.plan.aggregates import MOMENTS_TYPE
from penstock.plan.result_columns import partials_shown
from penstock.plan.specs import Composition, Partial, SlotSpec
from penstock.runtime.window_rows import nothing
from penstock.schema import as_type

_HALF = 32  # bits
_LOW = 2**_HALF - 1


@dataclass(frozen=True, slots=True)
class _Shape:
    """Slots that do the same with the same columns; positions: of them among all.

    keys: by place, the columns that they group by. folded: what they need of a batch; of each, the
    names of the ring's partials that are made of it.
    """

    positions: Ints
    slots: list[SlotSpec]
    keys: dict[int, str]
    folded: dict[Partial, list[Partial]]


@dataclass(slots=True)
class PreAggregation:
    """What the slots of a ring need; `types`: of the columns that tuples have."""

    composition: Composition
    types: Mapping[str, str]
    _shapes: list[_Shape] = field(default_factory=list)
    _behind: dict[int, frozenset[str]] = field(init=False)  # each column, by its place

    def __post_init__(self) -> None:
        any_columns = self.composition.any_columns
        self._behind = partials_shown(self.composition) if any_columns else {}

    def change(self, slots: Sequence[SlotSpec]) -> None:
        """These are the slots from now on."""
        alike: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for position, slot in enumerate(slots):
            alike.setdefault(slot.roles, []).append(position)
        self._shapes = [
            self._shape(dict(roles), np.array(positions, np.int64), [slots[p] for p in positions])
            for roles, positions in (alike or {(): []}).items()
        ]

    def _shape(self, roles: dict[str, str], positions: Ints, slots: list[SlotSpec]) -> _Shape:
        keys = {
            place: roles.get(key, key)
            for place, key in enumerate(self.composition.keys)
            if key in roles or not self.composition.in_roles
        }
        shown = set().union(*(self._shown(shows) for shows in {slot.shows for slot in slots}))
        folded: dict[Partial, list[Partial]] = {}
        for partial in self.composition.partials:
            if partial.name in shown:
                column = None if partial.argument is None else roles.get(partial.argument)
                argument = column if self.composition.in_roles else partial.argument
                alike = f"{partial.kind}({argument})"  # once, though it may be kept in two ways
                folded.setdefault(Partial(partial.kind, argument, alike), []).append(partial)
        return _Shape(positions, slots, keys, folded)

    def _shown(self, shows: tuple[int, ...]) -> frozenset[str]:
        """The partials behind what a slot shows."""
        if not self.composition.any_columns:
            return frozenset(partial.name for partial in self.composition.partials)
        return frozenset().union(*(self._behind.get(place, ()) for place in shows))

    @property
    def columns(self) -> set[str]:
        """Of tuples, those that have to be read."""
        keys = {name for shape in self._shapes for name in shape.keys.values()}
        folded = (partial for shape in self._shapes for partial in shape.folded)
        return keys | {partial.argument for partial in folded if partial.argument is not None}

    def rows(
        self,
        batch: pa.RecordBatch,
        matches: Matches,
        ts_us: Ints,
        closed_us: int | Ints,
        mask: Flags,
    ) -> WindowRows:
        """Rows of all slots: __slot, __end_us, the ring's keys as __k0…, its partials."""
        found = []
        for shape in self._shapes:
            alone = len(self._shapes) == 1
            rows = preaggregate(
                batch,
                matches if alone else matches_of(matches, shape.positions),
                shape.slots,
                ts_us,
                list(shape.keys.values()),
                list(shape.folded),
                self.types,
                closed_us,
                mask,
            )
            late = rows.late if alone else _moved(rows.late, shape.positions)
            found.append(WindowRows(self._as_in_ring(rows.batch, shape), late))
        if len(found) == 1:
            return found[0]
        batches = [rows.batch for rows in found]
        return WindowRows(pa.concat_batches(batches), _together([rows.late for rows in found]))

    def _as_in_ring(self, rows: pa.RecordBatch, shape: _Shape) -> pa.RecordBatch:
        composition = self.composition
        columns = {"__slot": rows.column("__slot"), "__end_us": rows.column("__end_us")}
        folded = dict(zip(shape.folded, rows.columns[2 + len(shape.keys) :], strict=True))
        keys = dict(zip(shape.keys, rows.columns[2:], strict=False))
        for place, type_ in enumerate(composition.key_types):
            key = keys.get(place)
            empty = key is None
            columns[f"__k{place}"] = nothing(rows.num_rows, type_) if empty else as_type(key, type_)
        of = {p.name: folded[made] for made, kept in shape.folded.items() for p in kept}
        typed = zip(composition.partials, composition.partial_types, strict=True)
        for partial, type_ in typed:
            value = of.get(partial.name)
            if value is None:
                columns[partial.name] = nothing(rows.num_rows, type_)
                continue
            value = _half(value, partial)
            value = value if type_ == MOMENTS_TYPE else as_type(value, type_)
            if partial.half == "asked" or (
                partial.kind == "sum" and partial.half is None and type_ != "double"
            ):
                value = self._where_shown(partial, value, rows.column("__slot"), shape)
            columns[partial.name] = value
        return pa.RecordBatch.from_pydict(columns)

    def _where_shown(
        self, partial: Partial, sums: pa.Array, slots: pa.Array, shape: _Shape
    ) -> pa.Array:
        """Sums may be too large in the end, which is an error: of those only who asked for them."""
        lists = {slot.shows for slot in shape.slots}
        if all(partial.name in self._shown(shows) for shows in lists):
            return sums
        showing = {shows for shows in lists if partial.name in self._shown(shows)}
        numbers = [slot.slot for slot in shape.slots if slot.shows in showing]
        wanted = pc.is_in(slots, pa.array(numbers, pa.int64()))
        return pc.if_else(wanted, sums, pa.scalar(None, sums.type))


def _half(values: pa.Array, partial: Partial) -> pa.Array:
    match partial.half:
        case "high" | "asked":
            return pc.shift_right(values, _HALF)
        case "low":
            return pc.bit_wise_and(values, _LOW)
    return values


def _moved(late: LatePairs, positions: npt.NDArray[np.int64]) -> LatePairs:
    return replace(late, positions=positions[late.positions])


def _together(each: list[LatePairs]) -> LatePairs:
    names = [column.name for column in fields(LatePairs)]
    return LatePairs(*(np.concatenate([getattr(late, name) for late in each]) for name in names))
