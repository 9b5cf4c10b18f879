"""Real aircraft among real flight information regions: where they are, what they cross."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from tests import reference
from tests.kernels.test_fence_events import events_of
from tests.kernels.test_fences import RELATIONS, pairs, probes

from penstock.geometry import LON_LAT
from penstock.kernels.fence_events import follow_objects, no_stays, tuples_schema
from penstock.kernels.fences import Fences
from penstock.runtime.regions import read_regions

DATA = Path(__file__).parents[2] / "examples" / "data" / "aircraft"
DWELL_US = 10 * 60 * 1_000_000
END_US = 2**62


@pytest.fixture(scope="module")
def areas() -> dict[int, shapely.Geometry]:
    return dict(enumerate(read_regions(DATA / "regions.geojson").geometries))


@pytest.fixture(scope="module")
def fixes() -> pa.Table:
    return pq.read_table(DATA / "tracks.parquet")


def fences(areas: dict[int, shapely.Geometry]) -> Fences:
    found = Fences(LON_LAT)
    found.change(areas)
    return found


def test_aircraft_are_in_the_regions_that_shapely_says(
    areas: dict[int, shapely.Geometry], fixes: pa.Table
) -> None:
    xs, ys = fixes["lon"].to_numpy(), fixes["lat"].to_numpy()
    for relation in RELATIONS:
        expected = reference.locate(areas, xs.tolist(), ys.tolist(), relation)
        assert pairs(fences(areas).locate(xs, ys, relation)) == expected
    assert len({fence for _, fence in expected}) == len(areas)


def test_regions_agree_with_shapely_on_the_borders_that_they_share(
    areas: dict[int, shapely.Geometry],
) -> None:
    xs, ys = (each[::5].copy() for each in probes(list(areas.values())))
    for relation in RELATIONS:
        expected = reference.locate(areas, xs.tolist(), ys.tolist(), relation)
        assert pairs(fences(areas).locate(xs, ys, relation)) == expected


def test_crossings_of_borders_are_those_of_the_twin_however_the_stream_is_cut(
    areas: dict[int, shapely.Geometry], fixes: pa.Table
) -> None:
    located = fences(areas).locate(fixes["lon"].to_numpy(), fixes["lat"].to_numpy())
    times = fixes["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    lists = pa.ListArray.from_arrays(
        pa.array(located.offsets, pa.int32()), pa.array(located.fences)
    )
    tuples = pa.table(
        [fixes["callsign"], times, lists], schema=tuples_schema(fixes.schema.field("callsign").type)
    )
    rows = [(r["object"], r["time_us"], frozenset(r["fences"])) for r in tuples.to_pylist()]
    expected = reference.fence_events(rows, DWELL_US)
    assert {kind for _, _, kind, _, _ in expected} == {"ENTER", "LEAVE", "DWELL"}
    state, found = no_stays(pa.string()), []
    for part in np.array_split(np.arange(tuples.num_rows), 7):
        closed_us = times[int(part[-1])].as_py() if part[-1] + 1 < tuples.num_rows else END_US
        step = follow_objects(state, tuples.take(pa.array(part)), closed_us, DWELL_US)
        state, found = step.state, [*found, *events_of(step.events)]
        assert step.late == 0
    assert sorted(found) == sorted(expected)
