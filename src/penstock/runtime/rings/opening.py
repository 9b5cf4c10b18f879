"""A ring made ready to start: its inputs with their epochs, its pace, its way out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.control.disorder import Disorder
from penstock.plan.catalog import Stream
from penstock.plan.codec import composition_from, dumps
from penstock.plan.specs import Composition
from penstock.runtime.compile import Input, is_chain
from penstock.runtime.config import StageConfig, input_ring, owner_of
from penstock.runtime.derived.pipelines import Pipelines
from penstock.runtime.derived.progress import logged_epoch
from penstock.runtime.dispatch import Dispatcher
from penstock.runtime.epochs import EpochKeeper, RingEpochs
from penstock.runtime.joining.monitor import JoinMonitor
from penstock.runtime.registry import RingRow
from penstock.runtime.rings.context import RingContext
from penstock.runtime.rings.pacing import Pace
from penstock.runtime.rings.ring import Ring
from penstock.runtime.service import Address
from penstock.runtime.sources.planner import Planner
from penstock.runtime.streams import planner_of, readable, rules_of
from penstock.schema import arrow_type


def parts_of(ring: str, composition: Composition) -> list[tuple[str, Composition]]:
    """What has epochs of its own in a ring: the ring itself, or the inputs of its join."""
    if composition.join is None:
        return [(ring, composition)]
    return [(input_ring(ring, n), given) for n, given in enumerate(composition.join.inputs)]


def output_schema(row: RingRow) -> pa.Schema:
    """A ring's result columns; null stands for types that only Spark knows."""
    fields = [(f["name"], f["type"]) for f in json.loads(row.outputs)["fields"]]
    return pa.schema([(name, _arrow_or_null(type_)) for name, type_ in fields])


def _arrow_or_null(type_: str) -> pa.DataType:
    try:
        return arrow_type(type_)
    except KeyError:
        return pa.null()


class Opener:
    """Makes rings of what the registry says of them; they are not started here."""

    def __init__(
        self,
        context: RingContext,
        epochs: EpochKeeper,
        joins: JoinMonitor,
        pipelines: Pipelines,
        frames: Mapping[str, DataFrame],
        address: Address,
    ) -> None:
        self._context = context
        self._epochs = epochs
        self._joins = joins
        self._pipelines = pipelines
        self._frames = frames
        self._address = address

    def open(
        self, row: RingRow, pool: int, dispatcher_of: Callable[[RingRow], Dispatcher]
    ) -> Ring | None:
        """The ring; None if a stream of it, or its DataFrame, is not here."""
        composition = composition_from(row.composition)
        streams = self._streams(composition)
        if streams is None:
            return None
        address = asdict(self._address)
        feeds = self._pipelines.fed_by(row)
        inputs = tuple(
            Input(
                part,
                stream,
                StageConfig(name, dumps(part), dumps(stream), **address, watches=feeds is not None),
            )
            for (name, part), stream in zip(parts_of(row.id, composition), streams, strict=True)
        )
        checkpoint = self._context.workspace.checkpoint(row.id)
        states = [self._epochs_of(given, row, feeds) for given in inputs]
        for state in states:
            state.feeds = feeds is not None
            if composition.join is not None:
                state.siblings = states
                state.logged = logged_epoch(checkpoint, owner_of(state.ring)[1])
                state.eager = composition.kind == "select" and not state.feeds
            self._epochs.open(state)
        config = inputs[0].config
        if composition.join is not None:
            texts = json.dumps([dumps(stream) for stream in streams])
            memory = self._context.settings().join_memory
            config = StageConfig(row.id, row.composition, texts, **address, join_memory=memory)
            begun = any(state.through >= 0 for state in states)
            self._joins.open(row.id, resumed=begun and not is_chain(composition))
        dispatcher = dispatcher_of(row)
        pace, place = self._pace_of(row.id, states), str(checkpoint)
        return Ring(row.id, composition, inputs, config, dispatcher, place, pace, pool, feeds)

    def _streams(self, composition: Composition) -> list[Stream] | None:
        """As tasks read them; None if one is missing."""
        found = []
        for name in composition.streams:
            if (stream := self._context.find_stream(name)) is None:
                return None
            if stream.source == "dataframe" and stream.name.lower() not in self._frames:
                return None
            found.append(self._context.exchange.readable(readable(stream, self._context.workspace)))
        return found

    def _pace_of(self, ring: str, states: list[RingEpochs]) -> Pace:
        """The pauses of a ring, made by the first of its inputs that penstock reads; or, if it
        reads none, where Spark asks for punctuation."""
        settings = self._context.settings
        pace = Pace(
            lambda: settings().trigger_ms,
            lambda: 1000 * settings().idle_pause_s,
            exhaustive=self._context.bounded,
            blind=any(state.planner is None for state in states),
        )
        leader = next((state for state in states if state.planner is not None), states[0])
        leader.pace = pace
        leader.unfinished = lambda: not self._joins.nothing_waits(ring)
        return pace

    def _epochs_of(self, given: Input, row: RingRow, feeds: Stream | None) -> RingEpochs:
        stream, composition = given.stream, given.composition
        if stream.source == "derived":
            planner: Planner | None = self._pipelines.planner(given, row, feeds)
        else:
            planner = planner_of(stream, self._context.clock_us)
        return RingEpochs(
            given.config.ring,
            composition,
            planner,
            Disorder(rules_of(stream, composition)),
            stream.trust_us,
            self._context.holds(stream, composition.drop_ratio),
        )
