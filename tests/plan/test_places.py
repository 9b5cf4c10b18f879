"""Spatial functions, joins with regions and events: what queries with them become."""

from __future__ import annotations

import json

import pytest
from tests.plan.taxis import AREA, NEAR, POINT, TAXIS, WITHIN, composed, query, terms

from penstock.errors import QueryError
from penstock.plan.codec import composition_from, dumps
from penstock.plan.derived import Times, derived_times
from penstock.plan.explain import explain_query


def test_functions_are_columns_that_the_stage_computes() -> None:
    far = f"ST_Distance({POINT}, ST_Point(1, 2))"
    found = composed(
        f"SELECT id, {far} AS d FROM Taxis WHERE {far} < 5 AND ST_Within({POINT}, {AREA})"
    )
    [value] = found.composition.spatial
    assert (value.type, value.columns) == ("double", ("lat", "lon"))
    assert json.loads(value.call)[0] == "st_distance"
    assert found.composition.shipped == ("id", value.name)
    [term] = found.terms
    assert [name for name, _ in term.sets] == [value.name]
    assert [test for test, _ in term.fences] == [WITHIN]
    assert not found.composition.placed_first
    assert found.composition.fenced
    assert composition_from(dumps(found.composition)) == found.composition
    same = composed(f"SELECT {far} AS e, id FROM Taxis")
    assert same.composition == found.composition


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"SELECT id FROM Taxis WHERE ST_Within({POINT}, ST_GeomFromText(plate))", ["st_within"]),
        (f"SELECT id FROM Taxis WHERE ST_Within({POINT}, {AREA}) = (id > 3)", ["st_within"]),
        (f"SELECT id FROM Taxis WHERE coalesce(ST_X({POINT}), 0) > 1", ["st_x"]),
        (f"SELECT ST_Within({POINT}, {AREA}) AS inside FROM Taxis", ["st_within"]),
        (
            f"SELECT max(ST_X({POINT})) AS x, ST_AsText({POINT}) AS t FROM Taxis [NOW] GROUP BY t"
            f" HAVING max(ST_Y({POINT})) > 3",
            ["st_astext", "st_x", "st_y"],
        ),
        (f"SELECT id FROM Taxis WHERE ST_DWithin({POINT}, ST_Point(1, 2), 3)", []),
        (f"SELECT id FROM Taxis WHERE ST_DWithin({POINT}, ST_Point(1, 2), 3, true)", []),
        (f"SELECT id FROM Taxis WHERE ST_Within({POINT}, {AREA}) IS NULL", []),
    ],
)
def test_what_is_no_geofence_of_where_is_a_function(text: str, names: list[str]) -> None:
    found = composed(text).composition
    assert [value.name.partition("#")[0] for value in found.spatial] == names


def test_metres_are_asked_for_by_a_flag() -> None:
    dot = "ST_GeomFromText('POINT (1 2)')"
    for area in (dot, "ST_Point(1, 2)"):
        [term] = terms(f"ST_DWithin({area}, {POINT}, 500, TRUE)")
        [(test, _)] = term.fences
        assert (test.relation, test.distance) == ("sphere", 500.0)
    [term] = terms(f"ST_DWithin({POINT}, {AREA}, 20, false)")
    assert [test for test, _ in term.fences] == [NEAR]


JOINED = "FROM Taxis t, Zones z WHERE ST_Within(ST_Point(t.lon, lat), z.geom)"


def test_a_geofence_with_the_area_of_a_region_is_a_join() -> None:
    found = composed(f"SELECT z.name, id {JOINED} AND most > 3 AND t.id = 7").composition
    join = found.regions
    assert join is not None
    assert (join.regions, join.digest, join.x, join.y) == ("Zones", "abc", "lon", "lat")
    assert (join.relation, join.distance, join.planar) == ("within", 0.0, False)
    assert found.shipped == ("id", "Zones:name")
    assert not found.placed_first
    other = composed(
        "SELECT t.id, name FROM Taxis t JOIN zones ON ST_Contains(zones.geom, ST_Point(lon, lat))"
    )
    assert other.composition == found
    assert composition_from(dumps(found)) == found
    derived = composed(f"SELECT z.name, id {JOINED} AND id > most").composition
    assert derived.placed_first
    near = "FROM Taxis, Zones z WHERE ST_DWithin(z.geom, ST_Point(lon, lat), 50, true)"
    metres = composed(f"SELECT id {near}").composition.regions
    assert metres is not None
    assert (metres.relation, metres.distance) == ("sphere", 50.0)
    near = "FROM Taxis t, Plan p WHERE ST_DWithin(ST_Point(t.lon, t.lat), p.geom, 50)"
    planar = composed(f"SELECT t.id {near}").composition.regions
    assert planar is not None
    assert (planar.relation, planar.distance, planar.planar) == ("near", 50.0, True)


def test_a_star_has_the_attributes_but_not_the_areas() -> None:
    names = [item.name for item in query("SELECT t.id AS i, z.* " + JOINED).items]
    assert names == ["i", "name", "most"]
    assert [i.name for i in query("SELECT * " + JOINED).items][-3:] == ["ts", "name", "most"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT name FROM Zones", "Zones are regions, not a stream"),
        ("SELECT id FROM Taxis t, Zones z WHERE id > 3", "nothing says how Zones are joined"),
        (f"SELECT id {JOINED} OR id > 3", "nothing says how Zones are joined"),
        ("SELECT id FROM Taxis t, Zones z, Stops s WHERE id > 3", "with one stream only"),
        ("SELECT id FROM Taxis t, Zones [NOW]", "are regions and have no window"),
        ("SELECT t.nme " + JOINED, "column nme not found in Taxis or Zones"),
        ("SELECT z.id " + JOINED, "column id not found"),
        (
            "SELECT t.id FROM Taxis t, Zones z WHERE ST_Within(ST_Point(lon, most), z.geom)",
            "Zones:most is no column of the stream",
        ),
        (
            "SELECT lon FROM Taxis, Plan p WHERE ST_DWithin(ST_Point(lon, lat), p.geom, 5, true)",
            "coordinates of Plan are no degrees",
        ),
    ],
)
def test_what_is_no_join_with_regions_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as refused:
        query(text)
    assert refused.value.hint


EVENTS = "EVENTS OF Taxis BY id AT ST_Point(lon, lat) IN Zones"


def test_events_share_what_follows_objects_whatever_is_asked_of_them() -> None:
    one = composed(f"SELECT id, name FROM {EVENTS} [DWELL 5 MINUTES] WHERE event = 'DWELL'")
    other = composed(f"SELECT e.name, ID FROM {EVENTS} [DWELL 300 SECONDS] e WHERE most > 3")
    assert one.composition == other.composition
    assert one.terms != other.terms
    following = one.composition.following
    assert following is not None
    assert (following.by, following.dwell_us) == ("id", 300_000_000)
    assert [name for name, _ in following.columns] == [
        "id", "event", "time", "stayed_ms", "name", "most",
    ]  # fmt: skip
    assert (one.composition.kind, one.composition.event_time) == ("events", "ts")
    assert composition_from(dumps(one.composition)) == one.composition
    assert composed(f"SELECT id, name FROM {EVENTS}").composition != one.composition
    shouted = EVENTS.replace("lon, lat", "LON, Taxis.Lat").replace("BY id", "BY ID")
    assert composed(f"SELECT id, name FROM {shouted} [DWELL 5 MINUTES]").composition == (
        one.composition
    )
    ratio = composed(f"SELECT id, name FROM {EVENTS} [DWELL 5 MINUTES DRATIO 1%]").composition
    assert ratio.drop_ratio == 0.01
    shown = explain_query(query(f"SELECT id FROM {EVENTS}"), one, TAXIS, "reader", None)
    assert "events    ENTER, LEAVE, DWELL after 5 minutes of each id at (lon, lat)" in shown


def test_a_stream_of_events_has_their_time() -> None:
    found = derived_times(query(f"SELECT id, event, time AS at FROM {EVENTS}"))
    assert found == Times("at", None, 0)
    assert derived_times(query(f"SELECT id, event FROM {EVENTS}")) == Times(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"SELECT count(*) AS n FROM {EVENTS}", "events cannot be aggregated"),
        (f"SELECT name FROM {EVENTS}, Zones z", "events cannot be joined"),
        (f"SELECT name FROM {EVENTS} WHERE upper(name) = 'A'", "more than can be asked of events"),
        (f"SELECT lon FROM {EVENTS}", "column lon not found in Taxis"),
        (f"SELECT id FROM {EVENTS}".replace("BY id", "BY it"), "BY it is not a column"),
        (f"SELECT id FROM {EVENTS}".replace("lat)", "latt)"), "column latt not found in Taxis"),
        (f"SELECT id FROM {EVENTS}".replace("ST_Point", "point"), "this is no place"),
        (f"SELECT id FROM {EVENTS}".replace("Zones", "Taxis"), "regions Taxis not found"),
        (f"SELECT id FROM {EVENTS}".replace("lat)", "plate)"), "column plate is of type string"),
        (f"SELECT id FROM {EVENTS}".replace("OF Taxis", "OF Zones"), "are regions, not a stream"),
    ],
)
def test_what_cannot_be_asked_of_events_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as refused:
        composed(text)
    assert refused.value.hint
