"""JSON lines to columns: one object per line; values must have the JSON type of their column.

Numbers for numeric columns (decimals also as strings, doubles also as "NaN", "Infinity",
"-Infinity"), true and false for booleans, strings for strings, dates, timestamps and binary
(base64), arrays for arrays; null or no key is NULL. Keys are matched without regard to case; if
several keys of an object match, the column's own spelling wins, then the last.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.runtime.sources.chunks import BadRecord
from penstock.runtime.sources.lines import Decoded, Irregular, Lines, check_utf8, one_array
from penstock.runtime.sources.parsing import parse_text
from penstock.schema import FLOAT_TYPES, INTEGER_TYPES, Field, arrow_type, decimal_parts

_NATIVE = INTEGER_TYPES | FLOAT_TYPES | {"boolean", "string"}
# RapidJSON takes these for numbers, JSON and Python's reader do not.
_LOOSE_NUMBER = re.compile(rb"[:,\[]\s*(?:-?Inf(?!inity)|-NaN)")
_MISSING = object()


class Number(str):
    """A JSON number as it was written."""


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    fields: tuple[Field, ...]

    def fast(self, lines: Lines) -> Decoded:
        check_utf8(lines)
        content = np.frombuffer(lines.block, dtype=np.uint8)
        # `{` … `}` on every line and as many rows as lines: then every line is one object.
        if (content[lines.starts] != 123).any() or (content[lines.ends - 1] != 125).any():
            raise Irregular
        if (b"Inf" in lines.block or b"-N" in lines.block) and _LOOSE_NUMBER.search(lines.block):
            raise Irregular
        keys = self._spelling(lines.raw(0))
        for key, field in zip(keys, self.fields, strict=True):
            if (parts := decimal_parts(field.type)) and _may_not_fit(lines.block, key, *parts):
                raise Irregular
        table = pa.json.read_json(
            pa.BufferReader(lines.block),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(lines.block) + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=pa.schema(
                    [(key, _read_as(f.type)) for key, f in zip(keys, self.fields, strict=True)]
                ),
                unexpected_field_behavior="ignore",
            ),
        )
        if table.num_rows != len(lines):
            raise Irregular
        columns = [one_array(table[key]) for key in keys]
        for key, field, column in zip(keys, self.fields, columns, strict=True):
            if column.null_count and _other_spellings(lines.block, key):
                raise Irregular
            # An infinity was either written so or is a number that does not fit.
            if field.type in FLOAT_TYPES and pc.any(pc.is_inf(column)).as_py():
                raise Irregular
        return Decoded(columns, None, [])

    def slow(self, lines: Lines) -> Decoded:
        kept: list[int] = []
        bad: list[BadRecord] = []
        rows: list[list[Any]] = []
        for index in range(len(lines)):
            raw = lines.raw(index)
            if not raw.strip(b" \t\r"):
                continue
            try:
                record = load_object(raw.decode("utf-8"))
                rows.append([self._cell(record, field) for field in self.fields])
            except UnicodeDecodeError:
                bad.append(lines.bad(index, "the line is not UTF-8"))
            except (ValueError, RecursionError) as error:
                bad.append(lines.bad(index, str(error)))
            else:
                kept.append(index)
        columns = [
            pa.array(
                [row[place] for row in rows],
                arrow_type(field.type) if field.type.startswith("array<") else pa.string(),
            )
            for place, field in enumerate(self.fields)
        ]
        return Decoded(columns, np.array(kept, dtype=np.int64), bad)

    def _spelling(self, first: bytes) -> list[str]:
        """The names as the first record spells them, so that files in capitals are fast too."""
        try:
            found = {key.lower(): key for key in load_object(first.decode("utf-8"))}
        except ValueError:
            found = {}
        return [found.get(field.name.lower(), field.name) for field in self.fields]

    def _cell(self, record: dict[str, Any], field: Field) -> Any:
        value = record.get(field.name, _MISSING)
        if value is _MISSING:
            lower = field.name.lower()
            matches = [v for key, v in record.items() if key.lower() == lower]
            value = matches[-1] if matches else None
        try:
            return _cell_text(value, field.type)
        except ValueError as error:
            raise ValueError(f"column {field.name}: {error}") from None


def load_object(line: str) -> dict[str, Any]:
    """One JSON object with its numbers as written; ValueError says what is wrong."""
    try:
        value = json.loads(line, parse_int=_number, parse_float=_number, parse_constant=Number)
        if "\\u" in line:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (character {error.pos + 1})") from None
    except UnicodeEncodeError:
        raise ValueError("not JSON: half of a surrogate pair") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _number(text: str) -> Number:
    if (len(text) > 300 or "e" in text or "E" in text) and abs(float(text)) == float("inf"):
        raise ValueError(f"the number {text[:30]} is too large")
    return Number(text)


def _cell_text(value: Any, type_: str) -> Any:
    """A value as the text that the column's grammar reads; a list of values for an array."""
    if value is None:
        return None
    if type_.startswith("array<"):
        if not isinstance(value, list):
            raise ValueError(f"{_shown(value)} is not an array")
        return [_element(item, type_[6:-1]) for item in value]
    if type_ == "boolean":
        if isinstance(value, bool):
            return "true" if value else "false"
        raise ValueError(f"{_shown(value)} is neither true nor false")
    if type_ in INTEGER_TYPES or type_ in FLOAT_TYPES or decimal_parts(type_):
        words = ("NaN", "Infinity", "-Infinity") if type_ in FLOAT_TYPES else ()
        if isinstance(value, Number) or value in words:
            return str(value)
        if isinstance(value, str) and decimal_parts(type_):
            return value
        raise ValueError(f"{_shown(value)} is not a number")
    if isinstance(value, str) and not isinstance(value, Number):
        return value
    raise ValueError(f"{_shown(value)} is not a string")


def _element(value: Any, type_: str) -> Any:
    text = _cell_text(value, type_)
    if text is None or isinstance(text, list):
        return text
    try:
        return parse_text(text, type_)
    except ValueError as error:
        raise ValueError(f"'{text[:100]}' {error}") from None


def _shown(value: Any) -> str:
    text = str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else text[:100] + "…"


def _read_as(type_: str) -> pa.DataType:
    """The type that Arrow's reader is asked for: final, or string for what our grammar reads."""
    if type_ in _NATIVE or decimal_parts(type_):
        return arrow_type(type_)
    if type_.startswith("array<"):
        if type_[6:-1] not in INTEGER_TYPES | {"boolean", "string"}:
            raise Irregular
        return arrow_type(type_)
    return pa.string()


def _may_not_fit(block: bytes, key: str, precision: int, scale: int) -> bool:
    """Whether a decimal may have more digits than its column: Arrow's reader takes whole numbers
    that are too large, and those that are much too large wrap around silently (see parsing)."""
    large = rb'"%s"\s*:\s*"?[-+]?(?:0*[1-9]\d{%d}|[\d.]*[eE]\+?\d)' % (
        re.escape(key).encode(),
        precision - scale,
    )
    return not key.isascii() or re.search(large, block) is not None


def _other_spellings(block: bytes, key: str) -> bool:
    """Whether some keys differ from `key` only in case; Arrow takes them for other columns."""
    text = block.decode("utf-8")
    exact = len(re.findall(rf'"{re.escape(key)}"\s*:', text))
    any_case = len(re.findall(rf'"{re.escape(key)}"\s*:', text, re.IGNORECASE))
    return exact != any_case
