"""Names and types of a stream's columns, in Spark's simple strings (`bigint`, `decimal(10,2)`).

Types are plain text so that the pure layers need no Spark; `arrow_type` is the one mapping to
Arrow, and it is the mapping that Spark itself uses between the JVM and Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import PenstockError

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "text": "string",
    "bool": "boolean",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}

_ARROW: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}

INTEGER_TYPES = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOAT_TYPES = frozenset({"float", "double"})
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY = re.compile(r"array<(.+)>")


def canonical_type(text: str) -> str:
    """Return Spark's simple string for a type as users write it.

    >>> canonical_type("INTEGER"), canonical_type("Decimal(10, 2)"), canonical_type("varchar(20)")
    ('int', 'decimal(10,2)', 'string')
    """
    name = re.sub(r"\s+", "", text).lower()
    base, _, arguments = name.partition("(")
    base = _ALIASES.get(base, base)
    if base in ("varchar", "char"):
        return "string"
    if base == "decimal":
        digits = arguments.rstrip(")").split(",") if arguments else ["10"]
        if not all(d.isdigit() for d in digits) or len(digits) > 2:
            raise PenstockError(f"{text} is not a decimal type", "write DECIMAL(precision, scale)")
        precision, scale = int(digits[0]), int(digits[1]) if len(digits) == 2 else 0
        if not 1 <= precision <= 38 or scale > precision:
            raise PenstockError(
                f"{text} is out of range", "precision is 1 to 38, scale at most the precision"
            )
        return f"decimal({precision},{scale})"
    if array := _ARRAY.fullmatch(name):
        return f"array<{canonical_type(array[1])}>"
    if base in _ARROW and not arguments:
        return base
    raise PenstockError(f"type {text} is not known", f"known types: {', '.join(sorted(_ARROW))}")


def decimal_parts(type_: str) -> tuple[int, int] | None:
    """Precision and scale of a decimal type, None for any other type."""
    match = _DECIMAL.fullmatch(type_)
    return (int(match[1]), int(match[2])) if match else None


def arrow_type(type_: str) -> pa.DataType:
    """The Arrow type that Spark exchanges with Python for a canonical type."""
    if parts := decimal_parts(type_):
        return pa.decimal128(*parts)
    if array := _ARRAY.fullmatch(type_):
        return pa.list_(arrow_type(array[1]))
    return _ARROW[type_]


def as_type(values: pa.Array, type_: str) -> pa.Array:
    """Values of another type that holds them all; times and dates also as what they count.

    >>> as_type(pa.array([18262], pa.int64()), "date").to_pylist()
    [datetime.date(2020, 1, 1)]
    """
    wanted = arrow_type(type_)
    if pa.types.is_date32(values.type) or pa.types.is_date32(wanted):
        values = values.cast(pa.int32())
    return values.cast(wanted)


def has_arrow_type(type_: str) -> bool:
    """Whether penstock can carry values of a type itself; a user's DataFrame may have others.

    >>> has_arrow_type("array<int>"), has_arrow_type("map<int,int>")
    (True, False)
    """
    try:
        arrow_type(type_)
    except KeyError:
        return False
    return True


def is_flat(type_: str) -> bool:
    """Whether Arrow data of a type is the same whoever made it, Spark or a source.

    >>> is_flat("string"), is_flat("array<int>"), is_flat("map<int,int>")
    (True, False, False)
    """
    return has_arrow_type(type_) and not pa.types.is_nested(arrow_type(type_))


def is_groupable(type_: str) -> bool:
    """Whether values of a type can be the keys of groups.

    >>> is_groupable("string"), is_groupable("array<int>"), is_groupable("map<int,int>")
    (True, False, False)
    """
    return has_arrow_type(type_) and not pa.types.is_list(arrow_type(type_))


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Schema:
    """An ordered set of columns; look-up ignores case, as Spark does.

    >>> Schema.of("id INT, temp DOUBLE").field("TEMP")
    Field(name='temp', type='double')
    """

    fields: tuple[Field, ...]

    @classmethod
    def of(cls, ddl: str) -> Schema:
        """Read `name type, …` as in CREATE STREAM."""
        parts = re.split(r",(?![^(<]*[)>])", ddl)
        pairs = [part.strip().split(None, 1) for part in parts]
        return cls(tuple(Field(name.strip("`"), canonical_type(type_)) for name, type_ in pairs))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name.lower() == name.lower()), None)

    def arrow(self) -> pa.Schema:
        return pa.schema([(f.name, arrow_type(f.type)) for f in self.fields])

    def ddl(self) -> str:
        """The schema as Spark reads it."""
        return ", ".join(f"`{f.name.replace('`', '``')}` {f.type}" for f in self.fields)
