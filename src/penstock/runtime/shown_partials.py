"""Which partials of a window ring its slots show: what nobody shows is neither read nor folded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.plan.result_columns import partials_shown
from penstock.plan.specs import Composition, Partial
from penstock.runtime.shown import ShownColumns
from penstock.schema import arrow_type


@dataclass(slots=True)
class ShownPartials:
    """The partials of a ring, and those of them that slots show; without `shown` they show all."""

    composition: Composition
    shown: ShownColumns | None
    _behind: dict[int, frozenset[str]] = field(init=False)  # each column, by its place

    def __post_init__(self) -> None:
        self._behind = {} if self.shown is None else partials_shown(self.composition)

    def folded(self) -> list[Partial]:
        """What has to be folded: once, though it may be kept in two types."""
        shown = self._shown()
        found: dict[tuple[str, str | None], Partial] = {}
        for partial in self.composition.partials:
            if partial.name in shown:
                found.setdefault((partial.kind, partial.argument), partial)
        return list(found.values())

    def columns(
        self, folded: Sequence[pa.Array], slots: npt.NDArray[np.int64]
    ) -> dict[str, pa.Array]:
        """All partials of rows of these slots, by name, of the folded ones; NULL if not shown."""
        shown = self._shown()
        values = {(p.kind, p.argument): c for p, c in zip(self.folded(), folded, strict=True)}
        known, inverse = np.unique(slots, return_inverse=True)
        found = {}
        typed = zip(self.composition.partials, self.composition.partial_types, strict=True)
        for partial, type_ in typed:
            if partial.name not in shown:
                found[partial.name] = pa.nulls(slots.size, arrow_type(type_))
                continue
            column = values[(partial.kind, partial.argument)]
            if not type_.startswith("struct"):
                column = column.cast(arrow_type(type_))
            if partial.kind == "sum" and type_ != "double":
                shows = np.array([self._shows(slot, partial) for slot in known.tolist()], np.bool_)
                column = _where(shows[inverse], column)
            found[partial.name] = column
        return found

    def _shown(self) -> set[str]:
        if self.shown is None:
            return {partial.name for partial in self.composition.partials}
        return set().union(*(self._behind.get(place, ()) for place in self.shown.places))

    def _shows(self, slot: int, partial: Partial) -> bool:
        shown = self.shown
        places = () if shown is None else shown.of(slot)
        behind = (self._behind.get(place, ()) for place in places)
        return shown is None or any(partial.name in names for names in behind)


def _where(shows: npt.NDArray[np.bool_], sums: pa.Array) -> pa.Array:
    """Sums may be too large in the end, which is an error: of those only who asked for them."""
    if shows.all():
        return sums
    return pc.if_else(pa.array(shows), sums, pa.scalar(None, sums.type))
