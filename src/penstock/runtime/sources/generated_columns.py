"""A generated column: its distribution checked against its type once, then drawn for any rows."""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.runtime.sources.distributions import (
    Distribution,
    draw_numbers,
    uniforms,
    zipf_shares,
)
from penstock.runtime.sources.options import suggest
from penstock.runtime.sources.parsing import DAY_US, from_storage, parse_text
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, Field, arrow_type, decimal_parts

# Row numbers and their event times in, values out.
Draw = Callable[[np.ndarray, np.ndarray], pa.Array]

_DEFAULTS = {
    "float": Distribution("uniform", ("0", "1")),
    "double": Distribution("uniform", ("0", "1")),
    "string": Distribution("choice", tuple("abcdefghij")),
    "boolean": Distribution("bernoulli", ("0.5",)),
}
_LARGEST_ZIPF = 10_000_000
_EXACT_DOUBLE = 1 << 53


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    field: Field
    draw: Draw


def default_distribution(field: Field) -> Distribution | None:
    """What a column without a distribution gets; None: the event time, as its type holds it."""
    if field.type in ("timestamp", "timestamp_ntz", "date"):
        return None
    if field.type in INTEGER_TYPES:
        return Distribution("uniform", ("1", "100"))
    if parts := decimal_parts(field.type):
        return Distribution("uniform", ("0", str(10 ** min(2, parts[0] - parts[1]) - 1)))
    if field.type not in _DEFAULTS:
        raise PenstockError(
            f"column {field.name} is {field.type}, which cannot be generated",
            "leave it out of the stream",
        )
    return _DEFAULTS[field.type]


def generated_column(field: Field, given: Distribution | None, seed: int) -> GeneratedColumn:
    """Check that the distribution suits the column's type, and prepare its drawing."""
    distribution = given or default_distribution(field)
    if distribution is None:
        return GeneratedColumn(field, functools.partial(_event_times, field.type))
    draw = _drawing(field, distribution, seed)
    if distribution.null_share:
        draw = functools.partial(_with_nulls, draw, distribution.null_share, seed, field.name)
    return GeneratedColumn(field, draw)


def _drawing(field: Field, given: Distribution, seed: int) -> Draw:
    where = f"generate, column {field.name}"
    stream = field.name.lower()
    if given.name in ("choice", "constant"):
        return _choice(field, given, seed, where)
    if given.name == "bernoulli":
        share = given.number(0, where)
        if not 0 <= share <= 1:
            raise PenstockError(f"{where}: bernoulli({share})", "write a share from 0 to 1")
        _require(field, given, field.type == "boolean" or _is_number(field.type), where)
        return lambda rows, _: pc.cast(
            pa.array((uniforms(seed, stream, rows) < share).view(np.int8)), arrow_type(field.type)
        )
    _require(field, given, field.type == "string" or _is_number(field.type), where)
    to_column = functools.partial(_to_column, field)
    match given.name:
        case "sequence":
            first = int(given.number(0, where)) if given.arguments else 0
            return lambda rows, _: to_column(rows + first)
        case "zipf":
            exponent, count = given.number(0, where), given.number(1, where)
            if exponent < 0 or not count.is_integer() or not 1 <= count <= _LARGEST_ZIPF:
                raise PenstockError(
                    f"{where}: zipf({exponent}, {count})",
                    f"write zipf(exponent, n) with exponent ≥ 0 and n from 1 to {_LARGEST_ZIPF}",
                )
            return lambda rows, _: to_column(
                _pick(zipf_shares(exponent, int(count)), uniforms(seed, stream, rows)) + 1
            )
    parameters = tuple(given.number(i, where) for i in range(len(given.arguments)))
    if given.name == "uniform":
        low, high = parameters
        if low > high:
            raise PenstockError(
                f"{where}: uniform({low}, {high}) is empty", "write uniform(lo, hi)"
            )
        if field.type in INTEGER_TYPES or field.type == "string":
            if not (low.is_integer() and high.is_integer()) or high - low >= _EXACT_DOUBLE:
                raise PenstockError(
                    f"{where}: uniform({low}, {high}) on {field.type}",
                    "write whole numbers, less than 2^53 apart",
                )
            base, width = int(low), int(high) - int(low) + 1
            return lambda rows, _: to_column(
                (uniforms(seed, stream, rows) * width).astype(np.int64) + base
            )
    elif parameters[-1] < 0:
        raise PenstockError(
            f"{where}: {given.name} with {parameters[-1]}", "write a number from 0 on"
        )
    return lambda rows, _: to_column(draw_numbers(given.name, parameters, seed, stream, rows))


def _choice(field: Field, given: Distribution, seed: int, where: str) -> Draw:
    values, weights = [], []
    for argument in given.arguments:
        text, star, weight = argument, "", ""
        if given.name == "choice" and not argument.endswith('"'):
            text, star, weight = argument.rpartition("*")
            if not star:
                text = argument
        text = text.strip()
        if len(text) > 1 and text[0] == text[-1] == '"':
            text = text[1:-1]
        try:
            weights.append(float(weight) if star else 1.0)
            values.append(parse_text(text, field.type))
        except ValueError as error:
            raise PenstockError(
                f"{where}: '{argument}' cannot be a value: {error}",
                f"write values of type {field.type}, with a weight as in 'value*3'",
            ) from None
    if min(weights) < 0 or sum(weights) <= 0:
        raise PenstockError(
            f"{where}: the weights of choice sum to nothing", "write weights above 0"
        )
    shares = np.cumsum(weights) / sum(weights)
    pool = from_storage(values, field.type)
    stream = field.name.lower()
    return lambda rows, _: pool.take(pa.array(_pick(shares, uniforms(seed, stream, rows))))


def _pick(cumulated: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    found = np.searchsorted(cumulated, uniform, side="right")
    return np.minimum(found, len(cumulated) - 1)


def _to_column(field: Field, numbers: np.ndarray) -> pa.Array:
    """Drawn numbers as the column's type: rounded for integers, cut at the type's limits."""
    target = arrow_type(field.type)
    if field.type in FLOAT_TYPES:
        return pa.array(numbers.astype(target.to_pandas_dtype(), copy=False))
    if parts := decimal_parts(field.type):
        return _to_decimals(numbers, *parts)
    if field.type == "string":
        whole = pc.cast(pa.array(np.rint(numbers).astype(np.int64)), pa.string())
        return pc.binary_join_element_wise(field.name, whole, "")
    kind = target.to_pandas_dtype()
    if numbers.dtype.kind == "f":
        limits = np.iinfo(np.int64)
        # The nearest double below 2^63 is the largest that an int64 holds.
        numbers = np.clip(np.rint(numbers), limits.min, np.nextafter(2.0**63, 0)).astype(np.int64)
    limits = np.iinfo(kind)
    return pa.array(np.clip(numbers, limits.min, limits.max).astype(kind, copy=False))


def _to_decimals(numbers: np.ndarray, precision: int, scale: int) -> pa.Array:
    """By way of unscaled 64-bit integers: 18 digits, up to 9 of them fractional."""
    fraction = min(scale, 9)
    digits = min(precision - scale + fraction, 18)
    largest = 10.0**digits - (1 if digits < 16 else 128)  # doubles near 10^18 are 128 apart
    unscaled = np.clip(np.rint(numbers * 10.0**fraction), -largest, largest).astype(np.int64)
    whole = pa.array(unscaled).cast(pa.decimal128(19, 0))
    unit = pa.scalar(decimal.Decimal(1).scaleb(-fraction), pa.decimal128(10, fraction))
    return pc.multiply(whole, unit).cast(pa.decimal128(precision, scale))


def _with_nulls(
    draw: Draw, share: float, seed: int, name: str, rows: np.ndarray, events_us: np.ndarray
) -> pa.Array:
    values = draw(rows, events_us)
    absent = uniforms(seed, f"{name.lower()}/null", rows) < share
    return pc.if_else(pa.array(absent), pa.scalar(None, values.type), values)


def _event_times(type_: str, _: np.ndarray, events_us: np.ndarray) -> pa.Array:
    if type_ == "date":
        return pa.array((events_us // DAY_US).astype(np.int32)).cast(pa.date32())
    return pa.array(events_us).cast(arrow_type(type_))


def _is_number(type_: str) -> bool:
    return type_ in INTEGER_TYPES or type_ in FLOAT_TYPES or decimal_parts(type_) is not None


def _require(field: Field, given: Distribution, suits: bool, where: str) -> None:
    if not suits:
        raise PenstockError(
            f"{where}: {given.name} does not give values of type {field.type}",
            "write choice(…) or constant(…), or leave the column out of generate",
        )


def check_names(given: dict[str, Distribution], names: tuple[str, ...]) -> None:
    lower = {name.lower() for name in names}
    for name in given:
        if name not in lower:
            raise PenstockError(
                f"generate: the stream has no column {name}", suggest(name, lower, "columns")
            )
