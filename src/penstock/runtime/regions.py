"""Files of named regions: GeoJSON, WKT, CSV and TSV with WKT, Parquet with WKB or WKT.

A region is a polygon with attributes. Each decoder gives a table of attributes and as many
geometries; what cannot be a region is an error that names the file and the feature, from 1 on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import shapely
from shapely import Geometry
from shapely.geometry import shape

from penstock.errors import PenstockError
from penstock.geometry import PLANE, Fault, first_fault, put_on_map

DELIMITERS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".geojson", ".json", ".wkt", *DELIMITERS, ".parquet")
GEOMETRY_NAMES = ("geometry", "geom", "wkt", "wkb", "the_geom")
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)

_CELL = 1 << 20


@dataclass(frozen=True, slots=True)
class Regions:
    """Row i of the attributes belongs to geometry i."""

    attributes: pa.Table
    geometries: list[Geometry]


def read_regions(
    path: str | Path,
    geometry: str | None = None,
    columns: Sequence[str] = (),
    planar: bool = False,
) -> Regions:
    """The regions of a file.

    geometry: the column that holds them, in CSV and Parquet; if not given, one with a usual name.
    columns: names for a CSV or TSV file without a header. planar: coordinates are not degrees.
    """
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise PenstockError(
            f"{path}: the format of regions is told by the file's name",
            f"known endings: {', '.join(ENDINGS)}",
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PenstockError(f"{path}: {error.strerror or error}", "check the path") from None
    if ending == ".parquet":
        regions = decode_parquet(data, str(path), geometry)
    elif ending in DELIMITERS:
        regions = decode_csv(data, str(path), DELIMITERS[ending], geometry, columns)
    elif ending == ".wkt":
        regions = decode_wkt(data, str(path))
    else:
        regions = decode_geojson(data, str(path))
    return checked(regions, str(path), planar)


def checked(regions: Regions, name: str, planar: bool) -> Regions:
    """The regions, each a valid area within range, none across the end of the map."""
    geometries = regions.geometries
    if not geometries:
        raise PenstockError(f"{name}: there are no regions", "a file has to hold at least one")
    found = first_fault(geometries, PLANE) or geometries if planar else put_on_map(geometries)
    if isinstance(found, Fault):
        raise PenstockError(f"{name}: feature {found.place + 1}: {found.reason}", found.hint)
    return Regions(regions.attributes, found)


def decode_geojson(data: bytes, name: str) -> Regions:
    """A FeatureCollection; properties become attributes."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise PenstockError(f"{name}: this is not JSON: {error}", "expected GeoJSON") from None
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise PenstockError(f"{name}: there is no FeatureCollection", "wrap the features in one")
    geometries, rows = [], []
    for number, feature in enumerate(features, 1):
        if not isinstance(feature, dict) or feature.get("type") != "Feature":
            raise PenstockError(f"{name}: feature {number}: this is no Feature", "see RFC 7946")
        properties = feature.get("properties") or {}
        if not isinstance(properties, dict):
            what = f"{name}: feature {number}: the properties are no object"
            raise PenstockError(what, "see RFC 7946")
        geometries.append(_shape(feature.get("geometry"), f"{name}: feature {number}"))
        rows.append(properties)
    names = dict.fromkeys(key for row in rows for key in row)
    columns = {key: _typed([row.get(key) for row in rows], name, key) for key in names}
    return Regions(_attributes(columns, len(rows)), geometries)


def _shape(value: Any, where: str) -> Geometry | None:
    if value is None:
        return None
    try:
        return shape(value)
    except Exception as error:  # shapely raises whatever the malformed value meets first
        reason = f"{where}: the geometry cannot be read: {error}"
        raise PenstockError(reason, "see RFC 7946") from None


def _typed(values: list[Any], name: str, key: str) -> pa.Array:
    try:
        return pa.array(values)
    except OverflowError:
        what = f"{name}: property {key} has numbers of more than 64 bits"
        raise PenstockError(what, "write them as text") from None
    except pa.ArrowException:
        kinds = ", ".join(sorted({type(v).__name__ for v in values if v is not None}))
        raise PenstockError(
            f"{name}: property {key} has values of different types ({kinds})",
            "give all features the same type, or null",
        ) from None


def _attributes(columns: dict[str, pa.Array], rows: int) -> pa.Table:
    """A table that knows its number of rows even without columns."""
    if columns:
        return pa.table(columns)
    return pa.table({"": pa.nulls(rows)}).select([])


def decode_csv(
    data: bytes, name: str, delimiter: str, geometry: str | None, columns: Sequence[str]
) -> Regions:
    """Lines with a column of WKT; the types of the others are told by their values."""
    options = pa.csv.ReadOptions(
        block_size=max(_CELL, len(data)), column_names=list(columns) or None
    )
    parsing = pa.csv.ParseOptions(delimiter=delimiter)
    try:
        table = pa.csv.read_csv(pa.BufferReader(data), options, parsing)
    except pa.ArrowException as error:
        raise PenstockError(f"{name}: {error}", "check the delimiter and the header") from None
    for column in table.schema:
        if pa.types.is_binary(column.type):
            what = f"{name}: column {column.name} has text that is not UTF-8"
            raise PenstockError(what, "convert the file to UTF-8")
    return _split_table(table, name, geometry)


def decode_wkt(data: bytes, name: str) -> Regions:
    """A region in each line; its number, from 1 on, is the attribute."""
    try:
        lines = [line for line in data.decode("utf-8-sig").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise PenstockError(f"{name}: this is no text: {error}", "expected WKT") from None
    numbers = pa.array(range(1, len(lines) + 1), pa.int64())
    return _split_table(pa.table({"number": numbers, "wkt": lines}), name, "wkt")


def decode_parquet(data: bytes, name: str, geometry: str | None) -> Regions:
    """A column of WKB or WKT; GeoParquet tells which."""
    try:
        table = pa.parquet.read_table(pa.BufferReader(data))
    except pa.ArrowException as error:
        raise PenstockError(f"{name}: this is not Parquet: {error}", "check the file") from None
    described = _geo_metadata(table, name)
    primary = described.get("primary_column") if geometry is None else geometry
    encoding = described.get("columns", {}).get(primary, {}).get("encoding", "WKB")
    if encoding not in ("WKB", "WKT"):
        raise PenstockError(
            f"{name}: column {primary} is encoded as {encoding}", "write it as WKB or WKT"
        )
    return _split_table(table.replace_schema_metadata(None), name, primary)


def _geo_metadata(table: pa.Table, name: str) -> dict[str, Any]:
    """What GeoParquet says of the file; empty if it is no such file."""
    text = (table.schema.metadata or {}).get(b"geo", b"{}")
    try:
        described = json.loads(text)
    except ValueError:
        described = None
    columns = described.get("columns", {}) if isinstance(described, dict) else None
    if not isinstance(columns, dict) or not all(isinstance(c, dict) for c in columns.values()):
        hint = "write the file anew as GeoParquet, or without this key"
        raise PenstockError(f"{name}: the metadata under geo are not GeoParquet's", hint)
    found: dict[str, Any] = described
    return found


def _split_table(table: pa.Table, name: str, geometry: str | None) -> Regions:
    column = _geometry_column(table, name, geometry)
    type_ = table.schema.field(column).type
    value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
    is_text = pa.types.is_null(value_type) or any(is_(value_type) for is_ in _TEXTS)
    decode = shapely.from_wkt if is_text else shapely.from_wkb
    if not is_text and not any(is_(value_type) for is_ in _BYTES):
        raise PenstockError(
            f"{name}: column {column} is of type {type_}", "geometry is WKT (text) or WKB (binary)"
        )
    geometries = []
    for number, value in enumerate(table[column].to_pylist(), 1):
        try:
            geometries.append(decode(value) if value else None)
        except (shapely.GEOSException, NotImplementedError) as error:
            raise PenstockError(
                f"{name}: feature {number}: the geometry cannot be read: {error}",
                f"column {column} has to hold WKT or WKB",
            ) from None
    return Regions(table.drop_columns([column]), geometries)


def _geometry_column(table: pa.Table, name: str, wanted: str | None) -> str:
    known = f"columns: {', '.join(table.column_names)[:200]}"
    if wanted is not None:
        if wanted not in table.column_names:
            raise PenstockError(f"{name}: there is no column {wanted}", known)
        return wanted
    usual = [column for column in table.column_names if column.lower() in GEOMETRY_NAMES]
    if len(usual) != 1:
        found = "no column" if not usual else f"more than one column ({', '.join(usual)})"
        raise PenstockError(f"{name}: {found} looks like geometry", f"name it; {known}")
    return usual[0]
