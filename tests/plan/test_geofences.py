"""Geofences in WHERE: what they become, which queries share them, and what is refused where."""

from __future__ import annotations

import json

import pytest
import shapely
from tests.plan.taxis import (
    AREA,
    INTERSECTS,
    NEAR,
    OTHER,
    POINT,
    TAXIS,
    TRIANGLE,
    WITHIN,
    composed,
    query,
    terms,
)

from penstock.errors import QueryError
from penstock.geometry import from_hex
from penstock.plan.codec import composition_from, dumps, slot_from
from penstock.plan.conjunctions import MAX_TERMS
from penstock.plan.explain import explain_query
from penstock.plan.leaves import IS_FALSE, IS_TRUE
from penstock.plan.specs import FenceTest, SlotSpec, Term, ValueSet
from penstock.plan.valuesets import ALL_VALUES, ONLY_NULL, compare


@pytest.mark.parametrize(
    ("where", "test"),
    [
        (f"ST_Within({POINT}, {AREA})", WITHIN),
        (f"st_within(st_point(LON, Lat), {AREA.lower()})", WITHIN),
        (f"ST_Contains({AREA}, {POINT})", WITHIN),
        (f"ST_Within(ST_Point(CAST(lon AS DOUBLE), double(lat)), {AREA})", WITHIN),
        (f"ST_Within(ST_Point(lon::double, (lat)), {AREA})", WITHIN),
        (f"(ST_Within({POINT}, ST_GeomFromText('POLYGON Z((0 0 1,4 0 1,4 4 1,0 0 1))')))", WITHIN),
        (f"ST_Within({POINT}, ST_GeomFromGeoJSON('{shapely.to_geojson(TRIANGLE)}'))", WITHIN),
        (f"ST_Intersects({POINT}, {AREA})", INTERSECTS),
        (f"ST_Intersects({AREA}, {POINT})", INTERSECTS),
        (f"ST_DWithin({POINT}, {AREA}, 20)", NEAR),
        (f"ST_DWithin({AREA}, {POINT}, 2 * 10)", NEAR),
        (f"ST_DWithin({AREA}, {POINT}, 20.0)", NEAR),
    ],
)
def test_however_it_is_written_it_is_one_test(where: str, test: FenceTest) -> None:
    assert terms(where) == (Term((), ((test, IS_TRUE),)),)


@pytest.mark.parametrize(
    ("form", "truth"),
    [
        ("{}", IS_TRUE),
        ("{} = TRUE", IS_TRUE),
        ("{0} AND {0}", IS_TRUE),
        ("NOT {}", IS_FALSE),
        ("NOT (NOT {})", IS_TRUE),
        ("{} IS NULL", ONLY_NULL),
        ("{} IS NOT NULL", ALL_VALUES),
        ("{0} OR NOT {0}", ALL_VALUES),
    ],
)
def test_a_fence_is_true_false_or_unknown(form: str, truth: ValueSet) -> None:
    assert terms(form.format(f"ST_Within({POINT}, {AREA})")) == (Term((), ((WITHIN, truth),)),)


def test_a_fence_cannot_be_true_and_false() -> None:
    fence = f"ST_Within({POINT}, {AREA})"
    assert terms(f"{fence} AND NOT {fence}") == ()
    assert terms(f"{fence} AND {fence} IS NULL") == ()


def test_fences_and_other_conditions_multiply_out() -> None:
    within, near = f"ST_Within({POINT}, {AREA})", f"ST_DWithin({POINT}, {AREA}, 20)"
    found = terms(f"id > 3 AND ({within} OR NOT {near})")
    above = (("id", compare(">=", 4)),)
    expected = {Term(above, ((WITHIN, IS_TRUE),)), Term(above, ((NEAR, IS_FALSE),))}
    assert set(found) == expected
    (both,) = terms(f"{near} AND id > 3 AND {within}")
    assert both.sets == above
    assert dict(both.fences) == {WITHIN: IS_TRUE, NEAR: IS_TRUE}
    assert both == terms(f"{within} AND {near} AND id >= 4")[0]


@pytest.mark.parametrize("stream", ["Taxis", "Given"])
def test_queries_with_other_fences_share_a_composition(stream: str) -> None:
    found = [
        composed(f"SELECT id FROM {stream} WHERE {where}").composition
        for where in (
            f"ST_Within({POINT}, {AREA})",
            f"ST_Within({POINT}, {OTHER}) AND id > 3",
            f"NOT ST_DWithin(ST_Point(lat, lon), {OTHER}, 3)",
        )
    ]
    assert len(set(found)) == 1


def test_spark_is_kept_from_evaluating_them_where_it_might() -> None:
    where = f"WHERE ST_Within({POINT}, {AREA})"
    assert composed(f"SELECT id FROM Given {where}").composition.fenced
    assert not composed("SELECT id FROM Given WHERE id > 1").composition.fenced
    windowed = f"SELECT count(*) AS n FROM Given [RANGE 1 MINUTE] {where}"
    assert not composed(windowed).composition.fenced
    in_reader = composed(f"SELECT id FROM Taxis {where}").composition
    assert in_reader == composed("SELECT id FROM Taxis WHERE id > 1").composition


def test_a_slot_with_fences_is_read_back_from_its_text() -> None:
    found = composed(f"SELECT id FROM Given WHERE id > 1 AND NOT ST_DWithin({POINT}, {AREA}, 0.1)")
    slot = SlotSpec(3, found.terms)
    assert slot_from(dumps(slot)) == slot
    assert composition_from(dumps(found.composition)) == found.composition
    old = json.loads(dumps(SlotSpec(3, (Term(()),))))
    del old["terms"][0]["fences"]
    assert slot_from(json.dumps(old)) == SlotSpec(3, (Term(()),))


def test_a_join_tests_the_points_of_each_input() -> None:
    found = composed(
        "SELECT t.id FROM Taxis t [RANGE 1 MINUTE], Stops s [RANGE 1 MINUTE] WHERE t.id = s.id"
        f" AND ST_Within(ST_Point(t.lon, t.lat), {AREA}) AND NOT ST_Within(ST_Point(x, y), {AREA})"
    )
    taxis, stops = found.inputs
    assert taxis.terms == (Term((), ((WITHIN, IS_TRUE),)),)
    (term,) = stops.terms
    assert term.fences == ((FenceTest("x", "y", "within", 0.0, WITHIN.geometry), IS_FALSE),)


def test_explain_tells_what_is_fenced() -> None:
    text = f"SELECT id FROM Taxis WHERE id > 3 AND ST_DWithin({POINT}, {AREA}, 20)"
    told = explain_query(query(text), composed(text), TAXIS, "reader", None)
    assert "selection id in [4, inf)" in told
    assert "and (lon, lat) 20 or less from Polygon of 3 corners from (0, 0) to (4, 4)\n" in told
    for form, said in (
        ("NOT {}", "not (lon, lat) within Polygon"),
        ("{} IS NULL", "unknown: (lon, lat) within Polygon"),
        ("{} IS NOT NULL", "known: (lon, lat) within Polygon"),
    ):
        text = f"SELECT id FROM Taxis WHERE {form.format(f'ST_Within({POINT}, {AREA})')}"
        told = explain_query(query(text), composed(text), TAXIS, "reader", None)
        assert f"selection {said}" in told
    only = f"SELECT id FROM Taxis WHERE ST_Within({POINT}, {AREA})"
    far = f"SELECT id FROM Taxis WHERE ST_Distance({POINT}, {AREA}) < 5"
    told = explain_query(query(far), composed(far), TAXIS, "reader", None)
    function = "st_distance(st_point(lon, lat), Polygon of 3 corners from (0, 0) to (4, 4))"
    assert f"computed  {function}: double" in told
    assert f"selection {function} in (-inf, 5" in told
    assert "every tuple" not in explain_query(query(only), composed(only), TAXIS, "reader", None)


BOWTIE = "ST_GeomFromText('POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))')"
FAR = "ST_GeomFromText('POLYGON ((0 0, 1e141 0, 1 1, 0 0))')"
DOT = "ST_GeomFromText('POINT (1 1)')"
EMPTY = "ST_GeomFromText('POLYGON EMPTY')"
EITHER_WAY = "ST_GeomFromText('POLYGON ((170 0, -170 0, -170 5, 170 5, 170 0))')"
NO_WKT = "ST_GeomFromText('POLYGO')"
NO_JSON = 'ST_GeomFromGeoJSON(\'{"type": "Polygon"}\')'


@pytest.mark.parametrize(
    ("where", "place", "message"),
    [
        (f"ST_Within({POINT}, {BOWTIE})", BOWTIE, "the geometry is invalid: Self-intersection"),
        (f"ST_Within({POINT}, {FAR})", FAR, "are out of range"),
        (f"ST_Within({POINT}, {DOT})", DOT, "a Point is no area"),
        (f"ST_Within({POINT}, {EMPTY})", EMPTY, "the geometry is empty"),
        (f"ST_Within({POINT}, {NO_WKT})", NO_WKT, "the geometry cannot be read"),
        (f"ST_Within({POINT}, {NO_JSON})", NO_JSON, "the geometry cannot be read"),
        (f"ST_Within({POINT}, plate)", "plate", "st_within does not take this"),
        (f"ST_Within(ST_Point(lon, lat + 1), {POINT})", "lat + 1", "st_point does not take this"),
        (f"ST_X({POINT}, 3) > 2", f"ST_X({POINT}, 3)", "st_x has one argument"),
        (f"ST_DistanceSphere({AREA}, {AREA}) > 2", "ST_DistanceSphere", "measures from a point"),
        (f"ST_DWithin({POINT}, ST_Point(190, 3), 9, true)", "ST_Point(190", "are out of range"),
        (f"ST_Within(ST_Point(lon), {AREA})", "ST_Point(lon)", "a point has two coordinates"),
        (f"ST_Within(ST_Point(lon, 3), {AREA})", "3", "ST_Point takes two columns"),
        (f"ST_Within(ST_Point(lon, lat + 1), {AREA})", "lat + 1", "ST_Point takes two columns"),
        (f"ST_Within(ST_Point(lon, plate), {AREA})", "plate", "column plate is of type string"),
        (f"ST_Within({POINT}, ST_GeomFromText('A', 4326))", "ST_Geom", "takes one text"),
        (f"ST_DWithin({POINT}, {EITHER_WAY}, 5, true)", EITHER_WAY, "spans more than 180 degrees"),
        (f"ST_DWithin({POINT}, {AREA}, 5, 1)", "1)", "whether it is metres is true or false"),
        (f"ST_DWithin({POINT}, {AREA}, -1)", "-1", "this is no distance"),
        (f"ST_DWithin({POINT}, {AREA}, '3')", "'3'", "this is no distance"),
        (f"ST_DWithin({POINT}, {AREA}, lon)", "lon", "this is no distance"),
        (f"ST_DWithin({POINT}, {AREA}, 1e140)", "1e140", "a distance of 1e+140 is out of range"),
        (f"ST_Within({AREA}, {POINT})", None, "st_within compares a point with an area"),
        (f"ST_Contains({POINT}, {AREA})", None, "st_contains compares a point with an area"),
        (f"ST_DWithin({POINT}, {AREA})", None, "st_dwithin compares a point with an area"),
    ],
)
def test_what_cannot_be_a_geofence_is_refused_at_its_place(
    where: str, place: str | None, message: str
) -> None:
    text = f"SELECT id FROM Taxis WHERE id > 0 AND {where}"
    with pytest.raises(QueryError, match=message.replace("+", r"\+")) as refused:
        composed(text)
    assert refused.value.hint
    assert refused.value.span is not None
    assert text[refused.value.span.start :].startswith(place or where)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (f"ST_Distance({POINT}, {BOWTIE})", "the geometry is invalid: Self-intersection"),
        (f"ST_Distance({POINT}, ST_GeomFromText('POINT (NaN 3)'))", "the geometry is invalid"),
        (f"ST_Distance({POINT}, {EMPTY})", "the geometry is empty"),
        (f"ST_Distance({POINT}, ST_Point(1e200, 3))", "are out of range"),
        (f"ST_DistanceSphere({POINT}, ST_Point(181, 3))", "are out of range"),
        (f"ST_DistanceSphere({POINT}, {EITHER_WAY})", "an edge spans more than 180 degrees"),
        (f"ST_DWithin({POINT}, ST_GeomFromText(plate), -1)", "this is no distance"),
        (f"ST_DWithin({POINT}, ST_GeomFromText(plate), 1, 1)", "st_dwithin does not take this"),
        (f"ST_GeomFromText({AREA})", "st_geomfromtext does not take this"),
    ],
)
def test_constants_that_are_no_geometry_are_refused_in_functions_too(
    call: str, message: str
) -> None:
    with pytest.raises(QueryError, match=message) as refused:
        composed(f"SELECT {call} AS found FROM Taxis")
    assert refused.value.hint
    assert refused.value.span is not None


def test_what_points_are_near_to_may_be_points_and_lines() -> None:
    for text in ("ST_Point(1, 2)", DOT, "ST_GeomFromText('LINESTRING (0 0, 5 5)')"):
        for metres, relation in (("", "near"), (", false", "near"), (", true", "sphere")):
            (term,) = terms(f"ST_DWithin({POINT}, {text}, 3{metres})")
            [(test, truth)] = term.fences
            assert (test.relation, test.distance, truth) == (relation, 3.0, IS_TRUE)


def test_an_area_in_degrees_across_180_is_split() -> None:
    across = "ST_GeomFromText('POLYGON ((170 0, 190 0, 190 5, 170 5, 170 0))')"
    (term,) = terms(f"ST_DWithin({POINT}, {across}, 3, true)")
    [(test, _)] = term.fences
    parts = shapely.union_all([shapely.box(170, 0, 180, 5), shapely.box(-180, 0, -170, 5)])
    assert from_hex(test.geometry).equals(parts)


def squares(count: int) -> str:
    areas = [shapely.box(n, 0, n + 0.5, 1).wkt for n in range(count)]
    return " OR ".join(f"ST_Within({POINT}, ST_GeomFromText('{area}'))" for area in areas)


def test_fences_are_alternatives_up_to_a_bound() -> None:
    found = terms(squares(MAX_TERMS))
    assert len({test for term in found for test, _ in term.fences}) == MAX_TERMS
    with pytest.raises(QueryError, match="which knows no geofences") as refused:
        terms(squares(MAX_TERMS + 1))
    assert "MULTIPOLYGON" in str(refused.value.hint)


def test_what_may_fail_comes_before_a_fence() -> None:
    fence = f"ST_Within({POINT}, {AREA})"
    (term,) = terms(f"1 / id AND {fence}")
    assert [test for test, _ in term.fences] == [WITHIN]
    assert len(term.sets) == 1
    with pytest.raises(QueryError, match="which knows no geofences"):
        terms(f"{fence} AND 1 / id")


def test_geofences_are_conditions_on_one_stream() -> None:
    text = (
        f"SELECT t.id FROM Taxis t [NOW], Stops s [NOW] WHERE ST_Within(ST_Point(lon, y), {AREA})"
    )
    with pytest.raises(QueryError, match="st_within cannot be used here") as refused:
        composed(text)
    assert refused.value.span is not None
    assert text[refused.value.span.start :].startswith("ST_Within(")
