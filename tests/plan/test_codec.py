"""Specs as text: they come back as they were, also those that know nothing of newer fields."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.plan.catalog import Stream
from penstock.plan.codec import (
    attribute_text,
    comparison_text,
    composition_from,
    dumps,
    slot_from,
    stream_from,
)
from penstock.plan.specs import (
    Attribute,
    Composition,
    Join,
    Output,
    SlotSpec,
    Term,
    WindowSpec,
)
from penstock.plan.valuesets import ONLY_NULL, compare
from penstock.schema import Schema

STREAM = Stream("S", Schema.of("id INT, ts TIMESTAMP"), "file", "ts", options=(("path", "in"),))
RING = Composition("window", "S", (), (), (Output("n", "`__a0`"),), "ts", drop_ratio=0.01)


@pytest.mark.parametrize(
    "stream",
    [
        STREAM,
        Stream("S", Schema.of("id INT"), "file", estimator="fixed", slack_tuples=5),
        Stream("S", Schema.of("id INT"), "file", estimator="quantile", idle_us=0, trust_us=1),
    ],
)
def test_a_stream_comes_back_as_it_was(stream: Stream) -> None:
    assert stream_from(dumps(stream)) == stream


def test_a_stream_written_without_tuples_idle_and_trust_gets_their_defaults() -> None:
    raw = json.loads(dumps(STREAM))
    for name in ("slack_tuples", "idle_us", "trust_us"):
        del raw[name]
    raw |= {"estimator": "fixed", "slack_us": 2_000_000}
    stream = stream_from(json.dumps(raw))
    assert (stream.estimator, stream.slack_us, stream.slack_tuples) == ("fixed", 2_000_000, None)
    assert (stream.idle_us, stream.trust_us) == (None, 86_400_000_000)


def test_a_composition_written_without_sources_has_none() -> None:
    raw = json.loads(dumps(RING))
    del raw["per"], raw["apart"], raw["computed"]
    assert composition_from(json.dumps(raw)) == RING


UPPER = Attribute("__d_1", "string", "upper(`room`)")
INPUT = Composition(
    "input", "S", (UPPER,), ("id",), (), "ts", keys=("__d_1", "id"), key_types=("string", "int")
)


@pytest.mark.parametrize(
    "join",
    [
        Join((INPUT, replace(INPUT, stream="T", drop_ratio=0.5)), "`0.id` < `1.id`"),
        Join((INPUT, INPUT, INPUT), None, (5, None, 7)),
    ],
)
def test_a_join_comes_back_as_it_was(join: Join) -> None:
    ring = replace(RING, stream="S, T", join=join)
    again = composition_from(dumps(ring))
    assert again == ring
    assert again.streams == tuple(i.stream for i in join.inputs)


def test_a_composition_written_without_a_join_has_none() -> None:
    raw = json.loads(dumps(RING))
    del raw["join"]
    assert composition_from(json.dumps(raw)) == RING


HOT, COLD = compare(">", 40.0), compare("<", 0.0)
SLOT = SlotSpec(
    7,
    (Term((("room", compare("=", '["temp",{')), ("temp", HOT))), Term((("__d_1", ONLY_NULL),))),
    WindowSpec(10, 5),
    3,
    (UPPER,),
)


def test_a_slot_comes_back_as_it_was() -> None:
    assert slot_from(dumps(SLOT)) == SLOT


def test_a_slot_written_without_derived_attributes_has_none() -> None:
    raw = json.loads(dumps(SLOT))
    del raw["derived"]
    assert slot_from(json.dumps(raw)) == replace(SLOT, derived=())


def test_the_inputs_of_a_slot_come_back_as_they_were() -> None:
    unbounded = replace(SLOT, window=None, derived=())
    joined = SlotSpec(7, (Term(()),), inputs=(SLOT, unbounded))
    assert slot_from(dumps(joined)) == joined


def test_a_slot_written_without_inputs_has_none() -> None:
    raw = json.loads(dumps(SLOT))
    del raw["inputs"]
    assert slot_from(json.dumps(raw)) == SLOT


def test_the_text_of_a_slot_tells_what_it_compares() -> None:
    text = dumps(SLOT)
    assert comparison_text("temp", HOT) in text
    assert comparison_text("temp", COLD) not in text
    assert comparison_text("__d_1", ONLY_NULL) in text
    assert attribute_text("temp") in text
    assert attribute_text("temp") not in dumps(replace(SLOT, terms=(Term(SLOT.terms[0].sets[:1]),)))
    assert attribute_text("te") not in text
