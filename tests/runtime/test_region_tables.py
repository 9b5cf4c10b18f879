"""Regions from files to the index that workers use: types, names, and the end of the map."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from penstock.errors import PenstockError
from penstock.kernels.placing import Placed
from penstock.plan.catalog import RegionSet
from penstock.plan.specs import FenceRelation, RegionJoin, region_column
from penstock.runtime.region_tables import index_from, load_regions

Place = tuple[float | None, float | None]


def _geojson(path: Path, areas: dict[str, Any], **properties: Any) -> str:
    features = [
        {
            "type": "Feature",
            "properties": {"name": name, **properties},
            "geometry": json.loads(shapely.to_geojson(area)),
        }
        for name, area in areas.items()
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


def _joined(
    regions: RegionSet,
    body: bytes,
    places: list[Place],
    relation: FenceRelation = "within",
    distance: float = 0.0,
) -> Placed:
    fields = regions.schema.fields
    columns = tuple((region_column(regions.name, f.name), f.type) for f in fields)
    how = (relation, distance, regions.planar)
    join = RegionJoin(regions.name, regions.digest, "x", "y", *how, columns)
    xs, ys = zip(*places, strict=True)
    batch = pa.RecordBatch.from_pydict({"x": pa.array(xs), "y": pa.array(ys)})
    return index_from(body, join).join(batch, {name for name, _ in columns})


def _names(placed: Placed) -> list[tuple[int, str]]:
    names = placed.batch.column("Z:name").to_pylist()
    return sorted(zip(placed.origins.tolist(), names, strict=True))


def test_attributes_have_types_of_the_language(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array([1, None], pa.uint8()),
            "b": pa.array(["x", "y"]).dictionary_encode(),
            "c": pa.array([dt.datetime(2024, 1, 1), None], pa.timestamp("ns")),
            "d": pa.array([[1, 2], None]),
            "e": pa.array([1.5, 2.5], pa.float32()),
            "f": pa.array([None, None], pa.null()),
            "wkb": [shapely.box(0, 0, 1, 1).wkb, shapely.box(1, 0, 2, 1).wkb],
        }
    )
    path = tmp_path / "z.parquet"
    pq.write_table(table, path)
    regions, body = load_regions("Z", str(path), {})
    types = {f.name: f.type for f in regions.schema.fields}
    assert types == {
        "a": "bigint", "b": "string", "c": "timestamp", "d": "string", "e": "double",
        "f": "string", "geom": "binary",
    }  # fmt: skip
    placed = _joined(regions, body, [(0.5, 0.5), (1.0, 0.5), (1.5, 0.5), (None, 1.0)])
    row = placed.batch.to_pylist()[0]
    assert (row["Z:a"], row["Z:b"], row["Z:d"], row["Z:f"]) == (1, "x", "[1, 2]", None)
    assert row["Z:c"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert placed.origins.tolist() == [0, 2]
    assert placed.unplaced == 1
    again, _ = load_regions("Z", str(path), {})
    assert again == regions


def test_the_map_ends_at_180_degrees_and_metres_do_not_notice(tmp_path: Path) -> None:
    areas = {"fiji": shapely.box(176, -20, 183, -15), "dot": shapely.box(-179.5, 0, -179.4, 0.1)}
    regions, body = load_regions("Z", _geojson(tmp_path / "z.geojson", areas), {})
    places: list[Place] = [(177, -17), (-178, -17), (180, -17), (-180, -17), (183, -17), (179.9, 0)]
    assert _names(_joined(regions, body, places)) == [(0, "fiji"), (1, "fiji")]
    touched = _joined(regions, body, places, "intersects")
    assert _names(touched) == [(n, "fiji") for n in range(4)]
    assert touched.unplaced == 1  # 183 is beyond the map
    near = _joined(regions, body, [(179.9, 0), (178.0, 0), (-178.0, 0)], "sphere", 100_000)
    assert _names(near) == [(0, "dot")]
    flat = _joined(regions, body, [(179.9, 0), (-178.9, 0)], "near", 1.0)
    assert _names(flat) == [(1, "dot")]  # the flat map has 359 degrees in between


def test_regions_around_a_pole_reach_up_to_the_rim_of_the_map(tmp_path: Path) -> None:
    cap = shapely.Polygon([(-180, 80), (0, 80), (180, 80), (180, 90), (0, 90), (-180, 90)])
    areas = {"arctic": cap, "station": shapely.box(10, 89, 11, 89.5)}
    regions, body = load_regions("Z", _geojson(tmp_path / "z.geojson", areas), {})
    inside = _joined(regions, body, [(-179.9, 85), (90, 89.99), (0, 79), (0, 90), (0, 90.5)])
    assert _names(inside) == [(0, "arctic"), (1, "arctic")]
    assert inside.unplaced == 1
    over_the_pole = _joined(regions, body, [(-170, 89.6), (-170, 85)], "sphere", 110_000)
    assert (0, "station") in _names(over_the_pole)
    assert (1, "station") not in _names(over_the_pole)


def test_it_is_known_how_many_regions_a_point_may_have(tmp_path: Path) -> None:
    areas = {f"a{n}": shapely.box(n, 0, n + 2.5, 1) for n in range(6)}
    areas["far"] = shapely.box(100, 0, 101, 1)
    regions, body = load_regions("Z", _geojson(tmp_path / "z.geojson", areas), {})
    columns = tuple((region_column("Z", f.name), f.type) for f in regions.schema.fields)

    def most(relation: FenceRelation, distance: float) -> int:
        join = RegionJoin("Z", regions.digest, "x", "y", relation, distance, False, columns)
        return index_from(body, join).most

    assert most("within", 0.0) == 5  # by boxes that meet; no point is in more than three
    assert most("near", 90.0) == 6 + 1
    assert most("sphere", 1.0) == 5


def test_planar_regions_know_no_degrees(tmp_path: Path) -> None:
    path = _geojson(tmp_path / "z.json", {"hall": shapely.box(1000, 1000, 1100, 1100)})
    with pytest.raises(PenstockError, match="feature 1: coordinates from"):
        load_regions("Z", path, {})
    regions, body = load_regions("Z", path, {"planar": True})
    assert _names(_joined(regions, body, [(1050, 1050), (0, 0)])) == [(0, "hall")]
    assert _names(_joined(regions, body, [(990, 1050), (980, 0)], "near", 10.0)) == [(0, "hall")]
    assert regions.reach == 1100


def test_numbers_beyond_a_bigint_stay_what_they_are(tmp_path: Path) -> None:
    cells = pa.array([2**63 + 5], pa.uint64())
    areas = pa.array([shapely.box(0, 0, 1, 1).wkb])
    pq.write_table(pa.table({"cell": cells, "wkb": areas}), tmp_path / "z.parquet")
    regions, body = load_regions("Z", str(tmp_path / "z.parquet"), {})
    assert _joined(regions, body, [(0.5, 0.5)]).batch.column("Z:cell").to_pylist() == [2**63 + 5]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Z", {"geom": "x"}, "regions have no option geom"),
        ("Z", {"planar": "yes"}, "planar = yes is not known"),
        ("a b", {}, "'a b' cannot be the name of regions"),
    ],
)
def test_odd_options_are_refused(
    tmp_path: Path, name: str, options: dict[str, Any], message: str
) -> None:
    path = _geojson(tmp_path / "z.json", {"a": shapely.box(0, 0, 1, 1)})
    with pytest.raises(PenstockError, match=message):
        load_regions(name, path, options)


@pytest.mark.parametrize(("key", "message"), [("Geom", "the area's"), ("NAME", "another")])
def test_names_that_are_taken_are_refused(tmp_path: Path, key: str, message: str) -> None:
    path = _geojson(tmp_path / "z.json", {"a": shapely.box(0, 0, 1, 1)}, **{key: 1})
    with pytest.raises(PenstockError, match=f"attribute {key} has {message}"):
        load_regions("Z", path, {})
