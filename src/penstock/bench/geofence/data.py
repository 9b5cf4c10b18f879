"""Fences and points to benchmark with: random ones, and those of the US census (TIGER)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import shapely
from shapely import Geometry

from penstock.bench.real_data import data_file
from penstock.geometry import LON_LAT, PLANE, Bounds
from penstock.kernels.jit import Doubles

VERTICES = 20


@dataclass(frozen=True, slots=True)
class Case:
    """Fences, and points in random order."""

    data: str
    fences: list[Geometry]
    more: list[Geometry]  # fences like these, to be added
    xs: Doubles
    ys: Doubles
    domain: Bounds


def random_case(count: int, points: int, seed: int) -> Case:
    """Polygons of 20 vertices that cover the unit square about once, points anywhere in it."""
    rng = np.random.default_rng(seed)
    fences = _stars(count + _more(count), count, rng)
    xs, ys = rng.random((2, points))
    return Case("random", fences[:count], fences[count:], xs, ys, PLANE)


def _more(count: int) -> int:
    return max(10, count // 100)


def _stars(count: int, density: int, rng: np.random.Generator) -> list[Geometry]:
    """Star-shaped polygons, each of an area of about 1 / density."""
    angles = np.sort(rng.random((count, VERTICES)), axis=1) * 2 * np.pi
    # 2.3: the area of such a star by the square of its radius, on average
    radii = rng.uniform(0.6, 1.2, (count, VERTICES)) / np.sqrt(2.3 * density)
    shifts = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=2)
    corners = rng.random((count, 1, 2)) + shifts
    stars = shapely.polygons(np.concatenate([corners, corners[:, :1]], axis=1))
    # a gap of more than half a turn can make edges meet
    return list(np.where(shapely.is_valid(stars), stars, shapely.convex_hull(stars)))


def zip_case(count: int, points: int, seed: int) -> Case:
    """Rectangles of ZIP areas, and landmarks again and again."""
    rng = np.random.default_rng(seed)
    boxes = np.unique(np.loadtxt(data_file("tiger/zcta510.csv"), delimiter=","), axis=0)
    taken = shapely.box(*boxes[rng.permutation(len(boxes))].T)
    landmarks = np.loadtxt(data_file("tiger/arealm.csv"), delimiter=",")
    xs, ys = landmarks[rng.integers(0, len(landmarks), points)].T.copy()
    more = taken[count : count + _more(count)]
    return Case("zip", list(taken[:count]), list(more), xs, ys, LON_LAT)


def county_case(points: int, seed: int) -> Case:
    """Counties of about 2,000 vertices each, and points spread over their bounding boxes."""
    rng = np.random.default_rng(seed)
    lines = data_file("tiger/county_small.tsv").read_text().splitlines()
    counties = shapely.from_wkt([line.partition("\t")[0] for line in lines])
    bounds = shapely.bounds(counties)[rng.integers(0, len(counties), points)]
    xs, ys = rng.uniform(bounds[:, :2], bounds[:, 2:]).T.copy()
    more = [shapely.transform(c, lambda p: p + 0.01) for c in counties[:10]]
    return Case("county", list(counties), more, xs, ys, LON_LAT)
