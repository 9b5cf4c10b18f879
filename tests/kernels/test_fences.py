"""Fences against shapely, point by point: nasty polygons, scales, changes, real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from shapely import Geometry
from tests import reference

from penstock.errors import PenstockError
from penstock.geometry import LON_LAT, PLANE, first_fault
from penstock.kernels import fence_grid
from penstock.kernels.fences import Fences, Located, Relation

RELATIONS: tuple[Relation, ...] = ("within", "intersects")

lattice = st.integers(-4, 4)
# scales and shifts under which products lose bits, underflow or overflow
views = st.sampled_from(
    [
        (1.0, 0.0),
        (0.1, 0.3),
        (1e-160, 0.0),
        (1e-310, 0.0),
        (1e-9, 1e3),
        (1e120, 0.0),
        (2e139, 0.0),
        (1 / 3, 1e9),
    ]
)


def areas_of(geometry: Geometry) -> list[Geometry]:
    return [p for p in shapely.get_parts(geometry) if p.geom_type == "Polygon" and p.area > 0]


@st.composite
def polygons(draw: st.DrawFn) -> Geometry:
    """Unions and differences of shapes on the lattice: holes, slivers, touching parts."""
    found: Geometry = shapely.Polygon()
    for _ in range(draw(st.integers(1, 5))):
        corners = draw(st.lists(st.tuples(lattice, lattice), min_size=3, max_size=6))
        piece = shapely.union_all(areas_of(shapely.make_valid(shapely.Polygon(corners))))
        if draw(st.booleans()) and not piece.is_empty:
            piece = shapely.box(*shapely.bounds(piece))
        found = shapely.difference(found, piece) if draw(st.booleans()) else found.union(piece)
        found = shapely.union_all(areas_of(found))
    return shapely.MultiPolygon(areas_of(found)) if draw(st.booleans()) else found


def moved(geometry: Geometry, view: tuple[float, float]) -> Geometry:
    scale, shift = view
    return shapely.transform(geometry, lambda points: points * scale + shift)


def usable(geometry: Geometry) -> bool:
    return first_fault([geometry], PLANE) is None


def probes(geometries: list[Geometry]) -> tuple[np.ndarray, np.ndarray]:
    """Vertices, middles of edges, their neighbours among doubles, and mixtures of coordinates."""
    vertices = np.concatenate([shapely.get_coordinates(g) for g in geometries])
    points = np.concatenate([vertices, 0.5 * vertices[1:] + 0.5 * vertices[:-1]])
    near = [np.nextafter(points, side * np.inf) for side in (-1, 1)]
    mixed = np.stack([points[:, 0], np.roll(points[:, 1], 1)], axis=1)
    every = np.concatenate([points, *near, mixed])
    return every[:, 0].copy(), every[:, 1].copy()


def pairs(located: Located) -> list[tuple[int, int]]:
    return sorted(zip(located.rows.tolist(), located.fences.tolist(), strict=True))


def assert_as_shapely(found: Fences, geometries: dict[int, Geometry]) -> None:
    xs, ys = probes(list(geometries.values()))
    for relation in RELATIONS:
        expected = reference.locate(geometries, xs.tolist(), ys.tolist(), relation)
        assert pairs(found.locate(xs, ys, relation)) == expected


@given(st.lists(polygons(), min_size=1, max_size=4), views)
def test_points_at_edges_and_corners_are_where_shapely_says(
    drawn: list[Geometry], view: tuple[float, float]
) -> None:
    chosen = [geometry for geometry in (moved(g, view) for g in drawn) if usable(geometry)]
    geometries = dict(enumerate(chosen))
    if geometries:
        found = Fences(PLANE)
        found.change(geometries)
        assert_as_shapely(found, geometries)


@given(st.data())
def test_any_sequence_of_changes_answers_like_the_fences_that_are_left(data: st.DataObject) -> None:
    found, left = Fences(PLANE), dict[int, Geometry]()
    for _ in range(data.draw(st.integers(1, 6))):
        drawn = data.draw(st.dictionaries(st.integers(0, 5), polygons(), max_size=3))
        view = data.draw(st.sampled_from([(1.0, 0.0), (3.0, 5.0), (0.25, -9.0)]))
        added = {n: m for n, g in drawn.items() if usable(m := moved(g, view))}
        dropped = data.draw(st.sets(st.integers(0, 5), max_size=3))
        found.change(added, dropped)
        left = {n: g for n, g in left.items() if n not in dropped} | added
        assert len(found) == len(left)
        if left:
            assert_as_shapely(found, left)


def star(x: float, y: float, radius: float, points: int, seed: int) -> Geometry:
    rng = np.random.default_rng(seed)
    angles = np.sort(rng.random(points)) * 2 * np.pi
    radii = radius * rng.uniform(0.3, 1, points)
    return shapely.Polygon(np.c_[x + radii * np.cos(angles), y + radii * np.sin(angles)]).buffer(0)


def stars(count: int, points: int, seed: int) -> dict[int, Geometry]:
    rng = np.random.default_rng(seed)
    places = rng.random((count, 2)).tolist()
    made = {i: star(x, y, 0.1, points, seed + i) for i, (x, y) in enumerate(places)}
    return {i: g for i, g in made.items() if usable(g)}


def expected_pairs(
    geometries: dict[int, Geometry],
    xs: np.ndarray,
    ys: np.ndarray,
    relation: Relation = "intersects",
) -> np.ndarray:
    tree, numbers = shapely.STRtree(list(geometries.values())), np.array(list(geometries))
    rows, places = tree.query(shapely.points(xs, ys), predicate=relation)
    return np.sort(rows * 10**6 + numbers[places])


def coded(located: Located) -> np.ndarray:
    return np.sort(located.rows * 10**6 + located.fences)


def test_cells_are_split_deeply_and_all_points_are_right() -> None:
    geometries = stars(40, 700, seed=1)
    xs, ys = np.random.default_rng(2).random((2, 30_000))
    found = Fences(PLANE)
    found.change(geometries)
    assert found._grid.used[fence_grid.NODES] > 200
    assert np.array_equal(
        coded(found.locate(xs, ys, "intersects")), expected_pairs(geometries, xs, ys)
    )


def test_fences_come_and_go_one_by_one_and_memory_follows() -> None:
    geometries = stars(300, 30, seed=3)
    xs, ys = np.random.default_rng(4).random((2, 5000))
    found = Fences(PLANE)
    found.change(geometries)
    full = found.nbytes
    for round_ in range(3):
        for number in geometries:
            found.change({number: geometries[number]})
        assert found.nbytes < 3 * full, round_
    expected = expected_pairs(geometries, xs, ys)
    assert np.array_equal(coded(found.locate(xs, ys, "intersects")), expected)
    kept = {n: g for n, g in geometries.items() if n % 10 == 0}
    for number in geometries.keys() - kept.keys():
        found.change({}, [number])
    assert found.nbytes < full / 2
    expected = expected_pairs(kept, xs, ys)
    assert np.array_equal(coded(found.locate(xs, ys, "intersects")), expected)


def test_many_fences_with_the_same_boundary_stay_within_the_memory_bound() -> None:
    one = star(0.5, 0.5, 0.4, 200, seed=5)
    found = Fences(PLANE)
    found.change(dict.fromkeys(range(100), one))
    edges = 100 * (shapely.get_num_coordinates(one) - 1)
    assert found._grid.used[fence_grid.LIVE] <= 2 * (8 * edges + 2**18)
    located = found.locate(np.array([0.5, 0.99]), np.array([0.5, 0.99]))
    assert np.diff(located.offsets).tolist() == [100, 0]


def test_coordinates_that_are_no_place_are_unknown_and_in_no_fence() -> None:
    found = Fences(LON_LAT)
    found.change({7: shapely.box(-180, -90, 180, 90)})
    xs = np.array([0.0, np.nan, 0.0, np.inf, -np.inf, 180.0, 180.1, 0.0, -200.0])
    ys = np.array([0.0, 0.0, np.nan, 0.0, 0.0, 90.0, 0.0, -90.5, 0.0])
    located = found.locate(xs, ys, "intersects")
    assert located.unknown.tolist() == [False, True, True, True, True, False, True, True, True]
    assert pairs(located) == [(0, 7), (5, 7)]


def test_without_fences_no_point_is_in_any() -> None:
    found = Fences(LON_LAT)
    assert pairs(found.locate(np.array([1.0, np.nan]), np.array([1.0, 1.0]))) == []
    found.change({1: shapely.box(0, 0, 1, 1)})
    found.change({}, [1, 2])
    assert pairs(found.locate(np.array([0.5]), np.array([0.5]))) == []


@pytest.mark.parametrize(
    ("wkt", "message"),
    [
        ("POLYGON EMPTY", "fence 3: the geometry is empty"),
        ("LINESTRING (0 0, 1 1)", "a LineString is no area"),
        ("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))", "invalid: Self-intersection"),
        ("POLYGON ((0 0, 200 0, 0 9, 0 0))", r"from \(0, 0\) to \(200, 9\) are out of range"),
    ],
)
def test_what_cannot_be_a_fence_is_refused_and_changes_nothing(wkt: str, message: str) -> None:
    found = Fences(LON_LAT)
    found.change({3: shapely.box(0, 0, 1, 1)})
    with pytest.raises(PenstockError, match=message):
        found.change({3: shapely.from_wkt(wkt)}, [3])
    assert pairs(found.locate(np.array([0.5]), np.array([0.5]))) == [(0, 3)]


def landmarks(shared_data: Path) -> tuple[np.ndarray, np.ndarray]:
    points = np.loadtxt(shared_data / "tiger" / "arealm.csv", delimiter=",")
    return points[:, 0].copy(), points[:, 1].copy()


def test_landmarks_in_zip_areas_are_those_of_shapely(shared_data: Path) -> None:
    boxes = np.loadtxt(shared_data / "tiger" / "zcta510.csv", delimiter=",")
    geometries = dict(enumerate(shapely.box(*boxes.T)))
    xs, ys = landmarks(shared_data)
    # corners of the areas are on edges, and often on those of a neighbour
    xs, ys = np.concatenate([xs, boxes[:, 0]]), np.concatenate([ys, boxes[:, 3]])
    found = Fences(LON_LAT)
    found.change(geometries)
    for relation in RELATIONS:
        expected = expected_pairs(geometries, xs, ys, relation)
        assert np.array_equal(coded(found.locate(xs, ys, relation)), expected)


def test_points_in_counties_are_those_of_shapely(shared_data: Path) -> None:
    lines = (shared_data / "tiger" / "county_small.tsv").read_text().splitlines()
    geometries = dict(enumerate(shapely.from_wkt([line.split("\t")[0] for line in lines])))
    rng = np.random.default_rng(6)
    inside = [rng.uniform(b[:2], b[2:], (300, 2)) for b in map(shapely.bounds, geometries.values())]
    vertices = shapely.get_coordinates(list(geometries.values()))[::7]
    points = np.concatenate([*inside, vertices, (vertices[1:] + vertices[:-1]) / 2])
    xs, ys = points[:, 0].copy(), points[:, 1].copy()
    found = Fences(LON_LAT)
    found.change(geometries)
    for relation in RELATIONS:
        expected = expected_pairs(geometries, xs, ys, relation)
        assert np.array_equal(coded(found.locate(xs, ys, relation)), expected)


def comb(teeth: int, off: float) -> Geometry:
    """Long teeth side by side along the diagonal: wherever a cell is cut, edges run through it."""
    across = np.linspace(-4, 4, 2 * teeth + 1) + off
    along = np.tile([5.0, 95.0], teeth + 1)[: across.size]
    across, along = np.append(across, [4 + off, off - 4]), np.append(along, [4, 4])
    return shapely.Polygon(np.stack([along - across / 2, along + across / 2], axis=1))


def test_no_fence_is_missing_where_cells_cannot_be_made_small() -> None:
    draw = np.random.default_rng(1)
    combs = [comb(400, off) for off in draw.uniform(-1, 1, 100)]
    polygons = [*combs, shapely.box(0, 0, 100, 100), shapely.box(60, 10, 100, 40)]
    fences = Fences(PLANE)
    fences.change(dict(enumerate(polygons)))
    xs = draw.uniform(0, 100, 300)
    ys = xs + draw.uniform(-5, 5, xs.size)
    located = fences.locate(xs, ys)
    rows, numbers = shapely.STRtree(polygons).query(shapely.points(xs, ys), predicate="within")
    expected = set(zip(rows.tolist(), numbers.tolist(), strict=True))
    assert set(zip(located.rows.tolist(), located.fences.tolist(), strict=True)) == expected
