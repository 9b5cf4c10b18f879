"""The rows that leave the stage of a WINDOW ring, the punctuation among them."""

from __future__ import annotations

import pyarrow as pa

from penstock.control.punctuation import NEVER_US
from penstock.kernels.partials import MOMENTS
from penstock.plan.aggregates import MOMENTS_TYPE
from penstock.plan.catalog import Stream
from penstock.plan.columns import column_types
from penstock.plan.having import constant_name
from penstock.plan.specs import Composition
from penstock.runtime.config import SHIFT_US, TRUE_END
from penstock.schema import arrow_type

END = pa.timestamp("us", tz="UTC")


def window_row_types(composition: Composition, stream: Stream) -> dict[str, str]:
    """Their columns, with the types."""
    found = {"__slot": "bigint", "__range_us": "bigint", "__end": "timestamp"}
    if composition.apart:
        found[TRUE_END] = "bigint"
    found |= {constant_name(i): type_ for i, type_ in enumerate(composition.constants)}
    if not composition.preaggregated:
        types = column_types(composition, stream)
        return found | {name: types[name] for name in composition.shipped}
    found |= {f"__k{i}": type_ for i, type_ in enumerate(composition.key_types)}
    partials = zip(composition.partials, composition.partial_types, strict=True)
    return found | {partial.name: type_ for partial, type_ in partials}


def nothing(rows: int, type_: str) -> pa.Array:
    """A column of NULLs."""
    return pa.nulls(rows, MOMENTS if type_ == MOMENTS_TYPE else arrow_type(type_))


def punctuation_row(
    composition: Composition, stream: Stream, punctuation_us: int
) -> pa.RecordBatch:
    """A row that is all punctuation, and nothing else; none before the first one."""
    rows = int(punctuation_us != NEVER_US)
    types = window_row_types(composition, stream)
    columns = {name: nothing(rows, type_) for name, type_ in types.items()}
    columns["__end"] = pa.array([punctuation_us + SHIFT_US][:rows], END)
    return pa.RecordBatch.from_pydict(columns)
