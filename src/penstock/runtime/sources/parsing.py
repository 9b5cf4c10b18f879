"""Text to values: one grammar per type, taken by Arrow's casts where they agree with it.

`parse_text` is the grammar, one value at a time. `parse_texts` gives the same for a column: Arrow's
cast does the work; where it refuses, the column is halved until the refused values are few, and
`parse_text` decides about those. Arrow accepts a little more than the grammar (hexadecimal
integers, year 0, doubles and decimals that overflow), so its results are checked for exactly that.

- integers: `-?digits`, no `+`, no `.0`
- double, float: also exponents, NaN, Inf, Infinity (any case); a finite number too large for the
  type is bad
- decimal(p,s): exact; bad if it needs more than p digits, or if non-zero digits would be cut off
- boolean: true or false in any case
- date: 2024-01-31
- timestamp: a date, or a date, `T` or a space and hh[:mm[:ss[.fraction]]], with up
  to 9 fractional digits (cut to microseconds) and Z, ±hh, ±hhmm or ±hh:mm; no zone means UTC
- timestamp_ntz: as timestamp, but a zone is bad; years are 1 to 9999; binary: base64
"""

from __future__ import annotations

import base64
import binascii
import decimal
import math
import re
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, arrow_type, decimal_parts

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
DAY_US = 86_400_000_000
FIRST_US, LAST_US = FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_INTEGER = re.compile(r"-?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_FEW = 64
_EXACT = decimal.Context(prec=400)


def parse_text(text: str, type_: str) -> Any:
    """One value as Arrow stores it (days, microseconds); ValueError says why not."""
    if type_ in INTEGER_TYPES:
        # 64-bit numbers have at most 19 digits: longer ones need no conversion to be refused.
        if not _INTEGER.fullmatch(text):
            raise ValueError("is not an integer")
        digits = text.lstrip("-0") or "0"
        value = int(digits) * (-1 if text[0] == "-" else 1) if len(digits) < 20 else 1 << 64
        limit = 1 << (_BITS[type_] - 1)
        if not -limit <= value < limit:
            raise ValueError(f"is out of range for {type_}")
        return value
    if type_ in FLOAT_TYPES:
        return _parse_double(text, type_)
    if parts := decimal_parts(type_):
        return _parse_decimal(text, *parts)
    match type_:
        case "string":
            return text
        case "boolean":
            if text.lower() not in ("true", "false") or not text.isascii():
                raise ValueError("is neither true nor false")
            return text.lower() == "true"
        case "date":
            found = _TIMESTAMP.fullmatch(text)
            if found is None or found[4] is not None:
                raise ValueError("is not a date (yyyy-mm-dd)")
            days = _days(found)
            if days < FIRST_DAY:
                raise ValueError("is outside the years 1 to 9999")
            return days
        case "timestamp" | "timestamp_ntz":
            return _parse_timestamp(text, type_ == "timestamp")
        case "binary":
            try:
                return base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise ValueError("is not base64") from None
    raise ValueError(f"cannot be read as {type_} from text")


def parse_texts(texts: pa.Array, type_: str) -> tuple[pa.Array, np.ndarray | None]:
    """A column of texts as values of `type_`, and which are bad (NULL in the values), if any."""
    try:
        return _cast(texts, type_), None
    except pa.ArrowInvalid:
        pass
    if len(texts) > _FEW:
        middle = len(texts) // 2
        left, left_bad = parse_texts(texts[:middle], type_)
        right, right_bad = parse_texts(texts[middle:], type_)
        if left_bad is None and right_bad is None:
            return pa.concat_arrays([left, right]), None
        halves = ((left, left_bad), (right, right_bad))
        bad = [np.zeros(len(v), dtype=bool) if b is None else b for v, b in halves]
        return pa.concat_arrays([left, right]), np.concatenate(bad)
    values: list[Any] = []
    refused = np.zeros(len(texts), dtype=bool)
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else parse_text(text, type_))
        except ValueError:
            values.append(None)
            refused[row] = True
    return from_storage(values, type_), refused if refused.any() else None


def reason_for(column: str, text: str, type_: str) -> str:
    """Why `parse_texts` refused this text."""
    try:
        parse_text(text, type_)
    except ValueError as error:
        shown = text if len(text) <= 100 else text[:100] + "…"
        return f"column {column}: '{shown}' {error}"
    raise AssertionError(f"{text!r} is a good {type_}")


def from_storage(values: list[Any], type_: str) -> pa.Array:
    """An array from values as `parse_text` gives them."""
    target = arrow_type(type_)
    if type_ == "date":
        return pa.array(values, pa.int32()).cast(target)
    if type_ in ("timestamp", "timestamp_ntz"):
        return pa.array(values, pa.int64()).cast(target)
    return pa.array(values, target)


def _cast(texts: pa.Array, type_: str) -> pa.Array:
    """The whole column by Arrow, ArrowInvalid if any value may need the grammar."""
    target = arrow_type(type_)
    if type_ == "string":
        return texts
    if type_ in INTEGER_TYPES:
        if _holds(texts, b"x", b"X"):
            raise pa.ArrowInvalid("may be hexadecimal")
        return pc.cast(texts, target)
    if type_ in FLOAT_TYPES:
        values = pc.cast(texts, target)
        infinite = pc.is_inf(values)
        if (
            pc.any(infinite).as_py()
            and not pc.all(pc.match_substring_regex(texts.filter(infinite), "(?i)inf")).as_py()
        ):
            raise pa.ArrowInvalid("overflow")
        return values
    if parts := decimal_parts(type_):
        return _cast_decimals(texts, *parts)
    if type_ == "boolean":
        found = pc.index_in(pc.ascii_lower(texts), pa.array(["false", "true"]))
        if found.null_count != texts.null_count:
            raise pa.ArrowInvalid("neither true nor false")
        return pc.equal(found, 1)
    if type_ == "date":
        values = pc.cast(texts, target)
        return _bounded(values, values.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    if type_ in ("timestamp", "timestamp_ntz"):
        return _cast_timestamps(texts, target)
    raise pa.ArrowInvalid(f"no cast to {type_}")


def _cast_timestamps(texts: pa.Array, target: pa.TimestampType) -> pa.Array:
    forms = [pa.timestamp("us")] if target.tz is None else [target, pa.timestamp("us")]
    for form in forms:
        try:
            numbers = pc.cast(texts, form).cast(pa.int64())
        except pa.ArrowInvalid:
            continue
        return _bounded(numbers.cast(target), numbers, FIRST_US, LAST_US)
    # More than six fractional digits: by way of nanoseconds, whose range is 1677 to 2262.
    years = pc.min_max(pc.utf8_slice_codeunits(texts, 0, 4)).as_py()
    if years["min"] is None or years["min"] < "1700" or years["max"] > "2200":
        raise pa.ArrowInvalid("not within the range of nanoseconds")
    for form in forms:
        try:
            nanos = pc.cast(texts, pa.timestamp("ns", form.tz))
        except pa.ArrowInvalid:
            continue
        return floor_to_us(nanos, target)
    raise pa.ArrowInvalid("not of one form")


def floor_to_us(nanos: pa.Array, target: pa.TimestampType) -> pa.Array:
    """Timestamps in nanoseconds as microseconds, rounded down also before 1970."""
    numbers = nanos.cast(pa.int64())
    floored = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), 1000)
    mask = numbers.is_null().to_numpy(zero_copy_only=False) if numbers.null_count else None
    return pa.array(floored, pa.int64(), mask=mask).cast(target)


def _bounded(values: pa.Array, numbers: pa.Array, low: int, high: int) -> pa.Array:
    range_ = pc.min_max(numbers).as_py()
    if range_["min"] is not None and not (low <= range_["min"] and range_["max"] <= high):
        raise pa.ArrowInvalid("outside the years 1 to 9999")
    return values


def _cast_decimals(texts: pa.Array, precision: int, scale: int) -> pa.Array:
    # Arrow's decimals wrap around silently when scaling to `scale` takes more bits than they have:
    # '3E30' as decimal(38,10) gives 5515171095741521522303454600.44. Short texts cannot do that.
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > 38 or _holds(texts, b"e", b"E"):
        raise pa.ArrowInvalid("may wrap around")
    if longest > 38 - scale:
        texts = pc.cast(texts, pa.decimal256(76, scale))
    return pc.cast(texts, pa.decimal128(precision, scale))


def _holds(texts: pa.Array, *characters: bytes) -> bool:
    data = texts.buffers()[2]
    if data is None:
        return False
    # The buffer may be shared with neighbours: finding too much only costs the slower way.
    content = data.to_pybytes()
    return any(character in content for character in characters)


def _parse_double(text: str, type_: str) -> float:
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    if not _DOUBLE.fullmatch(text):
        raise ValueError("is not a number")
    value: float = pa.scalar(text).cast(arrow_type(type_)).as_py()
    if math.isinf(value):
        raise ValueError(f"is out of range for {type_}")
    return value


def _parse_decimal(text: str, precision: int, scale: int) -> decimal.Decimal:
    if not _DOUBLE.fullmatch(text):
        raise ValueError("is not a number")
    try:
        exact = decimal.Decimal(text)
        value = exact.quantize(decimal.Decimal(1).scaleb(-scale, _EXACT), context=_EXACT)
    except decimal.InvalidOperation:
        raise ValueError(f"does not fit decimal({precision},{scale})") from None
    if value != exact:
        raise ValueError(f"has more than {scale} fractional digits")
    if abs(value) >= decimal.Decimal(10) ** (precision - scale):
        raise ValueError(f"does not fit decimal({precision},{scale})")
    return value


def _days(found: re.Match[str]) -> int:
    # The calendar repeats after 400 years; Python's begins with year 1, but an offset can take the
    # last hours of year 0 into it.
    try:
        day = date(int(found[1]) % 400 + 400, int(found[2]), int(found[3]))
    except ValueError:
        raise ValueError("is not a day of the calendar") from None
    cycles = int(found[1]) // 400 - 1
    return day.toordinal() + cycles * 146_097 - _EPOCH_ORDINAL


def _parse_timestamp(text: str, zoned: bool) -> int:
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("is not a timestamp (yyyy-mm-ddThh:mm:ss[.fraction][Z or ±hh:mm])")
    days = _days(found)
    hour, minute, second = (int(found[i] or 0) for i in (4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("is not a time of day")
    fraction = int((found[7] or "").ljust(6, "0")[:6])
    zone = found[8]
    if zone is not None and not zoned:
        raise ValueError("has a time zone, which timestamp_ntz does not take")
    offset = 0
    if zone is not None and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
        if hours > 23 or minutes > 59:
            raise ValueError("is not a time zone offset")
        offset = (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
    moment = days * DAY_US + ((hour * 60 + minute - offset) * 60 + second) * 1_000_000 + fraction
    if not FIRST_US <= moment <= LAST_US:
        raise ValueError("is outside the years 1 to 9999")
    return moment
