"""Spatial functions over batches, against shapely row by row."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
import shapely
from shapely import Geometry

from penstock.geometry import to_hex
from penstock.kernels.placing import Placing
from penstock.kernels.spatial_values import spatial_column
from penstock.kernels.sphere import EARTH_RADIUS_M
from penstock.plan.specs import SpatialValue

AREA = shapely.box(0, 0, 4, 4).difference(shapely.box(1, 1, 2, 2))
POINT = ["st_point", {"column": "x"}, {"column": "y"}]
CONSTANT = {"geometry": to_hex(AREA)}
ROWS: list[tuple[float | None, float | None, str | None]] = [
    (3.0, 3.0, "POINT (1 2)"),
    (1.5, 1.5, "POLYGON ((0 0, 9 0, 9 9, 0 0))"),
    (4.0, 2.0, "LINESTRING (0 0, 4 2)"),
    (-7.0, 2.0, "POINT EMPTY"),
    (5.0, 1e141, "POLYGO"),
    (None, 1.0, None),
    (math.nan, 1.0, "POINT (1 2)"),
    (3.0, math.inf, "POINT (1 2)"),
]


def _batch() -> pa.RecordBatch:
    xs, ys, texts = zip(*ROWS, strict=True)
    areas = [AREA.wkb, b"?", None, *[shapely.Point(1, 1).wkb] * 5]
    return pa.RecordBatch.from_pydict(
        {"x": pa.array(xs), "y": pa.array(ys), "text": pa.array(texts), "wkb": pa.array(areas)}
    )


def _column(call: list[Any], type_: str) -> list[Any]:
    value = SpatialValue("v", type_, json.dumps(call), ())
    return list(spatial_column(value, _batch()).to_pylist())


def _points() -> list[Geometry | None]:
    return [
        shapely.Point(x, y) if x is not None and y is not None and abs(x) + abs(y) < 1e140 else None
        for x, y, _ in ROWS
    ]


def _texts() -> list[Geometry | None]:
    found = [None if t in (None, "POLYGO") else shapely.from_wkt(t) for _, _, t in ROWS]
    return [None if g is None or g.is_empty else g for g in found]


@pytest.mark.parametrize("name", ["within", "contains", "intersects", "distance"])
@pytest.mark.parametrize("other", ["constant", "text"])
def test_two_geometries_are_compared_as_shapely_does(name: str, other: str) -> None:
    argument = CONSTANT if other == "constant" else ["st_geomfromtext", {"column": "text"}]
    areas = [AREA] * len(ROWS) if other == "constant" else _texts()
    compare = getattr(shapely, name)
    slow = [
        None if p is None or a is None else compare(p, a)
        for p, a in zip(_points(), areas, strict=True)
    ]
    type_ = "double" if name == "distance" else "boolean"
    assert _column([f"st_{name}", POINT, argument], type_) == slow


def test_near_in_the_plane_and_in_metres() -> None:
    near = _column(["st_dwithin", POINT, CONSTANT, {"value": 1.0}], "boolean")
    assert near == [None if p is None else p.distance(AREA) <= 1 for p in _points()]
    degree = EARTH_RADIUS_M * math.pi / 180
    for metres in (0.0, 0.6 * degree, 8 * degree):
        on_earth = [POINT, CONSTANT, {"value": metres}, {"value": True}]
        found = _column(["st_dwithin", *on_earth], "boolean")
        far = _column(["st_distancesphere", POINT, CONSTANT], "double")
        assert found == [None if d is None else d <= metres for d in far]
    assert far[:3] == [0.0, pytest.approx(0.5 * degree, rel=1e-3), 0.0]
    assert far[3] == pytest.approx(7 * degree, rel=1e-2)
    assert far[4:] == [None] * 4
    dots = _column(["st_distancesphere", POINT, ["st_geomfromtext", {"column": "text"}]], "double")
    assert dots[0] == pytest.approx(math.hypot(1, 2) * degree, rel=1e-2)


def test_geometries_are_taken_apart_and_shown() -> None:
    points = _points()
    assert _column(["st_x", POINT], "double") == [None if p is None else p.x for p in points]
    assert _column(["st_y", POINT], "double") == [None if p is None else p.y for p in points]
    shown = _column(["st_astext", POINT], "string")
    assert [s and shapely.from_wkt(s) for s in shown] == points
    assert _column(POINT, "binary") == [None if p is None else p.wkb for p in points]
    wkb = ["st_geomfromwkb", {"column": "wkb"}]
    assert _column(["st_x", wkb], "double") == [None, None, None, *[1.0] * 5]
    assert _column(["st_intersects", wkb, CONSTANT], "boolean")[:3] == [True, None, None]


def test_tuples_without_a_place_are_counted_once() -> None:
    values = tuple(
        SpatialValue(name, "double", json.dumps([name, POINT]), ("x", "y"))
        for name in ("st_x", "st_y")
    )
    placed = Placing(None, values).place(_batch(), {"st_x", "st_y"})
    assert placed.unplaced == sum(p is None for p in _points())
    assert placed.batch.schema.names[-2:] == ["st_x", "st_y"]
    assert Placing(None, values).place(_batch(), {"st_x"}).batch.schema.names[-1] == "st_x"


def test_curves_are_no_geometries_and_harm_no_other() -> None:
    texts = pa.array(["CIRCULARSTRING (0 0, 1 1, 2 0)", "POINT (1 2)", "POLYGO", None])
    batch = pa.RecordBatch.from_pydict({"text": texts})
    call = json.dumps(["st_x", ["st_geomfromtext", {"column": "text"}]])
    found = spatial_column(SpatialValue("v", "double", call, ()), batch)
    assert found.to_pylist() == [None, 1.0, None, None]


def test_no_rows_have_no_values() -> None:
    for last in ([], [{"value": True}]):
        call = json.dumps(["st_dwithin", POINT, CONSTANT, {"value": 1.0}, *last])
        found = spatial_column(SpatialValue("v", "boolean", call, ()), _batch().slice(0, 0))
        assert len(found) == 0
