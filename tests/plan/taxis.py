"""Taxis, zones and areas that tests of places speak of, and queries about them."""

from __future__ import annotations

import shapely

from penstock.geometry import to_hex
from penstock.language import parse
from penstock.language.ast import BareSelect, Expr, Literal
from penstock.plan.bind import bind
from penstock.plan.bound import BoundQuery
from penstock.plan.catalog import Catalog, RegionSet, Stream
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.specs import FenceTest, Term
from penstock.schema import Schema

TAXIS = Schema.of("id INT, lon DOUBLE, lat DECIMAL(9,6), plate STRING, ts TIMESTAMP")
CATALOG = Catalog.of(
    [
        Stream("Taxis", TAXIS, "file", "ts"),
        Stream("Given", TAXIS, "dataframe", "ts"),
        Stream("Stops", Schema.of("id INT, x FLOAT, y BIGINT, ts TIMESTAMP"), "file", "ts"),
    ],
    [
        RegionSet(
            "Zones", Schema.of("name STRING, most BIGINT, geom BINARY"), 3, False, "abc", "z.json"
        ),
        RegionSet("Plan", Schema.of("id INT, geom BINARY"), 3, True, "def", "p.json"),
    ],
)
POINT = "ST_Point(lon, lat)"
TRIANGLE = shapely.Polygon([(0, 0), (4, 0), (4, 4)])
AREA = f"ST_GeomFromText('{TRIANGLE.wkt}')"
OTHER = "ST_GeomFromText('POLYGON ((0 0, 1 0, 1 1, 0 0))')"
WITHIN = FenceTest("lon", "lat", "within", 0.0, to_hex(TRIANGLE))
INTERSECTS = FenceTest("lon", "lat", "intersects", 0.0, to_hex(TRIANGLE))
NEAR = FenceTest("lon", "lat", "near", 20.0, to_hex(TRIANGLE))


def fold(sql: str) -> Expr | None:
    assert "st_point(" not in sql.lower(), "Spark is asked about a geofence"
    return {"(2 * 10)": Literal(20)}.get(sql)


def type_of(sql: str, _: Schema) -> str:
    assert "st_point(" not in sql.lower(), "Spark is asked about a geofence"
    return "boolean"


def query(text: str) -> BoundQuery:
    (statement,) = parse(text)
    assert isinstance(statement, BareSelect)
    return bind(statement.select, CATALOG)


def composed(text: str) -> Composed:
    return compose(query(text), type_of, fold)


def terms(where: str) -> tuple[Term, ...]:
    return composed(f"SELECT id FROM Taxis WHERE {where}").terms
