"""Files of regions: what they give, and what they are refused for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import shapely
from shapely import Geometry

from penstock.errors import PenstockError
from penstock.runtime.regions import Regions, read_regions

SQUARE = shapely.box(0, 0, 2, 1)
WITH_HOLE = shapely.difference(shapely.box(10, 10, 20, 20), shapely.box(12, 12, 13, 13))
ATTRIBUTES = pa.table({"name": ["a", "b"], "rank": [1, 2]})


def feature(geometry: Geometry | None, **properties: Any) -> dict[str, Any]:
    shape = None if geometry is None else shapely.geometry.mapping(geometry)
    return {"type": "Feature", "geometry": shape, "properties": properties}


def geojson(path: Path, features: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def two_regions(path: Path) -> Path:
    return geojson(path, [feature(SQUARE, name="a", rank=1), feature(WITH_HOLE, name="b", rank=2)])


def assert_both(regions: Regions) -> None:
    assert regions.attributes.equals(ATTRIBUTES)
    assert [g.equals(e) for g, e in zip(regions.geometries, (SQUARE, WITH_HOLE), strict=True)] == [
        True,
        True,
    ]


def test_geojson_gives_typed_attributes(tmp_path: Path) -> None:
    assert_both(read_regions(two_regions(tmp_path / "z.geojson")))


def test_a_property_that_some_features_lack_is_null(tmp_path: Path) -> None:
    path = geojson(tmp_path / "z.json", [feature(SQUARE, a=1), feature(SQUARE, b=2.5)])
    attributes = read_regions(path).attributes
    assert attributes.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": 2.5}]


def test_regions_may_have_no_attributes(tmp_path: Path) -> None:
    regions = read_regions(geojson(tmp_path / "z.json", [feature(SQUARE)]))
    assert (regions.attributes.num_rows, regions.attributes.num_columns) == (1, 0)


@pytest.mark.parametrize(("name", "delimiter"), [("z.csv", ","), ("z.tsv", "\t")])
def test_wkt_in_lines_gives_typed_attributes(tmp_path: Path, name: str, delimiter: str) -> None:
    rows = [
        ("name", "rank", "WKT"),
        ("a", "1", f'"{SQUARE.wkt}"'),
        ("b", "2", f'"{WITH_HOLE.wkt}"'),
    ]
    (tmp_path / name).write_text("\n".join(delimiter.join(row) for row in rows) + "\n")
    assert_both(read_regions(tmp_path / name))


@pytest.mark.parametrize("encode", [shapely.to_wkb, shapely.to_wkt])
def test_parquet_holds_wkb_or_wkt(tmp_path: Path, encode: Any) -> None:
    table = ATTRIBUTES.append_column("place", pa.array([encode(SQUARE), encode(WITH_HOLE)]))
    pa.parquet.write_table(table, tmp_path / "z.parquet")
    assert_both(read_regions(tmp_path / "z.parquet", geometry="place"))


@pytest.mark.parametrize(
    "type_", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_comes_in_many_types(tmp_path: Path, type_: pa.DataType) -> None:
    texts = pa.array(shapely.to_wkt([SQUARE, WITH_HOLE])).cast(type_)
    pa.parquet.write_table(ATTRIBUTES.append_column("wkt", texts), tmp_path / "z.parquet")
    assert_both(read_regions(tmp_path / "z.parquet"))


def test_geoparquet_tells_its_geometry_column(tmp_path: Path) -> None:
    table = ATTRIBUTES.append_column("place", pa.array(shapely.to_wkb([SQUARE, WITH_HOLE])))
    geo = {"primary_column": "place", "columns": {"place": {"encoding": "WKB"}}}
    pa.parquet.write_table(
        table.replace_schema_metadata({"geo": json.dumps(geo)}), tmp_path / "z.parquet"
    )
    assert_both(read_regions(tmp_path / "z.parquet"))


def test_planar_regions_may_lie_anywhere(tmp_path: Path) -> None:
    far = shapely.box(400_000, 5_600_000, 400_100, 5_600_100)
    path = geojson(tmp_path / "z.json", [feature(far)])
    assert read_regions(path, planar=True).geometries[0].equals(far)
    with pytest.raises(PenstockError, match=r"feature 1: coordinates from \(400000, 5.6e\+06\)"):
        read_regions(path)


@pytest.mark.parametrize("shift", [0, -360])
def test_a_region_that_goes_on_beyond_180_degrees_is_split_there(
    tmp_path: Path, shift: int
) -> None:
    fiji = shapely.box(177 + shift, -20, 182 + shift, -15)
    (found,) = read_regions(geojson(tmp_path / "z.json", [feature(fiji)])).geometries
    expected = shapely.union(shapely.box(177, -20, 180, -15), shapely.box(-180, -20, -178, -15))
    assert found.equals(expected)


def test_a_region_all_around_a_pole_is_whole_again(tmp_path: Path) -> None:
    for west in (-180, -10, 0):
        corners = [(west + step, 60 + step % 7) for step in range(0, 360, 20)]
        cap = shapely.Polygon([*corners, (west + 360, 60), (west + 360, 90), (west, 90)])
        (found,) = read_regions(geojson(tmp_path / "z.json", [feature(cap)])).geometries
        assert found.is_valid
        assert found.bounds == (-180, 60, 180, 90)
        assert found.area == pytest.approx(cap.area)


def test_an_edge_that_may_go_either_way_around_is_refused(tmp_path: Path) -> None:
    ambiguous = shapely.Polygon([(170, 0), (-170, 0), (-170, 10), (170, 10)])
    with pytest.raises(PenstockError, match=r"feature 1: an edge spans more than 180.*\n.* 190"):
        read_regions(geojson(tmp_path / "z.json", [feature(ambiguous)]))


def test_the_whole_map_is_a_region(tmp_path: Path) -> None:
    world = shapely.box(-180, -90, 180, 90)
    assert read_regions(geojson(tmp_path / "z.json", [feature(world)])).geometries == [world]


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        (None, "feature 2: the geometry is empty"),
        (shapely.Polygon(), "feature 2: the geometry is empty"),
        (shapely.Point(1, 2), "feature 2: a Point is no area"),
        (
            shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)]),
            "feature 2: the geometry is invalid: Self-intersection",
        ),
        (shapely.box(0, 80, 1, 91), "feature 2: coordinates from .* are out of range"),
    ],
)
def test_what_is_no_region_is_refused_by_file_and_number(
    tmp_path: Path, geometry: Geometry | None, message: str
) -> None:
    path = geojson(tmp_path / "zones.geojson", [feature(SQUARE), feature(geometry)])
    with pytest.raises(PenstockError, match=f"zones.geojson: {message}") as caught:
        read_regions(path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("z.shp", "", "the format of regions is told by the file's name"),
        ("z.json", "{", "this is not JSON"),
        ("z.json", "[]", "there is no FeatureCollection"),
        ("z.json", '{"type": "FeatureCollection", "features": []}', "there are no regions"),
        (
            "z.json",
            '{"type": "FeatureCollection", "features": [3]}',
            "feature 1: this is no Feature",
        ),
        ("z.csv", "name,geom\na,POLYGON ((0 0\n", "feature 1: the geometry cannot be read"),
        ("z.csv", "name,place\na,b\n", "no column looks like geometry"),
        ("z.csv", "wkt,geom\na,b\n", r"more than one column \(wkt, geom\) looks like geometry"),
        ("z.parquet", "no", "this is not Parquet"),
        ("z.wkt", "POLYGON ((0 0\n", "feature 1: the geometry cannot be read"),
        ("z.csv", "name,geom\na,\n", "feature 1: the geometry is empty"),
        ("z.csv", b"name,geom\nM\xfc,POLYGON EMPTY\n", "column name has text that is not UTF-8"),
        (
            "z.json",
            '{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": [1]}]}',
            "feature 1: the properties are no object",
        ),
    ],
)
def test_files_that_cannot_be_read_are_refused(
    tmp_path: Path, name: str, text: str | bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(PenstockError, match=message) as refused:
        read_regions(tmp_path / name)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("geo", "message"),
    [
        ("nonsense", "the metadata under geo are not GeoParquet's"),
        ("[1]", "the metadata under geo are not GeoParquet's"),
        ('{"columns": {"geometry": 3}}', "the metadata under geo are not GeoParquet's"),
        ('{"primary_column": "place"}', "there is no column place"),
        (
            '{"primary_column": "geometry", "columns": {"geometry": {"encoding": "polygon"}}}',
            "column geometry is encoded as polygon",
        ),
    ],
)
def test_metadata_that_are_wrong_are_refused(tmp_path: Path, geo: str, message: str) -> None:
    table = pa.table({"geometry": shapely.to_wkb([SQUARE])}).replace_schema_metadata({"geo": geo})
    pa.parquet.write_table(table, tmp_path / "z.parquet")
    with pytest.raises(PenstockError, match=message) as refused:
        read_regions(tmp_path / "z.parquet")
    assert refused.value.hint


def test_lines_of_wkt_are_regions_with_numbers(tmp_path: Path) -> None:
    (tmp_path / "z.wkt").write_text(f"\ufeff{SQUARE.wkt}\n\n{WITH_HOLE.wkt}\n")
    regions = read_regions(tmp_path / "z.wkt")
    assert regions.attributes.to_pylist() == [{"number": 1}, {"number": 2}]
    assert all(g.equals(e) for g, e in zip(regions.geometries, (SQUARE, WITH_HOLE), strict=True))
    (tmp_path / "bad.wkt").write_bytes(b"\xff\xff")
    with pytest.raises(PenstockError, match="this is no text"):
        read_regions(tmp_path / "bad.wkt")


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="No such file"):
        read_regions(tmp_path / "z.geojson")


def test_properties_of_different_types_are_refused(tmp_path: Path) -> None:
    path = geojson(tmp_path / "z.json", [feature(SQUARE, a=1), feature(SQUARE, a="x")])
    with pytest.raises(PenstockError, match=r"property a has values of .* \(int, str\)"):
        read_regions(path)
    path = geojson(tmp_path / "z.json", [feature(SQUARE, a=2**64)])
    with pytest.raises(PenstockError, match="property a has numbers of more than 64 bits"):
        read_regions(path)


def test_counties_are_read_with_their_names(shared_data: Path) -> None:
    names = ["shape", *(f"c{i}" for i in range(2, 19))]
    path = shared_data / "tiger" / "county_small.tsv"
    regions = read_regions(path, geometry="shape", columns=names)
    assert len(regions.geometries) == 100
    assert regions.attributes["c6"][0].as_py() == "Cuming"
