"""Fences within a distance, against shapely."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from shapely import Geometry
from tests.kernels.test_fences import moved, pairs, polygons, probes

from penstock.errors import PenstockError
from penstock.geometry import LON_LAT, PLANE, first_fault
from penstock.kernels.near_fences import NearFences

corners = st.tuples(st.integers(-4, 4), st.integers(-4, 4))
dots = st.builds(shapely.Point, corners) | st.builds(
    shapely.MultiPoint, st.lists(corners, min_size=1, max_size=3)
)
lines = st.builds(shapely.LineString, st.lists(corners, min_size=2, max_size=4, unique=True))


@given(
    st.lists(polygons() | dots | lines, min_size=1, max_size=3),
    st.sampled_from([(1.0, 0.0), (0.1, 0.3), (1e-9, 1e3), (1 / 3, 1e9)]),
    st.sampled_from([0.0, 1e-12, 0.01, 0.5, 1.0, 2.0, 7.0]),
)
def test_points_are_near_if_shapely_says_so(
    drawn: list[Geometry], view: tuple[float, float], distance: float
) -> None:
    chosen = [g for g in (moved(g, view) for g in drawn) if not first_fault([g], PLANE, False)]
    geometries = dict(enumerate(chosen))
    if not geometries:
        return
    distance *= view[0]
    found = NearFences(distance, PLANE)
    found.change(geometries)
    xs, ys = probes(chosen)
    # points at the distance itself, along both axes
    xs, ys = np.concatenate([xs, xs + distance, xs]), np.concatenate([ys, ys, ys - distance])
    expected = [
        (row, number)
        for row, point in enumerate(shapely.points(xs, ys))
        for number, geometry in geometries.items()
        if shapely.dwithin(geometry, point, distance)
    ]
    assert pairs(found.locate(xs, ys)) == expected


def test_fences_come_and_go() -> None:
    found = NearFences(1.0, LON_LAT)
    found.change({1: shapely.box(0, 0, 1, 1), 2: shapely.box(5, 5, 6, 6)})
    found.change({1: shapely.box(5, 0, 6, 1)}, [2])
    assert len(found) == 1
    located = found.locate(np.array([0.5, 4.5, 5.5, 200.0]), np.array([0.5, 0.5, 5.5, 0.5]))
    assert pairs(located) == [(1, 1)]
    assert located.unknown.tolist() == [False, False, False, True]


def test_a_distance_is_a_number_from_zero_on() -> None:
    for distance in (-1.0, float("nan"), float("inf")):
        with pytest.raises(PenstockError, match="a distance of"):
            NearFences(distance)
