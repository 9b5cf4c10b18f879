"""Metres on the sphere, against plain loops with other formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely import Geometry

from penstock.geometry import LON_LAT
from penstock.kernels.sphere import EARTH_RADIUS_M, metres_between, metres_to
from penstock.kernels.sphere_fences import SphereFences, box_around

degrees = st.tuples(st.floats(-180, 180), st.floats(-90, 90))


def haversine(one: tuple[float, float], other: tuple[float, float]) -> float:
    (x0, y0), (x1, y1) = (map(math.radians, place) for place in (one, other))
    h = math.sin((y1 - y0) / 2) ** 2
    h += math.cos(y0) * math.cos(y1) * math.sin((x1 - x0) / 2) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(h)))


def along(
    one: tuple[float, float], other: tuple[float, float], steps: int
) -> list[tuple[float, float]]:
    """Places on an edge, which is a straight line on the map."""
    shares = [step / steps for step in range(steps + 1)]
    return [(one[0] + t * (other[0] - one[0]), one[1] + t * (other[1] - one[1])) for t in shares]


@given(degrees, degrees)
def test_between_points_it_is_the_haversine(
    one: tuple[float, float], other: tuple[float, float]
) -> None:
    [found] = metres_between(*(np.array([c]) for c in (*one, *other)))
    assert found == pytest.approx(haversine(one, other), rel=1e-7, abs=0.2)


SHAPES = {
    "triangle": shapely.Polygon([(10, 50), (14, 50), (12, 53)]),
    "with a hole": shapely.box(0, 0, 4, 4).difference(shapely.box(1, 1, 3, 3)),
    "two": shapely.MultiPolygon([shapely.box(179, -5, 180, 5), shapely.box(-180, -5, -179, 5)]),
    "nested": shapely.GeometryCollection(
        [shapely.MultiPolygon([shapely.box(0, 0, 1, 1), shapely.box(9, 9, 10, 10)])]
    ),
    "far north": shapely.box(-30, 80, 30, 88),
    "half around": shapely.box(-90, 60, 90, 62),
    "around a pole": shapely.Polygon(
        [(-180, 80), (-90, 82), (0, 80), (90, 82), (180, 80), (180, 90), (-180, 90)]
    ),
    "rim": shapely.box(-180, -90, 180, -80),
    "slope": shapely.Polygon([(0, 40), (60, 75), (0, 75)]),
    "dot": shapely.Point(13.4, 52.5),
    "line": shapely.LineString([(0, 0), (20, 30)]),
}


def twin(shape: Geometry, place: tuple[float, float]) -> float:
    if shapely.intersects(shapely.Point(place), shape):
        return 0.0
    parts = shapely.get_parts(shapely.get_parts(shape))
    lines = [r for p in parts for r in shapely.get_rings(p)] or [shape]
    least = math.inf
    for line in lines:
        corners = list(line.coords)
        for one, other in zip(corners, corners[1:] or corners, strict=False):
            for _ in range(2):  # steps, and then steps around the nearest
                steps = along(one, other, 400)
                found = [haversine(place, step) for step in steps]
                nearest = found.index(min(found))
                one, other = steps[max(0, nearest - 1)], steps[min(400, nearest + 1)]
            least = min([least, *found])
    return least


@pytest.mark.parametrize("name", SHAPES)
def test_to_a_shape_it_is_that_to_the_nearest_place_of_its_edges(name: str) -> None:
    shape, draw = SHAPES[name], np.random.default_rng(3)
    x, y = shapely.centroid(shape).coords[0]
    xs = np.clip(x + draw.normal(0, 6, 40), -180, 180)
    ys = np.clip(y + draw.normal(0, 4, 40), -90, 90)
    found = metres_to(shape, xs, ys)
    for metres, place in zip(found.tolist(), zip(xs, ys, strict=True), strict=True):
        slow = twin(shape, place)
        assert metres <= slow + 1.0
        assert metres == pytest.approx(slow, rel=1e-4, abs=1.0)


@settings(max_examples=60)
@given(st.sampled_from(sorted(SHAPES)), st.floats(0, 3e6), degrees)
def test_the_box_around_a_shape_has_all_that_is_near(
    name: str, distance: float, place: tuple[float, float]
) -> None:
    box = box_around(SHAPES[name], distance)
    [metres] = metres_to(SHAPES[name], *(np.array([c]) for c in place))
    if metres <= distance:
        assert shapely.intersects(box, shapely.Point(place))
    assert shapely.box(*LON_LAT).covers(box)


def test_fences_in_metres_come_and_go_across_180_degrees_and_at_the_poles() -> None:
    fences = SphereFences(100_000)
    fences.change({1: shapely.Point(179.9, 0), 2: SHAPES["two"], 3: shapely.Point(0, 89.9)})
    fences.change({4: shapely.Point(-179.9, 0)}, [1])
    xs = np.array([179.95, -179.95, 178.5, 120.0, 0.0, math.nan, 500.0])
    ys = np.array([0.0, 0.0, 0.0, 89.5, 89.0, 0.0, 0.0])
    located = fences.locate(xs, ys)
    pairs = set(zip(located.rows.tolist(), located.fences.tolist(), strict=True))
    assert pairs == {(0, 2), (0, 4), (1, 2), (1, 4), (2, 2), (3, 3)}
    assert located.unknown.tolist() == [False] * 5 + [True] * 2
    assert len(fences) == 3


def test_thousands_of_circles_are_told_apart() -> None:
    draw = np.random.default_rng(5)
    centres = draw.uniform((0, 40), (10, 50), (2000, 2))
    fences = SphereFences(1500.0)
    fences.change({n: shapely.Point(c) for n, c in enumerate(centres.tolist())})
    xs, ys = draw.uniform((0, 40), (10, 50), (500, 2)).T
    located = fences.locate(np.ascontiguousarray(xs), np.ascontiguousarray(ys))
    found = set(zip(located.rows.tolist(), located.fences.tolist(), strict=True))
    slow = {
        (row, n)
        for row, place in enumerate(zip(xs, ys, strict=True))
        for n, centre in enumerate(centres.tolist())
        if abs(place[1] - centre[1]) < 0.1 and haversine(place, tuple(centre)) <= 1500
    }
    assert found == slow
    assert found
