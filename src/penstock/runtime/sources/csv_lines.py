"""CSV lines to columns of texts; numbers and times are made of them afterwards.

A record is one line: a quoted field cannot hold a line end. A quote opens a quoted field only at
the field's beginning, a doubled quote in it is a quote, and what follows the closing quote up to
the delimiter belongs to the field (as in Arrow's reader). An unquoted field equal to `null_value`
is NULL; so is an empty field, quoted or not, of a column that is not a string.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.runtime.sources.chunks import BadRecord
from penstock.runtime.sources.lines import (
    BYTE_ORDER_MARK,
    Decoded,
    Irregular,
    Lines,
    Unreadable,
    check_utf8,
    one_array,
)
from penstock.runtime.sources.listing import FileOptions
from penstock.schema import Field, Schema


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """`places`: for each field asked for, its place in a line, None if the file lacks it."""

    fields: tuple[Field, ...]
    places: tuple[int | None, ...]
    width: int
    delimiter: str
    quote: str
    null_value: str

    def fast(self, lines: Lines) -> Decoded:
        check_utf8(lines)
        block = lines.block
        if block.startswith(BYTE_ORDER_MARK):
            raise Irregular
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            raise Irregular
        refused: list[pa.csv.InvalidRow] = []

        def skip(row: pa.csv.InvalidRow) -> str:
            refused.append(row)
            return "skip"

        names = [str(place) for place in range(self.width)]
        taken = sorted({place for place in self.places if place is not None}) or [0]
        table = pa.csv.read_csv(
            pa.BufferReader(block),
            read_options=pa.csv.ReadOptions(
                column_names=names, use_threads=False, block_size=len(block) + 1
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote or False,
                invalid_row_handler=skip,
            ),
            convert_options=pa.csv.ConvertOptions(
                include_columns=[names[place] for place in taken],
                column_types={names[place]: pa.string() for place in taken},
                null_values=[self.null_value],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        # Equal numbers mean that no quoted field ran over a line's end, except at the very end.
        if table.num_rows + len(refused) != len(lines):
            raise Irregular
        if self.quote and self.quote in lines.raw(len(lines) - 1).decode():
            try:
                self.split(lines.raw(len(lines) - 1).decode())
            except ValueError:
                raise Irregular from None
        columns = [
            pa.nulls(table.num_rows, pa.string())
            if place is None
            else self._empty_is_null(one_array(table[names[place]]), field)
            for field, place in zip(self.fields, self.places, strict=True)
        ]
        kept, bad = None, []
        if refused:
            rows = [row.number - 1 for row in refused]
            kept = np.delete(np.arange(len(lines)), rows)
            bad = [
                lines.bad(index, self._miscounted(row.actual_columns))
                for index, row in zip(rows, refused, strict=True)
            ]
        return Decoded(columns, kept, bad)

    def slow(self, lines: Lines) -> Decoded:
        kept: list[int] = []
        bad: list[BadRecord] = []
        rows: list[list[str | None]] = []
        for index in range(len(lines)):
            try:
                record = self.split(lines.raw(index).decode("utf-8"))
            except UnicodeDecodeError:
                bad.append(lines.bad(index, "the line is not UTF-8"))
                continue
            except ValueError as error:
                bad.append(lines.bad(index, str(error)))
                continue
            if len(record) != self.width:
                bad.append(lines.bad(index, self._miscounted(len(record))))
                continue
            kept.append(index)
            rows.append(record)
        columns = [
            self._empty_is_null(
                pa.array([None if place is None else row[place] for row in rows], pa.string()),
                field,
            )
            for field, place in zip(self.fields, self.places, strict=True)
        ]
        return Decoded(columns, np.array(kept, dtype=np.int64), bad)

    def split(self, line: str) -> list[str | None]:
        """The fields of a line; ValueError if a quoted field is not closed."""
        fields: list[str | None] = []
        at = 0
        while True:
            quoted = self.quote != "" and line.startswith(self.quote, at)
            text = ""
            if quoted:
                text, at = self._quoted(line, at + 1)
            end = line.find(self.delimiter, at)
            text += line[at : end if end >= 0 else len(line)]
            fields.append(None if not quoted and text == self.null_value else text)
            if end < 0:
                return fields
            at = end + 1

    def _quoted(self, line: str, at: int) -> tuple[str, int]:
        pieces = []
        while True:
            end = line.find(self.quote, at)
            if end < 0:
                raise ValueError("a quoted field does not end on its line")
            pieces.append(line[at:end])
            at = end + 1
            if not line.startswith(self.quote, at):
                return "".join(pieces), at
            pieces.append(self.quote)
            at += 1

    def _empty_is_null(self, texts: pa.Array, field: Field) -> pa.Array:
        if field.type == "string":
            return texts
        empty = pc.equal(texts, "")
        if not pc.any(empty).as_py():
            return texts
        return pc.if_else(empty, pa.scalar(None, pa.string()), texts)

    def _miscounted(self, count: int) -> str:
        return f"{count} field{'' if count == 1 else 's'} where {self.width} are expected"


def csv_decoder(
    options: FileOptions, schema: Schema, fields: tuple[Field, ...], header: bytes | None
) -> CsvDecoder:
    """A decoder for one file, from its header line (None: columns are as in the schema)."""
    split = CsvDecoder(
        (), (), 0, delimiter=options.delimiter, quote=options.quote, null_value=options.null_value
    ).split
    names: list[str] = list(schema.names)
    if header is not None:
        try:
            names = [(name or "").strip() for name in split(header.decode("utf-8"))]
        except ValueError as error:
            raise Unreadable(f"the header cannot be read: {error}") from None
        if not any(schema.field(name) for name in names):
            raise Unreadable(
                f"no column of the stream is in the header ({', '.join(names)[:200]}); "
                f"expected: {', '.join(schema.names)}"
            )
    return CsvDecoder(
        fields=fields,
        places=tuple(_place(field.name, names) for field in fields),
        width=len(names),
        delimiter=options.delimiter,
        quote=options.quote,
        null_value=options.null_value,
    )


def _place(name: str, names: list[str]) -> int | None:
    if name in names:
        return names.index(name)
    lower = [n.lower() for n in names]
    return lower.index(name.lower()) if name.lower() in lower else None
