"""Files of named regions: GeoJSON, CSV and TSV with WKT, Parquet with WKB or WKT.

A region is a polygon with attributes. Each decoder gives a table of attributes and as many
geometries; what cannot be a region is an error that names the file and the feature, from 1 on.

Longitude and latitude are coordinates on a flat map that ends at 180 degrees. A region across that
line is written with longitudes that go on (170 to 190) or as two parts; the former is split here.
An edge of more than 180 degrees is refused, since 170 to −170 may mean either way around the earth;
one of exactly 360 is the rim of the map.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import shapely
from shapely import Geometry
from shapely.geometry import shape

from penstock.errors import PenstockError
from penstock.geometry import LON_LAT, PLANE, Bounds, first_fault

DELIMITERS = {".csv": ",", ".tsv": "\t"}
ENDINGS = (".geojson", ".json", *DELIMITERS, ".parquet")
GEOMETRY_NAMES = ("geometry", "geom", "wkt", "wkb", "the_geom")
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)

_CELL = 1 << 20
_TURN = 360.0
_TURNS: tuple[float, ...] = (-_TURN, 0.0, _TURN)


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
    else:
        regions = decode_geojson(data, str(path))
    return checked(regions, str(path), planar)


def checked(regions: Regions, name: str, planar: bool) -> Regions:
    """The regions, each a valid area within range, none across the end of the map."""
    geometries = regions.geometries
    if not geometries:
        raise PenstockError(f"{name}: there are no regions", "a file has to hold at least one")
    _refuse(geometries, name, PLANE)
    if planar:
        return regions
    for number, found in enumerate(geometries, 1):
        if _goes_either_way(found):
            raise PenstockError(
                f"{name}: feature {number}: an edge spans more than 180 degrees of longitude",
                "across 180 degrees write 170 to 190 instead of 170 to -170; "
                "the long way around, add a vertex on the edge",
            )
    geometries = [split_at_date_line(found) for found in geometries]
    _refuse(geometries, name, LON_LAT)
    return Regions(regions.attributes, geometries)


def _refuse(geometries: list[Geometry], name: str, domain: Bounds) -> None:
    if (fault := first_fault(geometries, domain)) is not None:
        raise PenstockError(f"{name}: feature {fault.place + 1}: {fault.reason}", fault.hint)


def _goes_either_way(geometry: Geometry) -> bool:
    for ring in shapely.get_rings(shapely.get_parts(geometry)):
        spans = np.abs(np.diff(shapely.get_coordinates(ring)[:, 0]))
        if ((spans > _TURN / 2) & (spans != _TURN)).any():
            return True
    return False


def split_at_date_line(geometry: Geometry) -> Geometry:
    """A region whose longitudes go beyond ±180 by less than a turn, cut there and brought back.

    >>> [part.bounds for part in split_at_date_line(shapely.box(170, 0, 190, 10)).geoms]
    [(170.0, 0.0, 180.0, 10.0), (-180.0, 0.0, -170.0, 10.0)]
    """
    low, south, high, north = shapely.bounds(geometry).tolist()
    beyond = low < -_TURN / 2 or high > _TURN / 2
    if not beyond or high - low > _TURN or low < -1.5 * _TURN or high > 1.5 * _TURN:
        return geometry
    pieces = []
    for turn in _TURNS:
        map_ = shapely.box(turn - _TURN / 2, south, turn + _TURN / 2, north)
        part = shapely.intersection(geometry, map_)
        pieces += [
            shapely.transform(p, lambda points, by=turn: points - [by, 0])
            for p in shapely.get_parts(part)
            if p.geom_type == "Polygon"
        ]
    whole = shapely.MultiPolygon(pieces) if len(pieces) > 1 else pieces[0]
    return whole if whole.is_valid else shapely.union_all(pieces)  # pieces may meet in an edge


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
        geometries.append(_shape(feature.get("geometry"), f"{name}: feature {number}"))
        rows.append(feature.get("properties") or {})
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
    return _split_table(table, name, geometry)


def decode_parquet(data: bytes, name: str, geometry: str | None) -> Regions:
    """A column of WKB or WKT; GeoParquet tells which."""
    try:
        table = pa.parquet.read_table(pa.BufferReader(data))
    except pa.ArrowException as error:
        raise PenstockError(f"{name}: this is not Parquet: {error}", "check the file") from None
    described = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
    primary = described.get("primary_column") if geometry is None else geometry
    encoding = described.get("columns", {}).get(primary, {}).get("encoding", "WKB")
    if encoding not in ("WKB", "WKT"):
        raise PenstockError(
            f"{name}: column {primary} is encoded as {encoding}", "write it as WKB or WKT"
        )
    return _split_table(table.replace_schema_metadata(None), name, primary)


def _split_table(table: pa.Table, name: str, geometry: str | None) -> Regions:
    column = _geometry_column(table, name, geometry)
    type_ = table.schema.field(column).type
    value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
    is_text = any(is_(value_type) for is_ in _TEXTS)
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
