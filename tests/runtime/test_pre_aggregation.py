"""Slots that give a ring's roles to other columns, folded together: each has what it has alone."""

from __future__ import annotations

import datetime as dt
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.selection import Matches, matches_of
from penstock.language import parse
from penstock.language.ast import BareSelect
from penstock.plan.bind import bind
from penstock.plan.catalog import Catalog, Stream
from penstock.plan.compose import compose
from penstock.plan.composed import Composed
from penstock.plan.result_columns import places_needed
from penstock.plan.specs import SlotSpec
from penstock.runtime.pre_aggregation import PreAggregation
from penstock.schema import Schema

COLUMNS = "id INT, n BIGINT, room STRING, day DATE, ok BOOLEAN, temp DOUBLE, f FLOAT, ts TIMESTAMP"
STREAM = Stream("S", Schema.of(COLUMNS), "file", "ts")
TEXTS = (
    "SELECT count(*) AS c, avg(temp) AS a FROM S [RANGE 2 SECONDS SLIDE 1 SECOND]",
    "SELECT room, sum(n) AS s, max(n) AS m FROM S [RANGE 3 SECONDS] GROUP BY room",
    "SELECT id, sum(n) AS s, min(f) AS low FROM S [RANGE 2 SECONDS] GROUP BY id",
    "SELECT day, avg(id) AS a, sum(f) AS s FROM S [RANGE 1 SECOND] GROUP BY day",
    "SELECT room, max(day) AS d, count(temp) AS c FROM S [RANGE 2 SECONDS] GROUP BY ok, room",
    "SELECT ok FROM S [RANGE 2 SECONDS] GROUP BY ok",
)


def composed(text: str) -> Composed:
    (statement,) = parse(text)
    assert isinstance(statement, BareSelect)
    query = bind(statement.select, Catalog.of([STREAM]))
    return compose(query, lambda sql, _: sql, lambda _: None)


QUERIES = [composed(text) for text in TEXTS]


def slot(number: int, query: Composed) -> SlotSpec:
    shows = places_needed(query.composition, query.columns)
    return SlotSpec(number, (), query.window, shows=shows, roles=query.roles)


rows = st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-2, 2),
        "n": st.none() | st.integers(-3, 3) | st.sampled_from((2**63 - 1, -(2**63))),
        "room": st.none() | st.sampled_from(("", "a", "b")),
        "day": st.none() | st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 2)),
        "ok": st.none() | st.booleans(),
        "temp": st.none() | st.sampled_from((0.0, -0.0, 1.5, float("inf"))),
        "f": st.none() | st.sampled_from((0.5, -2.25)),
        "ts": st.integers(-4_000_000, 4_000_000),
    }
)


def folded(batch: pa.RecordBatch, matched: list[list[int]], slots: list[SlotSpec], closed: int):
    folding = PreAggregation(QUERIES[0].composition, {f.name: f.type for f in STREAM.schema.fields})
    folding.change(slots)
    offsets = np.cumsum([0, *map(len, matched)], dtype=np.int64)
    matches = Matches(len(slots), offsets, np.array([*chain(*matched)], np.int32), 0)
    ts_us = batch.column("ts").cast(pa.int64()).to_numpy()
    return folding.rows(batch, matches, ts_us, closed, np.ones(batch.num_rows, np.bool_))


def in_any_order(rows: pa.RecordBatch) -> list[str]:
    return sorted(repr(row) for row in rows.to_pylist())


def late_pairs(late: Any, slots: list[SlotSpec]) -> set[tuple[int, ...]]:
    numbers = [slots[position].slot for position in late.positions.tolist()]
    return set(zip(late.rows.tolist(), numbers, late.missed.tolist(), late.lost, strict=True))


def test_queries_of_any_columns_have_one_composition() -> None:
    assert len({query.composition for query in QUERIES}) == 1


@given(
    st.lists(st.tuples(rows, st.sets(st.integers(0, 7))), max_size=12),
    st.lists(st.sampled_from(range(len(QUERIES))), max_size=6),
    st.integers(-3_000_000, 3_000_000),
)
def test_each_slot_has_what_it_has_alone(given_rows, chosen, closed) -> None:
    slots = [slot(100 + number, QUERIES[which]) for number, which in enumerate(chosen)]
    batch = pa.RecordBatch.from_pylist([row for row, _ in given_rows], STREAM.schema.arrow())
    matched = [sorted(s for s in of if s < len(slots)) for _, of in given_rows]
    together = folded(batch, matched, slots, closed)
    expected, late = [], set()
    for position, one in enumerate(slots):
        own = folded(batch, [[0] if position in of else [] for of in matched], [one], closed)
        expected += in_any_order(own.batch)
        late |= late_pairs(own.late, [one])
    # a sum that might leave 64 bits keeps all slots of its columns from being folded at all
    if not any(row["n"] is not None and abs(row["n"]) > 3 for row, _ in given_rows):
        assert in_any_order(together.batch) == sorted(expected)
    assert late_pairs(together.late, slots) == late
    assert together.batch.schema.names[:4] == ["__slot", "__end_us", "__k0", "__k1"]


@given(st.lists(st.sets(st.integers(0, 5))), st.permutations(range(6)), st.integers(0, 6))
def test_matches_of_some_slots(rows, order, count) -> None:
    chosen = order[:count]
    lists = [sorted(row) for row in rows]
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    matches = Matches(6, offsets, np.array([*chain(*lists)], np.int32), 0)
    found = matches_of(matches, np.array(chosen, np.int64))
    own = [[chosen.index(s) for s in row if s in chosen] for row in lists]
    assert found.slot_count == count
    assert [
        found.slots[a:b].tolist() for a, b in zip(found.offsets, found.offsets[1:], strict=False)
    ] == own


def test_sums_beyond_64_bits_are_kept_in_halves() -> None:
    query = QUERIES[1]
    row = {"room": "a", "n": 2**63 - 1, "ts": 1_000_000}
    batch = pa.RecordBatch.from_pylist([row, row, row | {"n": -5}], STREAM.schema.arrow())
    found = folded(batch, [[0], [0], [0]], [slot(1, query)], -(2**62)).batch
    high, low = (
        sum(found.column(partial.name).to_pylist())
        for half in ("asked", "low")
        for partial in query.composition.partials
        if partial.half == half
    )
    assert high * 2**32 + low == 2 * (2**63 - 1) - 5
