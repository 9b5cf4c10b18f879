import duckdb
import numpy as np
import pytest

from penstock.bench.select.queries import types
from penstock.bench.select.speed import match_in_turn
from penstock.bench.select.workload import Workload, rows, slots, texts
from penstock.kernels.selection import build_selection, select

WORKLOAD = Workload(60, attributes=5, predicates=3, share=0.3, seed=2)


def test_texts_slots_and_bounds_say_the_same() -> None:
    batch = rows(WORKLOAD, 500, seed=1)
    stream = batch  # noqa: F841, read by name in the query
    matches = select(build_selection(slots(WORKLOAD), types(WORKLOAD.names)), batch)
    in_turn, numbers = match_in_turn(WORKLOAD, batch)
    assert numbers.size > 500
    whole = match_in_turn(WORKLOAD, batch, narrowing=False)
    assert np.array_equal(whole, (in_turn, numbers))
    found = zip(np.repeat(np.arange(500), np.diff(matches.offsets)), matches.slots, strict=True)
    assert sorted(found) == list(zip(in_turn, numbers, strict=True))
    for number, text in enumerate(texts(WORKLOAD)):
        count = duckdb.sql(f"SELECT count(*) FROM stream WHERE {text}").fetchall()[0][0]
        assert count == (numbers == number).sum()


def test_every_query_has_its_predicates_on_different_columns() -> None:
    for slot, text in zip(slots(WORKLOAD), texts(WORKLOAD), strict=True):
        (term,) = slot.terms
        assert len({name for name, _ in term.sets}) == WORKLOAD.predicates
        assert all(name in text for name, _ in term.sets)


def test_a_query_admits_about_its_share_of_each_column() -> None:
    workload = Workload(4000, predicates=1)
    _, numbers = match_in_turn(workload, rows(workload, 1000, seed=0))
    assert numbers.size / 4_000_000 == pytest.approx(workload.share, rel=0.05)


def test_a_workload_and_its_rows_are_the_same_for_the_same_seed_only() -> None:
    assert texts(WORKLOAD) == texts(WORKLOAD)
    assert texts(Workload(10, seed=1)) != texts(Workload(10, seed=2))
    assert rows(WORKLOAD, 50, 1).equals(rows(WORKLOAD, 50, 1))
    assert not rows(WORKLOAD, 50, 1).equals(rows(WORKLOAD, 50, 2))
