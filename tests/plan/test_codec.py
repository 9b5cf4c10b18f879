"""Specs as text: they come back as they were, also those that know nothing of newer fields."""

from __future__ import annotations

import json

import pytest

from penstock.plan.catalog import Stream
from penstock.plan.codec import composition_from, dumps, stream_from
from penstock.plan.specs import Composition, Output
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
    del raw["per"], raw["apart"]
    assert composition_from(json.dumps(raw)) == RING
