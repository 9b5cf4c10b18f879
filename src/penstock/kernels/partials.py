"""Which partial aggregates the Arrow stage can keep, and their Arrow types; needs no compiler."""

from __future__ import annotations

from typing import assert_never

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.plan.specs import PartialKind
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, arrow_type, decimal_parts

MOMENTS = pa.struct([("n", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64())])

LONG_DIGITS = 18  # decimals of up to this many digits fit 64 bits


def supported(kind: PartialKind, type_: str) -> bool:
    """Whether partials of this kind can be kept over an argument of this canonical type."""
    decimal = decimal_parts(type_)
    short_decimal = decimal is not None and decimal[0] <= LONG_DIGITS
    number = type_ in INTEGER_TYPES or type_ in FLOAT_TYPES
    match kind:
        case "count_star" | "count":
            return True
        case "sum":
            return number or short_decimal
        case "min" | "max":
            ordered = ("date", "timestamp", "timestamp_ntz", "boolean", "string")
            return number or short_decimal or type_ in ordered
        case "moments":
            return number or decimal is not None
    assert_never(kind)


def partial_type(kind: PartialKind, type_: str) -> pa.DataType:
    """The Arrow type of a partial's column (min and max: the argument's)."""
    if not supported(kind, type_):
        raise PenstockError(
            f"{kind} of {type_} cannot be pre-aggregated", "aggregate the rows themselves"
        )
    match kind:
        case "count_star" | "count":
            return pa.int64()
        case "sum":
            if decimal := decimal_parts(type_):
                return pa.decimal128(min(38, decimal[0] + 10), decimal[1])
            return pa.float64() if type_ in FLOAT_TYPES else pa.int64()
        case "min" | "max":
            return arrow_type(type_)
        case "moments":
            return MOMENTS
    assert_never(kind)
