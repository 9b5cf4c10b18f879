"""The columns that tuples have in the stage of a ring."""

from __future__ import annotations

from penstock.plan.catalog import Stream
from penstock.plan.specs import Composition


def column_types(composition: Composition, stream: Stream) -> dict[str, str]:
    """Types of all columns that tuples have in the stage."""
    if composition.following is not None:
        return dict(composition.following.columns)
    return {f.name: f.type for f in stream.schema.fields} | dict(composition.placed)
