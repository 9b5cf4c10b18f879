"""The ten kinds of queries of the rings benchmark, and the counts that check them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.bench.rings.kinds import KINDS, Asked, asked, in_order, same_rows
from penstock.bench.rings.on_spark import expected_rows
from penstock.bench.tuples import COLUMNS, Tuples, tables
from penstock.language import parse
from penstock.language.ast import BareSelect
from penstock.plan.bind import bind
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.compose import compose
from penstock.plan.specs import Composition
from penstock.schema import Schema

MINUTE_US = 60_000_000


def _composition(text: str) -> Composition:
    (statement,) = parse(text)
    assert isinstance(statement, BareSelect)
    catalog = Catalog.of([Stream("S", Schema.of(COLUMNS), "file", "ts")])
    return compose(bind(statement.select, catalog), lambda *_: "double", lambda _: None).composition


def test_ten_kinds_are_two_compositions_and_no_two_queries_are_the_same() -> None:
    """One selects; the other aggregates, by key or all tuples, one column or two."""
    queries = asked(1000)
    assert len({query.text for query in queries}) == 1000
    found = {_composition(query.text) for query in queries[:60]}
    assert len(KINDS) == 10
    assert len(found) == 2


def test_few_kinds_are_of_both_sorts() -> None:
    assert [bool(query.kind.aggregates) for query in asked(4, 2)] == [False, True, False, True]


def _counted(query: Asked, tuples: list[dict]) -> int:
    """One tuple after the other."""
    wanted = [t for t in tuples if query.low <= t["w"] < query.low + query.kind.width]
    if not query.kind.aggregates:
        return len(wanted)
    told_us = max(t["ts"] for t in tuples) - 10_000_000
    found = set()
    for t in wanted:
        end = t["ts"] // MINUTE_US * MINUTE_US + MINUTE_US
        for number in range(query.range_minutes):
            if end + number * MINUTE_US <= told_us:
                found.add((end + number * MINUTE_US, t["key"] if query.kind.columns else None))
    return len(found)


def test_rows_are_counted_as_one_by_one() -> None:
    tuples = Tuples(2, 3000, 3, groups=5)
    table = pa.concat_tables(tables(tuples))
    table = table.set_column(1, "ts", table.column("ts").cast(pa.int64()))
    queries = asked(40)
    counts = expected_rows(tuples, queries)
    assert counts == [_counted(query, table.to_pylist()) for query in queries]
    assert min(counts) > 0


@pytest.mark.parametrize("change", ["value", "fewer", "key"])
def test_rows_that_differ_are_seen(change: str) -> None:
    kind = KINDS[1]
    times = pa.array([60_000_000, 0, 0], pa.timestamp("us", tz="UTC"))
    rows = pa.table([times, times, [2, 1, 0], [1, 2, 3], [0.1, 0.2, 0.3]], kind.names)
    ours = in_order(kind, [rows])
    assert same_rows(ours, in_order(kind, [rows.slice(2), rows.slice(0, 2)]))
    other = {
        "value": rows.set_column(4, "s", pa.array([0.1, 0.2, 0.3 + 1e-6])),
        "fewer": rows.slice(1),
        "key": rows.set_column(2, "key", pa.array([2, 1, 3])),
    }[change]
    assert not same_rows(ours, in_order(kind, [other]))


def test_no_rows_prove_nothing() -> None:
    nothing = in_order(KINDS[0], [])
    assert not same_rows(nothing, nothing)
