"""EXPLAIN of joins: whole texts, since what a reader sees is the text."""

from __future__ import annotations

import pytest
from tests.plan.streams import bound

from penstock.plan.compose import compose
from penstock.plan.explain_join import JoinCosts, explain_join
from penstock.plan.explain_ring import Sharing
from penstock.schema import Schema

COSTS = JoinCosts(0.5, assumed=True, with_bits=3.5, without_bits=3.5)


def explained(text: str, costs: JoinCosts = COSTS, sharing: Sharing | None = None) -> str:
    [query] = bound(text)
    composed = compose(query, lambda sql, _: "string", lambda _: None)
    places = ["reader" if not i.composition.derived else "stage" for i in composed.inputs]
    return explain_join(query, composed, Schema.of("id INT"), places, costs, sharing)


M_WAY = """\
stream    Sensors A (file), RANGE 10 minutes on ts
stage     in the source's reader
selection id in (-inf, 4]
stream    Doors (file), RANGE 5 minutes on at
stage     in the source's reader
selection id in (-inf, 4]
          and open in [1, inf)
stream    Tagged C (file), unbounded on ts
stage     in the source's reader
selection id in (-inf, 4]
join      3-way, one look at a bit vector tells whether all streams match
          on A.id = Doors.id = C.id (int)
keeps     A: temp
          Doors: keys and times only
          C: tags
residual  A.temp < size(C.tags)
costs     per tuple 3.5 steps with bit vectors, 3.5 without, at selectivity 0.5 (assumed)
outputs   id int
computes  A.id, A.temp of Sensors, Doors, Tagged
ring      a new one: no running query has this composition
note      Tagged has no RANGE: its join state grows without bound"""


def test_a_join_with_a_common_key() -> None:
    text = """
        SELECT A.id, A.temp FROM Sensors A [RANGE 10 MINUTES], Doors [RANGE 5 MINUTES], Tagged C
        WHERE A.id = Doors.id AND Doors.id = C.id AND C.id < 5 AND open AND temp < size(C.tags)
    """
    assert explained(text) == M_WAY


BY_SPARK = """\
stream    Doors A (file), RANGE 1 second on at
stage     in the source's reader
selection every tuple
stream    Doors B (file), RANGE 1 second on at
stage     in the source's reader
selection every tuple
stream    Sensors C (file), RANGE 1 minute on ts
stage     in the source's reader
selection every tuple
join      a chain of Spark's own joins: no key that all streams share
          A.id = B.id leaves out C
          B.open = C.ok leaves out A
          1. B, at most 1 second older and at most 1 second newer than A
             where A.id = B.id
          2. C, at most 1 minute older and at most 1 second newer than the latest of A, B
             where B.open = C.ok
             where A.id < C.id
          what a step finds is kept for the next one
          for one operator instead, let equalities connect a column of every stream
keeps     A: id
          B: id, open
          C: id, ok
outputs   id int
computes  A.id of Doors, Doors, Sensors
ring      join-7; queries in it: 2"""


def test_a_join_without_a_common_key() -> None:
    text = """
        SELECT A.id FROM Doors A [RANGE 1 SECOND], Doors B [RANGE 1 SECOND],
        Sensors C [RANGE 1 MINUTE] WHERE A.id = B.id AND B.open = C.ok AND A.id < C.id
    """
    assert explained(text, sharing=Sharing("join-7", 2, {})) == BY_SPARK


AGGREGATED = """\
stream    Sensors (file), RANGE 1 minute on ts
stage     in mapInArrow, after Spark computed the derived attributes
derived   upper(`room`): string; only queries with it share the ring
selection every tuple
disorder  quantile: at most 1% of the tuples may come too late; the delay adapts
stream    Words W (file), RANGE 5 minutes on at
stage     in the source's reader
selection every tuple
disorder  max: windows close behind the largest delay seen
join      2-way, one look at a bit vector tells whether all streams match
          on Sensors.id = W.n (bigint) and upper(Sensors.room) = W.word (string)
keeps     keys and times only
costs     per tuple 2.25 steps with bit vectors, 3.12 without, at selectivity 0.125 (seen)
window    RANGE 5 minutes SLIDE 1 minute: Spark aggregates the combinations of each window
outputs   id int
having    count(*) > 1
computes  W.word, count(*) of Sensors, Words by W.word; HAVING with the same constants
ring      a new one: no running query has this composition"""


def test_an_aggregated_join() -> None:
    text = """
        SELECT word, count(*) AS n FROM Sensors [RANGE 1 MINUTE DRATIO 1%], Words W
        [RANGE 5 MINUTES] WHERE upper(room) = word AND id = n GROUP BY word HAVING count(*) > 1
    """
    assert explained(text, JoinCosts(0.125, False, 2.25, 3.12)) == AGGREGATED


@pytest.mark.parametrize("where", ["", "WHERE A.id < B.id", "WHERE A.id <=> B.id"])
def test_without_equalities_one_task_does_all(where: str) -> None:
    text = explained(f"SELECT A.id FROM Doors A [NOW], Doors B [UNBOUNDED] {where}")
    assert "leaves out" not in text
    assert "1. B, any time older and at most 1 millisecond newer than A\n" in text
    assert "no equality: one task compares all with all" in text
    assert "costs" not in text


def test_an_equality_of_different_types_is_no_key() -> None:
    text = explained("SELECT A.id FROM Sensors A [NOW], Words B [NOW] WHERE A.id = B.word")
    assert "A.id = B.word compares columns of different types" in text
    assert "one task" not in text
