"""Regions from their file to the workspace, and from there to the workers.

A set of regions is read once, when it is created: the workspace keeps attributes and areas as one
Arrow table, so that a file that changes or goes away changes no query. Workers ask for a table when
a ring needs it, and keep it as long as one does.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from penstock.errors import PenstockError
from penstock.kernels.placing import Placing, RegionIndex
from penstock.plan.catalog import (
    GEOMETRY,
    OptionValue,
    RegionSet,
    check_column_names,
    check_name,
    did_you_mean,
)
from penstock.plan.specs import Composition, RegionJoin, region_column
from penstock.runtime.config import StageConfig
from penstock.runtime.regions import Regions, read_regions
from penstock.runtime.service import ask
from penstock.schema import Field, Schema, arrow_type

_OPTIONS = ("columns", "geometry", "planar")
_TYPES: list[tuple[Any, str]] = [
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "timestamp"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
]


def load_regions(
    name: str, path: str, options: Mapping[str, OptionValue]
) -> tuple[RegionSet, bytes]:
    """What CREATE REGIONS says, checked and read."""
    check_name(name, "regions")
    for key in options:
        if key not in _OPTIONS:
            hint = did_you_mean(key, _OPTIONS, "options of regions")
            raise PenstockError(f"regions have no option {key}", hint)
    planar = options.get("planar", False)
    if not isinstance(planar, bool):
        raise PenstockError(f"planar = {planar} is not known", "write planar = true or false")
    geometry, columns = options.get("geometry"), str(options.get("columns", ""))
    found = read_regions(
        Path(path).expanduser().absolute(),
        None if geometry is None else str(geometry),
        [column.strip() for column in columns.split(",")] if columns else (),
        planar,
    )
    table = _table(found, path)
    body = _to_bytes(table)
    fields = [
        Field(n, _type(t)) for n, t in zip(table.column_names, table.schema.types, strict=True)
    ]
    schema = Schema(tuple(fields))
    check_column_names(schema)
    digest = hashlib.sha256(body).hexdigest()[:32]
    given = tuple(sorted(options.items()))
    where = str(Path(path).expanduser().absolute())
    reach = float(np.abs(shapely.total_bounds(found.geometries)).max())
    return RegionSet(name, schema, table.num_rows, planar, digest, where, given, reach), body


def _table(regions: Regions, path: str) -> pa.Table:
    """Attributes by their names in the types of the language, and the areas as WKB."""
    columns = {n: _column(c.combine_chunks()) for n, c in _named(regions.attributes, path).items()}
    areas = shapely.to_wkb(regions.geometries, output_dimension=2, byte_order=1)
    return pa.table({**columns, GEOMETRY: pa.array(areas, pa.binary())})


def _named(attributes: pa.Table, path: str) -> dict[str, pa.ChunkedArray]:
    taken: set[str] = {GEOMETRY}
    for name in attributes.column_names:
        if not name:
            raise PenstockError(f"{path}: an attribute has no name", "name it in the file")
        if name.lower() in taken:
            what = "the area's" if name.lower() == GEOMETRY else "another attribute's"
            raise PenstockError(
                f"{path}: attribute {name} has {what} name", "rename it in the file"
            )
        taken.add(name.lower())
    return {name: attributes[name] for name in attributes.column_names}


def _column(values: pa.Array) -> pa.Array:
    """The values in a type of the language; of lists and objects, their JSON."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_nested(values.type):
        texts = [None if v is None else json.dumps(v, default=str) for v in values.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_decimal256(values.type):
        return values.cast(pa.string())  # more digits than a number of the language has
    if pa.types.is_uint64(values.type):
        values = values.cast(pa.decimal128(20, 0))
    if pa.types.is_timestamp(values.type) and values.type.tz is None:
        values = pc.assume_timezone(values, "UTC")
    return values.cast(arrow_type(_type(values.type)), safe=False)


def _type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return next((name for is_, name in _TYPES if is_(type_)), "string")


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


_indexes: WeakValueDictionary[RegionJoin, RegionIndex] = WeakValueDictionary()


def placing_of(config: StageConfig, composition: Composition) -> Placing | None:
    """What gives a ring's tuples their columns of places; rings of a worker share regions."""
    join = composition.region_join
    if join is None and not composition.placed:
        return None
    index = None if join is None else _indexes.get(join)
    if join is not None and index is None:
        body = ask(config.address, "regions", {"digest": join.digest})
        index = _indexes[join] = index_from(b64decode(body), join)
    return Placing(index, composition.spatial)


def index_from(body: bytes, join: RegionJoin) -> RegionIndex:
    """The join with the regions of a table that `load_regions` made."""
    table = pa.ipc.open_file(pa.py_buffer(body)).read_all().combine_chunks()
    names = {name: region_column(join.regions, name) for name in table.column_names}
    attributes = {names[name]: table[name].chunk(0) for name in table.column_names}
    areas = shapely.from_wkb(table[GEOMETRY].to_numpy(zero_copy_only=False))
    return RegionIndex(join, attributes, list(areas))
